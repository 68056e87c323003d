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
        self._tasks: list[tuple[LoopingCall, float, bool]] = []
        self._running: list[Deferred[Any]] = []

    def add(
        self, name: str, seconds: float, function: Callable[[], Any], *, must_end: bool = True
    ) -> None:
        """`must_end` False: `stop` does not wait for it; it may hang on a peer that does."""

        def run() -> Deferred[Any]:
            done = maybeDeferred(function)
            return done.addErrback(lambda failure: _report(name, failure))

        task = LoopingCall(run)
        task.clock = self._clock
        self._tasks.append((task, seconds, must_end))

    def start(self) -> None:
        """Each is called for the first time after its interval."""
        for task, seconds, must_end in self._tasks:
            running = task.start(seconds, now=False)
            if must_end:
                self._running.append(running)

    def stop(self) -> Deferred[None]:
        """Fires once what runs has ended."""
        for task, _, _ in self._tasks:
            if task.running:
                task.stop()
        running, self._running = self._running, []
        return DeferredList(running).addCallback(lambda _: None)


def _report(name: str, failure: Failure) -> None:
    log.failure("{name} failed", failure=failure, name=name)
