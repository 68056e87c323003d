"""Tells when a queue that an orderly group consumes is free again, acknowledged or not."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from rocketmq_tw.broker.pop.order import OrderBook
from rocketmq_tw.broker.pop.positions import PoppedQueue

#: The network's wait cannot be as long as a client may hide messages for.
_LONGEST_SECONDS = 3600.0


class OrderWatch:
    """Calls `freed(queue)` for each queue that is watched once it is free."""

    def __init__(
        self,
        order: OrderBook,
        clock: IReactorTime,
        now_ms: Callable[[], int],
        freed: Callable[[PoppedQueue], None],
    ) -> None:
        self._order = order
        self._clock = clock
        self._now_ms = now_ms
        self._freed = freed
        self._timers: dict[PoppedQueue, IDelayedCall] = {}

    def watch(self, queue: PoppedQueue) -> None:
        """The order in the queue changed; a queue that is free by now is told at once."""
        timer = self._timers.pop(queue, None)
        if timer is not None:
            timer.cancel()
        free_at = self._order.free_at(queue)
        if free_at is None:
            self._freed(queue)
        else:
            seconds = min(max(free_at - self._now_ms(), 0) / 1000, _LONGEST_SECONDS)
            self._timers[queue] = self._clock.callLater(seconds, self._look, queue)

    def stop(self) -> None:
        """Watches nothing any more."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _look(self, queue: PoppedQueue) -> None:
        del self._timers[queue]
        self.watch(queue)
