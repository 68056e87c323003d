"""What the broker does from time to time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, DeferredList, maybeDeferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

log = Logger()


class PeriodicTasks:
    """Named functions and their intervals. One that fails is logged and called again the next
    time; one that returns a Deferred is not called again before that fired."""

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._tasks: list[tuple[LoopingCall, Callable[[], float], bool]] = []
        self._running: list[Deferred[Any]] = []
        self._started = False

    def add(
        self,
        name: str,
        seconds: float | Callable[[], float],
        work: Callable[[], Any],
        *,
        may_hang: bool = False,
    ) -> None:
        """`seconds` lie between two calls of `work`; what tells them is asked anew for each call.
        `may_hang`: it may wait for a peer that hangs, so `stop` does not wait for it."""
        interval = seconds if callable(seconds) else lambda: seconds

        def run() -> Deferred[Any]:
            task.interval = interval()
            done = maybeDeferred(work)
            return done.addErrback(lambda failure: _report(name, failure))

        task = LoopingCall(run)
        task.clock = self._clock
        self._tasks.append((task, interval, may_hang))

    def start(self) -> None:
        """Each is called for the first time after its interval. Only the first call counts."""
        if self._started:
            return
        self._started = True
        for task, interval, may_hang in self._tasks:
            running = task.start(interval(), now=False)
            if not may_hang:
                self._running.append(running)

    def stop(self) -> Deferred[None]:
        """Fires once what runs has ended."""
        self._started = True
        for task, _, _ in self._tasks:
            if task.running:
                task.stop()
        running, self._running = self._running, []
        return DeferredList(running).addCallback(lambda _: None)


def _report(name: str, failure: Failure) -> None:
    log.failure("{name} failed", failure=failure, name=name)
