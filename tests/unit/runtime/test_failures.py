"""Failures that may go on for hours."""

from twisted.logger import Logger, capturedLogs, formatEvent
from twisted.python.failure import Failure

from rocketmq_tw.runtime.failures import FailuresInARow


def test_what_works_again_is_told() -> None:
    failures = FailuresInARow(Logger(), "it failed")
    with capturedLogs() as events:
        failures.succeeded()
        for _ in range(3):
            failures.failed(Failure(OSError("no")))
        failures.succeeded()
        failures.failed(Failure(OSError("no")))
    assert [event["log_level"].name for event in events] == ["error", "info", "error"]


def test_a_traceback_is_given_of_what_the_system_did_not_refuse_and_once() -> None:
    failures = FailuresInARow(Logger(), "it failed")
    with capturedLogs() as events:
        for error in [OSError(28, "full", "/a"), OSError(5, "bad"), *[ValueError("wrong")] * 3]:
            failures.failed(Failure(error))
    assert [formatEvent(event) for event in events] == [
        "it failed: [Errno 28] full: '/a'",
        "it failed",
    ]
    assert ["log_failure" in event for event in events] == [False, True]


def test_two_classes_that_alternate_are_said_once_each() -> None:
    failures = FailuresInARow(Logger(), "it failed")
    with capturedLogs() as events:
        for number in range(25):
            failures.failed(Failure(OSError("no") if number % 2 else ValueError("wrong")))
    assert [formatEvent(event) for event in events] == [
        "it failed",
        "it failed: no",
        "it failed: 10 times in a row, the last one: no",
    ]


def test_a_count_that_falls_on_another_class_is_told_with_the_next_failure() -> None:
    failures = FailuresInARow(Logger(), "it failed")
    with capturedLogs() as events:
        for number in range(1, 110):
            failures.failed(Failure(ValueError("wrong") if number == 10 else OSError("no")))
    assert [formatEvent(event) for event in events[1:]] == [
        "it failed",
        "it failed: 11 times in a row, the last one: no",
        "it failed: 100 times in a row, the last one: no",
    ]
