"""Work that is done again and again, also after it failed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure


class PeriodicCall:
    """Calls `work` every `seconds`: a number, or a callable that returns one and is asked anew for
    each call. Intervals count from the start, so a slow call delays none of the later ones.

    A failure of `work`, raised or of its Deferred, is logged under `name`, and it is called again.
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
        self._loop = LoopingCall(self._run)
        self._loop.clock = clock
        self._ended: Deferred[Any] = succeed(None)

    @property
    def is_running(self) -> bool:
        """Whether it was started and not stopped."""
        return self._loop.running

    def start(self, *, now: bool = False) -> None:
        """Calls `work` for the first time after its interval, or `now`. Does nothing where it was
        started already."""
        if not self._loop.running:
            self._ended = self._loop.start(self._seconds(), now=now)

    def stop(self) -> Deferred[None]:
        """Calls `work` no more; fires once the call that is under way has ended."""
        if self._loop.running:
            self._loop.stop()
        return succeed(None) if self._may_hang else self._ended.addCallback(lambda _: None)

    def _run(self) -> Deferred[Any]:
        self._loop.interval = self._seconds()
        return maybeDeferred(self._work).addErrback(self._failed)

    def _failed(self, failure: Failure) -> None:
        self.log.failure("{name} failed", failure=failure, name=self.name)
