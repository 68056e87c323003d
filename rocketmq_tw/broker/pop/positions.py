"""Keeps where the next pop of a queue begins, ahead of what is committed.

A pop moves the position at once, so that no other one gets the same messages; the group's offset
follows only once the check points up to it are stored. Where a check point cannot be stored, the
position goes back to it: its messages were given to no consumer. Rules: docs/formats/pop.md, "The
order of things".
"""

from __future__ import annotations

from collections import deque

from twisted.internet.defer import Deferred, succeed

from rocketmq_tw.broker.pop.check_points import PoppedQueue
from rocketmq_tw.broker.pop.order import OrderBook
from rocketmq_tw.broker.pop.pending import InFlight
from rocketmq_tw.broker.tables.offsets.table import OffsetTable
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.message.names import RETRY_PREFIX
from rocketmq_tw.runtime.waiters import Waiters
from rocketmq_tw.store.interface import IMessageStore

#: `init_mode` of a pop: where a group begins that has no offset.
FROM_OLDEST = 0
#: Queues of which it is remembered what was passed over last.
MOST_PASSED = 10_000


class ClaimedRange:
    """Messages of a queue from `start` up to `end`, which one pop takes. `since`: from there up to
    `start` pops passed over all, and no check point says so. The log ended at `place` then."""

    __slots__ = ("end", "is_stored", "place", "queue", "since", "start")

    def __init__(self, queue: PoppedQueue, start: int, end: int, since: int, place: int) -> None:
        self.queue = queue
        self.start = start
        self.end = end
        self.since = since
        self.place = place
        #: Whether its check point is in the log, or it needs none.
        self.is_stored = False


class Positions:
    """Claims of each queue whose check points are on their way into the log, and the groups'
    offsets behind them. A reset of a group's offset clears what `order` and `in_flight` have of
    it."""

    def __init__(
        self,
        config: BrokerConfig,
        store: IMessageStore,
        offsets: OffsetTable,
        order: OrderBook,
        in_flight: InFlight,
    ) -> None:
        self._config = config
        self._store = store
        self._offsets = offsets
        self._order = order
        self._in_flight = in_flight
        self._claims: dict[PoppedQueue, deque[ClaimedRange]] = {}
        self._idle = Waiters[None]()
        #: Claims whose check points are on their way, the oldest first.
        self._under_way: dict[ClaimedRange, None] = {}
        #: What pops passed over since the last check point: its begin, and its end.
        self._passed: dict[PoppedQueue, tuple[int, int]] = {}

    def log_place(self) -> int:
        """Returns a place of the log: what was popped and has its check point in front of it is in
        the groups' offsets."""
        oldest = next(iter(self._under_way), None)
        return self._store.end_offset if oldest is None else oldest.place

    def begin(self, queue: PoppedQueue, init_mode: int, now_ms: int) -> int:
        """Returns the offset at which a pop begins that comes now; a group without an offset gets
        one by `init_mode`, and a reset is carried out."""
        topic, group, queue_id = queue
        reset = self._offsets.take_reset(group, topic, queue_id)
        if reset is not None:
            self._order.clear(queue)
            self._in_flight.forget(queue, now_ms)
            self.move(queue, reset)
            return reset
        offset = self._offsets.query(group, topic, queue_id)
        if offset < 0:
            # It may have had one before the topic was deleted.
            self._in_flight.forget(queue, now_ms)
            offset = self._first(queue, init_mode)
            self.commit(queue, offset)
        return self._behind_claims(queue, offset)

    def peek(self, queue: PoppedQueue) -> int:
        """Returns the offset at which the next pop begins, as far as that can be told without
        changing anything."""
        topic, group, queue_id = queue
        offset = self._offsets.query(group, topic, queue_id)
        if offset < 0:
            offset = self._store.min_queue_offset(topic, queue_id)
        return self._behind_claims(queue, offset)

    def end(self, queue: PoppedQueue) -> int:
        """Returns the offset behind the last message of the queue."""
        return self._store.max_queue_offset(queue[0], queue[2])

    def commit(self, queue: PoppedQueue, offset: int) -> None:
        """Sets the group's offset."""
        topic, group, queue_id = queue
        self._offsets.commit(group, topic, queue_id, offset, "pop")

    def move(self, queue: PoppedQueue, offset: int) -> None:
        """Sets the group's offset, whatever is claimed: the queue has other offsets, or the group
        was reset."""
        self._claims.pop(queue, None)
        self._passed.pop(queue, None)
        self.commit(queue, offset)

    def claim(self, queue: PoppedQueue, start: int, end: int) -> ClaimedRange:
        """Makes the next pop begin at `end`."""
        since, passed = self._passed.pop(queue, (start, start))
        claim = ClaimedRange(
            queue, start, end, since if passed == start else start, self._store.end_offset
        )
        self._claims.setdefault(queue, deque()).append(claim)
        self._under_way[claim] = None
        return claim

    def pass_over(self, queue: PoppedQueue, start: int, end: int) -> None:
        """Makes the next pop begin at `end`: there is nothing in between for it, so that this needs
        no check point."""
        claim = self.claim(queue, start, end)
        if len(self._passed) >= MOST_PASSED:
            self._passed.clear()
        self._passed[queue] = claim.since, end
        self.stored(claim)

    def stored(self, claim: ClaimedRange) -> None:
        """Notes that the messages of `claim` may be consumed; the group's offset follows."""
        claim.is_stored = True
        self._under_way.pop(claim, None)
        claims = self._claims.get(claim.queue)
        if claims is None or claim not in claims:
            return
        topic, group, queue_id = claim.queue
        end = None
        while claims and claims[0].is_stored:
            end = claims.popleft().end
        if not claims:
            del self._claims[claim.queue]
        if end is not None and not self._offsets.has_reset(group, topic, queue_id):
            self.commit(claim.queue, end)
        self._ended()

    def failed(self, claim: ClaimedRange) -> None:
        """Takes back `claim`: its messages, and those behind them, are popped again."""
        self._under_way.pop(claim, None)
        claims = self._claims.get(claim.queue)
        if claims is None or claim not in claims:
            return
        while (last := claims.pop()) is not claim:
            self._under_way.pop(last, None)
        if not claims:
            del self._claims[claim.queue]
        self._ended()

    def all_stored(self) -> Deferred[None]:
        """Fires once no claim waits for its check point."""
        return self._idle.wait() if self._claims else succeed(None)

    def _ended(self) -> None:
        if self._idle and not self._claims:
            self._idle.fire(None)

    def clear(self) -> None:
        """Forgets all claims: the role is over."""
        self._claims.clear()
        self._under_way.clear()
        self._passed.clear()

    def _behind_claims(self, queue: PoppedQueue, offset: int) -> int:
        claims = self._claims.get(queue)
        return max(offset, claims[-1].end) if claims else max(offset, 0)

    def _first(self, queue: PoppedQueue, init_mode: int) -> int:
        """Returns where a group begins that has no offset."""
        topic, _, queue_id = queue
        first = self._store.min_queue_offset(topic, queue_id)
        if init_mode == FROM_OLDEST or topic.startswith(RETRY_PREFIX):
            return first
        if self._config.init_pop_offset_by_check_msg_in_mem and first <= 0:
            units = self._store.queue_units(topic, queue_id, 0, 1)
            end, cached = self._store.end_offset, self._store.cached_bytes
            if units and end - units[0].position <= cached:
                return 0
        return max(self._store.max_queue_offset(topic, queue_id) - 1, 0)
