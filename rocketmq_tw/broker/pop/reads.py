"""Takes messages out of queues for a pop, and hides them from all others (docs/formats/pop.md)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from rocketmq_tw.broker.pop.check_points import (
    PoppedQueue,
    ReviveLog,
    all_stored,
    new_check_point,
)
from rocketmq_tw.broker.pop.order import OrderBook
from rocketmq_tw.broker.pop.pending import InFlight
from rocketmq_tw.broker.pop.positions import ClaimedRange, Positions
from rocketmq_tw.broker.stats.part import Stats
from rocketmq_tw.broker.writing.sink import PutResult
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.message import properties as props
from rocketmq_tw.message.extra_info import ExtraInfo, OffsetInfos, kind_of
from rocketmq_tw.message.layout import fields
from rocketmq_tw.message.names import RETRY_PREFIX
from rocketmq_tw.message.properties import join_properties, parse_properties
from rocketmq_tw.message.record import decode_records, encode_record
from rocketmq_tw.store.interface import (
    EVERY_MESSAGE,
    MOST_ANSWER_BYTES,
    GetStatus,
    IMessageStore,
    MessageFilter,
    QueueRead,
)
from rocketmq_tw.store.multi_dispatch import has_offsets, offset_in
from rocketmq_tw.wire.bodies.pop import PopCheckPoint
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError

#: Check points that wait at once; more would take more and more memory.
MOST_PENDING = 1_000_000
_SIZE_AND_OFFSET = fields("size", "queue_offset")

#: The queue has no such offset; the read says which one it has.
_MISPLACED = frozenset(
    {GetStatus.OFFSET_TOO_SMALL, GetStatus.OFFSET_OVERFLOW_BADLY, GetStatus.OFFSET_FOUND_NULL}
)
#: The read found nothing that is wanted: the group goes on behind it.
_PASSED_OVER = frozenset(
    {
        GetStatus.NO_MATCHED_MESSAGE,
        GetStatus.OFFSET_FOUND_NULL,
        GetStatus.MESSAGE_WAS_REMOVING,
        GetStatus.NO_MATCHED_LOGIC_QUEUE,
    }
)


class Wanted(NamedTuple):
    """What one pop asks for; times in ms. `came`: when it came, by the elapsed time."""

    topic: str
    group: str
    max_count: int
    invisible_time: int
    init_mode: int
    is_orderly: bool
    attempt_id: str | None
    came: int
    filter: MessageFilter
    pop_time: int
    revive_queue_id: int


class Popped:
    """What one pop has taken so far. `points`: check points that must be stored before it is
    answered, with the claims that they stand for; `rest`: messages that it left behind, and
    `held_back` those of them that no pop gets now, since too many are in flight."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        #: Bytes of the parts.
        self.size = 0
        #: Whether the next message has no room in the answer.
        self.is_full = False
        self.count = 0
        self.rest = 0
        self.held_back = 0
        self.infos = OffsetInfos()
        self.points: list[tuple[PopCheckPoint, ClaimedRange]] = []

    @property
    def data(self) -> bytes:
        """The records of all messages, as clients get them."""
        return b"".join(self.parts)

    def add(self, records: bytes, count: int) -> None:
        """Takes `count` messages more."""
        self.parts.append(records)
        self.size += len(records)
        self.count += count


class QueueReads:
    """Reads messages of queues, and counts each read in `stats`."""

    def __init__(self, store: IMessageStore, stats: Stats) -> None:
        self._store = store
        self._pulled = stats.pulled
        self._seconds = stats.seconds

    def read(
        self,
        queue: PoppedQueue,
        offset: int,
        count: int,
        size: int,
        wanted: MessageFilter = EVERY_MESSAGE,
        *,
        is_first: bool,
    ) -> tuple[int, QueueRead | None]:
        """Reads up to `count` messages and `size` bytes from `offset` on; where the queue has no
        such offset, from the one that it has instead. Returns the offset with what was read; None
        where the next message alone is larger and the answer has others: it is not `is_first`."""
        topic, group, queue_id = queue
        began = self._seconds()
        read = self._store.read_queue(topic, queue_id, offset, count, size, wanted)
        if read.status in _MISPLACED and read.next_offset != offset:
            offset = read.next_offset
            read = self._store.read_queue(topic, queue_id, offset, count, size, wanted)
        if len(read.data) > size and not is_first:
            return offset, None
        took = self._seconds() - began
        self._pulled(topic, group, read.messages, len(read.data), took)
        return offset, read


class PopReads:
    """Takes messages for pops, and hides them from all others: by check points in `revive_log`, or
    by the order of an orderly group."""

    def __init__(
        self,
        config: BrokerConfig,
        reads: QueueReads,
        positions: Positions,
        order: OrderBook,
        in_flight: InFlight,
        revive_log: ReviveLog,
        pending: Callable[[], int],
    ) -> None:
        """`pending` tells how many check points wait for acknowledgements."""
        self._config = config
        self._reads = reads
        self._positions = positions
        self._order = order
        self._in_flight = in_flight
        self._revive_log = revive_log
        self._pending = pending

    def check_room(self) -> None:
        """Raises `RequestError` where too many check points wait for acknowledgements."""
        if self._pending() >= MOST_PENDING:
            raise RequestError(
                ResponseCode.SYSTEM_BUSY,
                f"{MOST_PENDING} check points wait for acknowledgements: pop more later",
            )

    def take(self, wanted: Wanted, queue: PoppedQueue, popped: Popped) -> None:
        """Adds messages of a queue to `popped`, as many as there is room for."""
        offset = self._positions.begin(queue, wanted.init_mode, wanted.pop_time)
        end = self._positions.end(queue)
        if wanted.is_orderly and self._order.is_blocked(
            queue, wanted.attempt_id, wanted.invisible_time, wanted.came
        ):
            # Those behind it wait with it, so they are not left for another pop.
            return
        left = max(end - offset, 0)
        if left and self._has_too_many(queue):
            popped.rest += left
            popped.held_back += left
            return
        most, size = wanted.max_count - popped.count, MOST_ANSWER_BYTES - popped.size
        if most <= 0 or size <= 0 or popped.is_full or end == offset:
            popped.rest += left
            return
        start, read = self._reads.read(
            queue, offset, most, size, wanted.filter, is_first=not popped.count
        )
        if start != offset:
            self._positions.move(queue, start)
        if read is None:
            popped.is_full = True
            popped.rest += max(end - start, 0)
            return
        if read.messages:
            self._hide(wanted, queue, start, read, popped)
        elif read.status in _PASSED_OVER and read.next_offset > -1:
            if wanted.is_orderly:
                self._positions.commit(queue, read.next_offset)
            else:
                self._positions.pass_over(queue, start, read.next_offset)
        popped.rest += max(read.max_offset - read.next_offset, 0)

    def _has_too_many(self, queue: PoppedQueue) -> bool:
        """Returns whether too many messages of the queue are in flight; `in_flight` tells when they
        are not any more."""
        config = self._config
        most = config.pop_inflight_message_threshold
        if not config.enable_pop_message_threshold or self._in_flight.of(queue) <= most:
            return False
        self._in_flight.wait_for_room(queue, most)
        return True

    def store(self, popped: Popped, revive_queue_id: int) -> Deferred[None]:
        """Fires once all check points of a pop are stored, so that it may be answered; fails with
        `RequestError` where one is not. What is stored of it is visible again in its time."""
        points = iter(popped.points)
        stored = all_stored(
            self._revive_log.put_check_point(
                point, revive_queue_id, (claim.since, claim.end)
            ).addBoth(self._ended, claim)
            for point, claim in points
        )
        for _, claim in points:
            # Not put, since another one was refused.
            self._positions.failed(claim)
        return stored.addErrback(_not_stored)

    def give_up(self, popped: Popped) -> None:
        """Takes back what a pop has taken that is not answered, since something failed: others pop
        it. What an orderly group would have got is hidden for its time."""
        for _, claim in reversed(popped.points):
            self._positions.failed(claim)

    def _ended(self, result: PutResult | Failure, claim: ClaimedRange) -> PutResult | Failure:
        if isinstance(result, PutResult) and result.is_stored:
            self._positions.stored(claim)
        else:
            self._positions.failed(claim)
        return result

    def _hide(
        self, wanted: Wanted, queue: PoppedQueue, start: int, read: QueueRead, popped: Popped
    ) -> None:
        topic, group, queue_id = queue
        found = _offsets_of(topic, start, read)
        if wanted.is_orderly:
            counts = self._order.popped(
                queue,
                wanted.attempt_id,
                wanted.pop_time,
                wanted.invisible_time,
                found,
                wanted.came,
            )
            popped.infos.add_counts(topic, queue_id, counts)
            least = min((count for _, count in counts), default=0)
            popped.infos.add_least_count(topic, queue_id, least if len(counts) == len(found) else 0)
            self._positions.commit(queue, start)
        else:
            claim = self._positions.claim(queue, start, read.next_offset)
            point = new_check_point(
                topic,
                group,
                queue_id,
                found,
                start,
                wanted.pop_time,
                wanted.invisible_time,
                self._config.broker_name,
            )
            popped.points.append((point, claim))
        popped.infos.add(topic, queue_id, start, found)
        records = read.data
        if topic.startswith(RETRY_PREFIX) and not (
            self._config.pop_response_return_actual_retry_topic
        ):
            records = self._as_original(wanted, topic, start, records)
        popped.add(records, read.messages)

    def _as_original(self, wanted: Wanted, topic: str, start: int, data: bytes) -> bytes:
        """Returns the records of a retry topic rewritten to the popped topic, with the extra info
        that tells where they are. A record in which that has no room stays as it is, which clients
        understand too."""
        records = []
        for message in decode_records(data):
            info = ExtraInfo(
                start,
                wanted.pop_time,
                wanted.invisible_time,
                wanted.revive_queue_id,
                kind_of(topic),
                self._config.broker_name,
                message.queue_id,
                message.queue_offset,
            )
            properties = parse_properties(message.properties)
            properties.setdefault(props.POP_CK, str(info))
            joined = join_properties(properties)
            if len(joined) <= props.MAX_PROPERTIES_LENGTH:
                message.properties = joined
                message.topic = wanted.topic
            records.append(encode_record(message))
        return b"".join(records)


def _not_stored(failure: Failure) -> None:
    error = failure.value
    if not isinstance(error, RequestError):
        failure.raiseException()
    raise RequestError(
        ResponseCode.SYSTEM_ERROR, f"what was popped cannot be hidden from others: {error.remark}"
    ) from error


def _offsets_of(topic: str, start: int, read: QueueRead) -> Sequence[int]:
    """Returns the offset of each record in the queue of `topic` that was read from `start` on."""
    if read.messages == read.next_offset - start:
        # Nothing was left out, as nearly always.
        return range(start, read.next_offset)
    data = read.data
    if has_offsets(data):
        return [offset_in(topic, message) for message in decode_records(data)]
    found = []
    position = 0
    while position < len(data):
        size, offset = _SIZE_AND_OFFSET.unpack_from(data, position)
        found.append(offset)
        position += size
    return found
