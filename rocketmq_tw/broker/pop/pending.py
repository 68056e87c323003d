"""Keeps what was popped and not yet acknowledged, by revive queue: books without a clock or a
store.

They are made again from the revive queue whenever a role begins; how far that queue is dealt with
is the offset in front of the oldest check point that still waits. Rules: docs/formats/pop.md,
"Revival".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Sequence, Set

from rocketmq_tw.broker.pop.check_points import (
    FOREVER_MS,
    CheckPointKey,
    PoppedAt,
    PoppedQueue,
    popped_at,
    popped_distances,
)
from rocketmq_tw.runtime.clock import is_ahead
from rocketmq_tw.runtime.lazy_heap import LEAST_KEPT, LazyHeap, most_kept
from rocketmq_tw.runtime.listeners import Listeners
from rocketmq_tw.wire.bodies.pop import PopCheckPoint

#: Behind every place in a log.
BEHIND_ALL = 1 << 63
#: Check points that are looked at in one step where the clock was set back.
_STEP = 1000
#: Check points that are looked at for an acknowledgement, which differ in nothing but the topic
#: and the group: anybody may send more.
MOST_ALIKE = 100


class Counted:
    """A number of messages in flight that check points share."""

    __slots__ = ("messages",)

    def __init__(self) -> None:
        self.messages = 0


class PendingCheckPoint:
    """A check point. Which of its messages are not acknowledged yet is kept as bits, since very
    many check points may wait."""

    __slots__ = (
        "_distances",
        "_left",
        "count",
        "former",
        "is_local",
        "is_reviving",
        "key",
        "newer",
        "point",
        "revive_offset",
        "under_way",
    )

    def __init__(
        self, key: CheckPointKey, point: PopCheckPoint, revive_offset: int, *, is_local: bool
    ) -> None:
        self.key = key
        self.point = point
        self.revive_offset = revive_offset
        #: Whether its messages are of this broker's queues.
        self.is_local = is_local
        #: How far each message is behind the check point's start.
        self._distances = popped_distances(point)
        #: A bit for each of these that waits; of those that stand twice the first one counts.
        self._left = _first_ones(self._distances)
        #: Others that wait too and were popped there at that time, mostly with the same key: the
        #: one before it, and the one behind it.
        self.former: PendingCheckPoint | None = None
        self.newer: PendingCheckPoint | None = None
        #: Where its messages are counted.
        self.count = Counted()
        #: Whether it was returned as due and is being revived.
        self.is_reviving = False
        #: The offsets of messages that are on their way to the retry topic.
        self.under_way: frozenset[int] = frozenset()

    @property
    def waits(self) -> bool:
        """Whether a message is not acknowledged yet."""
        return self._left != 0

    @property
    def waiting(self) -> set[int]:
        """The queue offsets of the messages that are not acknowledged yet."""
        start, left = self.point.start_offset, self._left
        return {
            start + distance for place, distance in enumerate(self._distances) if left >> place & 1
        }

    @property
    def messages(self) -> int:
        """How many messages are not acknowledged yet."""
        return self._left.bit_count()

    def has(self, offset: int) -> bool:
        """Returns whether the message at this offset is one that is not acknowledged yet."""
        try:
            place = self._distances.index(offset - self.point.start_offset)
        except ValueError:
            return False
        return self._left >> place & 1 == 1

    def settle(self, offsets: Set[int]) -> None:
        """Notes that the messages at `offsets` are dealt with; however many these are, it takes as
        long as the check point has messages."""
        distances, start, gone = self._distances, self.point.start_offset, 0
        if len(offsets) > len(distances):
            offsets = {start + distance for distance in distances} & offsets
        for offset in offsets:
            try:
                gone |= 1 << distances.index(offset - start)
            except ValueError:
                # Of another check point that has the same name.
                continue
        self._left &= ~gone


def _first_ones(distances: Sequence[int]) -> int:
    different = distances if isinstance(distances, range) else set(distances)
    if len(different) == len(distances):
        return (1 << len(distances)) - 1
    return sum(1 << distances.index(distance) for distance in different)


class InFlight:
    """Counts the messages of each queue of this broker that a group popped and did not acknowledge;
    of check points that are not `is_local` none counts. `has_room` tells of queues for which
    `wait_for_room` was called."""

    def __init__(self) -> None:
        self.has_room: Listeners[PoppedQueue] = Listeners("fewer messages of a queue are in flight")
        #: Queue -> how many messages may be in flight where somebody waits for that.
        self._wanted: dict[PoppedQueue, int] = {}
        self._counts: dict[PoppedQueue, Counted] = {}
        #: Since when a queue is counted anew, until every older check point was read.
        self._since: dict[PoppedQueue, int] = {}
        self._older: dict[PoppedQueue, int] = {}

    def clear(self) -> None:
        """Forgets everything: the role is over."""
        self._counts, self._since, self._older, self._wanted = {}, {}, {}, {}

    def of(self, queue: PoppedQueue) -> int:
        """Returns how many messages of the queue are in flight."""
        found = self._counts.get(queue)
        return 0 if found is None else found.messages

    def wait_for_room(self, queue: PoppedQueue, most: int) -> None:
        """Has `has_room` tell once no more than `most` messages of the queue are in flight."""
        self._wanted[queue] = most

    def forget(self, queue: PoppedQueue, now_ms: int) -> None:
        """Counts messages no more that were popped of the queue before now, since the group begins
        elsewhere."""
        self._counts.pop(queue, None)
        self._wanted.pop(queue, None)
        self._since[queue] = now_ms

    def all_read(self) -> None:
        """Notes that the revive queues were read to their ends, from the last such call on."""
        self._older, self._since = self._since, {}

    def enter(self, pending: PendingCheckPoint) -> None:
        """Counts a check point, whose messages are in flight from now on."""
        if not pending.is_local:
            return
        queue = _queue_of(pending)
        since = self._since.get(queue, self._older.get(queue))
        if since is None or pending.point.pop_time >= since:
            pending.count = self._counts.setdefault(queue, pending.count)
        pending.count.messages += pending.messages

    def leave(self, pending: PendingCheckPoint, messages: int) -> None:
        """Counts so many of its messages no more."""
        if not pending.is_local:
            return
        count, queue = pending.count, _queue_of(pending)
        count.messages -= messages
        if not count.messages and self._counts.get(queue) is count:
            del self._counts[queue]
        if queue in self._wanted and self.of(queue) <= self._wanted[queue]:
            del self._wanted[queue]
            self.has_room.tell(queue)


def _queue_of(pending: PendingCheckPoint) -> PoppedQueue:
    point = pending.point
    return point.topic or "", point.group or "", point.queue_id


class PendingCheckPoints:
    """The check points of one revive queue. `read_offset`: all messages in front of it were
    taken in."""

    def __init__(self, read_offset: int, in_flight: InFlight) -> None:
        self.read_offset = read_offset
        self._in_flight = in_flight
        #: The newest one of those that are alike leads to the others.
        self._newest: dict[PoppedAt, PendingCheckPoint] = {}
        self._count = 0
        #: Those that are dealt with stay in the deque behind one that waits long, and in the heaps
        #: until their time, but not more of them than of the others.
        self._in_order: deque[PendingCheckPoint] = deque()
        self._most_in_order = LEAST_KEPT
        self._by_time: LazyHeap[PendingCheckPoint] = LazyHeap(_waits)
        self._by_place: LazyHeap[PendingCheckPoint] = LazyHeap(_waits)

    def __len__(self) -> int:
        return self._count

    @property
    def kept(self) -> int:
        """How many entries the books have, also of check points that are dealt with."""
        return len(self._in_order) + len(self._by_time) + len(self._by_place)

    @property
    def done_offset(self) -> int:
        """All check points in front of this offset are dealt with."""
        in_order = self._in_order
        while in_order and not in_order[0].waits:
            in_order.popleft()
        return in_order[0].revive_offset if in_order else self.read_offset

    @property
    def first_place(self) -> int:
        """Where in the log the first message stands that waits; `BEHIND_ALL` without one."""
        place = self._by_place.first()
        return BEHIND_ALL if place is None else place

    def add(
        self,
        key: CheckPointKey,
        point: PopCheckPoint,
        revive_offset: int,
        first_place: int = BEHIND_ALL,
        *,
        is_local: bool = True,
        latest_ms: int = FOREVER_MS,
    ) -> None:
        """Takes in a check point; `is_local`: its messages are of this broker's queues; they are
        visible again at its time, or at `latest_ms` where that is earlier. Each counts for itself,
        also where one of the same key waits: behind a reset or a crash a queue may be popped again
        in the same millisecond, and what cannot be revived is stored again."""
        pending = PendingCheckPoint(key, point, revive_offset, is_local=is_local)
        if pending.waits:
            alike = popped_at(key)
            former = pending.former = self._newest.get(alike)
            if former is not None:
                former.newer = pending
            self._newest[alike] = pending
            self._count += 1
            self._in_order.append(pending)
            if len(self._in_order) > self._most_in_order:
                self._in_order = deque(filter(_waits, self._in_order))
                self._most_in_order = most_kept(self._in_order)
            self._by_time.push(min(point.pop_time + point.invisible_time, latest_ms), pending)
            if first_place != BEHIND_ALL:
                self._by_place.push(first_place, pending)
            self._in_flight.enter(pending)

    def acknowledge(self, key: CheckPointKey, offsets: Collection[int]) -> None:
        """Notes that messages are consumed, whichever check point of the key has them; with more of
        one key than a broker makes, the oldest ones are revived for nothing."""
        named = frozenset(offsets)
        for pending in self._popped_so(key):
            if pending.key == key:
                self._settle(pending, named)

    def waits(self, key: CheckPointKey, offset: int) -> bool:
        """Returns whether a message of a check point of this key is not dealt with yet."""
        return any(pending.key == key and pending.has(offset) for pending in self._popped_so(key))

    def another(self, key: CheckPointKey, offset: int) -> CheckPointKey | None:
        """Returns the key of a check point whose message waits at this offset, and which differs in
        nothing but the topic or the group; None where there is none, or one of this key waits."""
        found = None
        for pending in self._popped_so(key):
            if pending.key == key:
                return None
            if pending.has(offset):
                found = pending.key
        return found

    def _popped_so(self, key: CheckPointKey) -> Iterator[PendingCheckPoint]:
        """Yields the newest ones that are alike, of this and other groups and topics."""
        pending = self._newest.get(popped_at(key))
        for _ in range(MOST_ALIKE):
            if pending is None:
                return
            former = pending.former
            yield pending
            pending = former

    def settle(self, pending: PendingCheckPoint, offsets: Collection[int]) -> None:
        """Notes that messages of this check point are dealt with."""
        self._settle(pending, frozenset(offsets))

    def _settle(self, pending: PendingCheckPoint, offsets: frozenset[int]) -> None:
        before = pending.messages
        pending.settle(offsets)
        self._in_flight.leave(pending, before - pending.messages)
        if before and not pending.waits:
            self._remove(pending)

    def _remove(self, pending: PendingCheckPoint) -> None:
        self._count -= 1
        # Retention asks for the first place once in hours: so many would be kept until then.
        self._by_place.first()
        newer, former = pending.newer, pending.former
        if former is not None:
            former.newer = newer
        if newer is not None:
            newer.former = former
        elif former is not None:
            self._newest[popped_at(pending.key)] = former
        else:
            del self._newest[popped_at(pending.key)]

    def take_due(self, now_ms: int) -> PendingCheckPoint | None:
        """Returns the check point of which messages wait and that has been due longest; it is
        returned once, and again after `put_back`."""
        while (pending := self._by_time.take(now_ms)) is not None:
            if pending.waits and not pending.is_reviving:
                pending.is_reviving = True
                return pending
        return None

    def count_from(self, now_ms: int) -> Iterator[None]:
        """Makes due what says that it was popped later than now, by more than clocks differ, as if
        it were popped now; in steps."""
        for count, pending in enumerate(tuple(self._in_order), 1):
            point = pending.point
            if pending.waits and is_ahead(point.pop_time, now_ms):
                # It is in the heap twice then, the second time for nothing.
                self._by_time.push(now_ms + point.invisible_time, pending)
            if count % _STEP == 0:
                yield

    def put_back(self, pending: PendingCheckPoint, due_ms: int) -> None:
        """Makes what is left of a check point due once more, at `due_ms`."""
        pending.is_reviving = False
        if pending.waits:
            self._by_time.push(due_ms, pending)


def _waits(pending: PendingCheckPoint) -> bool:
    return pending.waits
