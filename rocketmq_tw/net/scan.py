"""A look that is taken again and again, whatever comes of one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure


class PeriodicScan:
    """Calls `look` every `interval` seconds, for the first time after one; what it raises is
    logged with `purpose`, and it is called again."""

    log = Logger()

    def __init__(
        self, clock: Any, interval: float, look: Callable[[], object], purpose: str
    ) -> None:
        self._interval = interval
        self._purpose = purpose
        self._calls = LoopingCall(look)
        self._calls.clock = clock

    def start(self) -> None:
        """Begins to look."""
        self._calls.start(self._interval, now=False).addErrback(self._failed)

    def stop(self) -> None:
        """Looks no more."""
        if self._calls.running:
            self._calls.stop()

    def _failed(self, failure: Failure) -> None:
        self.log.failure("while {purpose}", failure=failure, purpose=self._purpose)
        self.start()
