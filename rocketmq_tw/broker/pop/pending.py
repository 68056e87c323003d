"""What was popped and not yet acknowledged, by revive queue: the books, without a clock or a store.

They are made again from the revive queue at each start; how far that is dealt with is the offset in
front of the oldest check point that still waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from heapq import heappop, heappush

from rocketmq_tw.broker.pop.check_points import CheckPointKey, popped_offsets
from rocketmq_tw.broker.pop.positions import PoppedQueue
from rocketmq_tw.wire.bodies.pop import PopCheckPoint


class PendingCheckPoint:
    """One check point; `waiting` are the queue offsets that nobody acknowledged."""

    __slots__ = ("key", "point", "revive_offset", "reviving", "under_way", "waiting")

    def __init__(self, key: CheckPointKey, point: PopCheckPoint, revive_offset: int) -> None:
        self.key = key
        self.point = point
        self.revive_offset = revive_offset
        self.waiting = set(popped_offsets(point))
        #: It was given out as due.
        self.reviving = False
        #: The offsets of messages that are on their way to the retry topic.
        self.under_way: set[int] = set()

    @property
    def due_ms(self) -> int:
        return self.point.pop_time + self.point.invisible_time


class InFlight:
    """How many messages of each queue a group popped and did not acknowledge."""

    def __init__(self) -> None:
        self._counts: dict[PoppedQueue, int] = {}

    def of(self, queue: PoppedQueue) -> int:
        return self._counts.get(queue, 0)

    def add(self, point: PopCheckPoint, count: int) -> None:
        """So many more, or less, of the queue of `point`."""
        queue = (point.topic or "", point.group or "", point.queue_id)
        left = self._counts.get(queue, 0) + count
        if left > 0:
            self._counts[queue] = left
        else:
            self._counts.pop(queue, None)


class PendingCheckPoints:
    """The check points of one revive queue. `read_offset`: what stands before it was taken in."""

    def __init__(self, read_offset: int, in_flight: InFlight) -> None:
        self.read_offset = read_offset
        self._in_flight = in_flight
        self._by_key: dict[CheckPointKey, PendingCheckPoint] = {}
        self._in_order: deque[PendingCheckPoint] = deque()
        self._by_time: list[tuple[int, int, PendingCheckPoint]] = []

    def __len__(self) -> int:
        return len(self._by_key)

    @property
    def done_offset(self) -> int:
        """Everything before it is dealt with."""
        in_order = self._in_order
        while in_order and not in_order[0].waiting:
            in_order.popleft()
        return in_order[0].revive_offset if in_order else self.read_offset

    def add(self, key: CheckPointKey, point: PopCheckPoint, revive_offset: int) -> None:
        """Takes a check point in; one that is known already stays as it is."""
        if key in self._by_key:
            return
        pending = PendingCheckPoint(key, point, revive_offset)
        if pending.waiting:
            self._by_key[key] = pending
            self._in_order.append(pending)
            heappush(self._by_time, (pending.due_ms, revive_offset, pending))
            self._in_flight.add(point, len(pending.waiting))

    def acknowledge(self, key: CheckPointKey, offsets: Iterable[int]) -> None:
        """Messages of a check point need not be seen again."""
        pending = self._by_key.get(key)
        if pending is None:
            return
        before = len(pending.waiting)
        pending.waiting.difference_update(offsets)
        self._in_flight.add(pending.point, len(pending.waiting) - before)
        if not pending.waiting:
            del self._by_key[key]

    def take_due(self, now_ms: int) -> PendingCheckPoint | None:
        """The check point that is due longest and of which messages wait; it is given out once,
        and again after `put_back`."""
        by_time = self._by_time
        while by_time and by_time[0][0] <= now_ms:
            pending = heappop(by_time)[2]
            if pending.waiting:
                pending.reviving = True
                return pending
        self._compact()
        return None

    def put_back(self, pending: PendingCheckPoint, due_ms: int) -> None:
        """What is left of it is to be tried again."""
        pending.reviving = False
        if pending.waiting:
            heappush(self._by_time, (due_ms, pending.revive_offset, pending))

    def _compact(self) -> None:
        """Drops those that were acknowledged before their time: with long times and fast consumers
        they would be most of what is kept."""
        if len(self._by_time) > 1000 and len(self._by_time) > 4 * len(self._by_key):
            self._by_time = sorted(entry for entry in self._by_time if entry[2].waiting)
        if len(self._in_order) > 1000 and len(self._in_order) > 4 * len(self._by_key):
            # They stand behind one that waits long.
            self._in_order = deque(pending for pending in self._in_order if pending.waiting)
