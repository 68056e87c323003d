"""A clock that jumps from one call to the next."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count

from twisted.internet.base import DelayedCall
from twisted.internet.task import Clock


class EventClock(Clock):
    """Each call is made at its own time, calls of one time in the order in which they were asked
    for; many calls that wait cost nothing."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting: list[tuple[float, int, DelayedCall]] = []
        self._numbers = count()

    def callLater(
        self, delay: float, callable: Callable[..., object], *args: object, **kw: object
    ) -> DelayedCall:
        call = DelayedCall(
            self.rightNow + delay, callable, args, kw, lambda _: None, self.put, self.seconds
        )
        self.put(call)
        return call

    def step(self, until: float) -> bool:
        """Makes the next call that is due at `until` (seconds); False where there is none, and it
        is `until` then."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= until:
            due, _, call = heapq.heappop(waiting)
            if call.called or call.cancelled:
                continue
            if call.getTime() > due:
                self.put(call)
                continue
            self.rightNow = max(self.rightNow, due)
            call.called = 1
            call.func(*call.args, **call.kw)
            return True
        self.rightNow = max(self.rightNow, until)
        return False

    def advance(self, amount: float) -> None:
        until = self.rightNow + amount
        while self.step(until):
            pass

    def put(self, call: DelayedCall) -> None:
        """Lets a call wait for its time."""
        heapq.heappush(self._waiting, (call.getTime(), next(self._numbers), call))
