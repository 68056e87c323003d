"""Lines of several servers of one process."""

from __future__ import annotations

from twisted.logger import Logger, capturedLogs, formatEvent

from rocketmq_tw.runtime.named_log import named

log = Logger()


def test_lines_begin_with_the_name() -> None:
    with capturedLogs() as events:
        named(log, "c_a_0").warn("{what} is full", what="the disk")
        named(log, "c_{b}_0").info("it is {not} said of braces", **{"not": "well"})
    assert list(map(formatEvent, events)) == [
        "c_a_0: the disk is full",
        "c_{b}_0: it is well said of braces",
    ]
    assert events[0]["log_namespace"] == __name__


def test_a_failure_keeps_its_trace() -> None:
    with capturedLogs() as events:
        try:
            raise ValueError("why")
        except ValueError:
            named(log, "c_a_0").failure("it failed")
    (event,) = events
    assert formatEvent(event) == "c_a_0: it failed"
    assert event["log_failure"].check(ValueError)


def test_who_is_alone_needs_no_name() -> None:
    assert named(log, "") is log
