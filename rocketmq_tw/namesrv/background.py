"""Work that would hold others up: in a thread, or a little of it in each turn of the reactor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.internet.task import Cooperator
from twisted.logger import Logger

from rocketmq_tw.runtime.threads import InThread

#: Steps that are made at once: most work is no more.
AT_ONCE = 10
#: Entries that are encoded at once.
FEW = 1_000


class Background:
    """`in_thread` runs a job in a thread; it fires with what that returns."""

    log = Logger()

    def __init__(self, clock: Any, in_thread: InThread) -> None:
        self.in_thread = in_thread
        self._cooperator = Cooperator(scheduler=lambda work: clock.callLater(0, work))

    def run(self, entries: int, job: Callable[[], Any]) -> Deferred[Any]:
        """What `job` returns, which has something to do for each of so many entries: at once where
        these are few."""
        return maybeDeferred(job) if entries <= FEW else self.in_thread(job)

    def in_slices(self, steps: Iterator[None]) -> Deferred[Any]:
        """Goes through `steps`, some 10 ms in each turn of the reactor; fires at their end, fails
        with what they raise. What is little is done when this returns."""
        if len(list(islice(steps, AT_ONCE))) < AT_ONCE:
            return succeed(None)
        return self._cooperator.coiterate(steps)

    def sweep(self, steps: Iterator[None]) -> None:
        """Goes through `steps` while nobody waits for their end."""
        self.in_slices(steps).addErrback(lambda failure: self.log.failure("sweeping", failure))
