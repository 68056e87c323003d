"""Work that is done again and again, also after it failed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketmq_tw.runtime.failures import FailuresInARow
from rocketmq_tw.runtime.waiters import Waiters


class PeriodicCall:
    """Calls `work` every `seconds`: a number, or a callable that returns one and is asked anew for
    each call. Intervals count from the start, so a slow call delays none of the later ones.

    Failures of `work`, raised or of its Deferred, are logged under `name`, those in a row as
    `FailuresInARow` does it, and it is called again.
    It is not called again before its Deferred has fired. `may_hang`: the Deferred may depend on a
    peer that hangs, so `stop` does not wait for it.
    """

    log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        name: str,
        seconds: float | Callable[[], float],
        work: Callable[[], Any],
        *,
        may_hang: bool = False,
    ) -> None:
        self.name = name
        self._seconds = seconds if callable(seconds) else lambda: seconds
        self._work = work
        self._may_hang = may_hang
        self._clock = clock
        self._loop = LoopingCall(self._run)
        self._is_under_way = False
        self._over = Waiters[None]()
        self._failures = FailuresInARow(self.log, f"{name} failed")

    @property
    def is_running(self) -> bool:
        """Whether it was started and not stopped."""
        return self._loop.running

    def start(self, *, now: bool = False) -> None:
        """Calls `work` for the first time after its interval, or `now`. Does nothing where it was
        started already."""
        if not self._loop.running:
            # A new one: a former one may still wait for the end of its last call.
            self._loop = LoopingCall(self._run)
            self._loop.clock = self._clock
            self._loop.start(self._seconds(), now=now)

    def stop(self) -> Deferred[None]:
        """Calls `work` no more; fires once the call that is under way has ended."""
        if self._loop.running:
            self._loop.stop()
        if self._may_hang or not self._is_under_way:
            return succeed(None)
        return self._over.wait()

    def _run(self) -> Deferred[Any] | None:
        self._loop.interval = self._seconds()
        if self._is_under_way:
            return None
        self._is_under_way = True
        try:
            result = self._work()
        except Exception:
            self._failures.failed(Failure())
            self._call_ended(None)
            return None
        if result is None:
            # Most calls end at once, and there are many of them.
            self._worked(None)
            self._call_ended(None)
            return None
        done = maybeDeferred(lambda: result)
        done.addCallbacks(self._worked, self._failures.failed)
        return done.addCallback(self._call_ended)

    def _call_ended(self, _: object) -> None:
        self._is_under_way = False
        self._over.fire(None)

    def _worked(self, _: object) -> None:
        self._failures.succeeded()
