"""Failures of one kind, which may go on for hours: not a line for each."""

from __future__ import annotations

from twisted.logger import Logger
from twisted.python.failure import Failure


class FailuresInARow:
    """The first one of each class is logged, with its traceback unless it is an error of the
    system, as of a full disk; of the others only how many there are, each time that it is ten times
    as many."""

    def __init__(self, log: Logger, text: str) -> None:
        self._log = log
        self._text = text
        self._count = 0
        self._next = 10
        self._said: set[type[object]] = set()

    def failed(self, failure: Failure) -> None:
        self._count += 1
        kind = type(failure.value)
        if kind not in self._said:
            self._said.add(kind)
            if isinstance(failure.value, OSError):
                why = failure.getErrorMessage()
                self._log.error("{text}: {why}", text=self._text, why=why)
            else:
                self._log.failure("{text}", failure=failure, text=self._text)
        elif self._count >= self._next:
            while self._next <= self._count:
                self._next *= 10
            self._log.error(
                "{text}: {count} times in a row, the last one: {why}",
                text=self._text,
                count=self._count,
                why=failure.getErrorMessage(),
            )

    def succeeded(self) -> None:
        if self._count:
            self._log.info(
                "it works again; failed {n} times in a row: {text}", text=self._text, n=self._count
            )
            self._count, self._next = 0, 10
            self._said.clear()
