"""Failures that may go on for hours."""

from twisted.logger import Logger, capturedLogs
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
    assert [event["log_level"].name for event in events] == ["critical", "info", "critical"]
