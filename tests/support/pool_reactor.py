"""A reactor in memory for a whole service of `twistd`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.testing import MemoryReactorClock
from twisted.python.failure import Failure


class Pool:
    """A pool of threads whose jobs run when the test says so."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Any, ...]] = []

    def callInThreadWithCallback(
        self, done: Callable[[bool, Any], None], job: Callable[..., Any], *arguments: Any
    ) -> None:
        self._waiting.append((done, job, arguments))

    def run(self) -> None:
        jobs, self._waiting = self._waiting, []
        for done, job, arguments in jobs:
            try:
                value = job(*arguments)
            except Exception:
                done(False, Failure())
            else:
                done(True, value)


class PoolReactor(MemoryReactorClock):
    """A reactor in memory with a pool of threads, for whole services."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = Pool()

    def getThreadPool(self) -> Pool:
        return self.pool

    def callFromThread(self, job: Callable[..., Any], *arguments: Any) -> None:
        job(*arguments)

    def run_until(self, condition: Callable[[], bool]) -> None:
        for _ in range(1000):
            if condition():
                return
            self.pool.run()
            self.advance(0.05)
        raise AssertionError("not in time")
