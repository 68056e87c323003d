"""Takes messages out of queues for one pop, and hides them from all others."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from rocketmq_tw.broker.interfaces import GetStatus, IMessageStore, MessageFilter, QueueRead
from rocketmq_tw.broker.pop.check_points import new_check_point
from rocketmq_tw.broker.pop.extra_info import ExtraInfo, OffsetInfos, kind_of
from rocketmq_tw.broker.pop.order import OrderBook
from rocketmq_tw.broker.pop.pending import InFlight
from rocketmq_tw.broker.pop.positions import Claim, PoppedQueue, Positions
from rocketmq_tw.broker.tables.offsets.table import OffsetTable
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.message import properties as props
from rocketmq_tw.message.layout import fields
from rocketmq_tw.message.names import RETRY_PREFIX
from rocketmq_tw.message.properties import join_properties, parse_properties
from rocketmq_tw.message.record import decode_records, encode_record
from rocketmq_tw.store.multi_dispatch import has_offsets, offset_in
from rocketmq_tw.wire.bodies.pop import PopCheckPoint

#: `init_mode` of a pop: where a group begins that has no offset.
FROM_OLDEST = 0
_NO_LIMIT = 0x7FFFFFFF
_SIZE_AND_OFFSET = fields("size", "queue_offset")

#: The offset is none of the queue's, and the read says which one is.
_MISPLACED = frozenset(
    {GetStatus.OFFSET_TOO_SMALL, GetStatus.OFFSET_OVERFLOW_BADLY, GetStatus.OFFSET_FOUND_NULL}
)
#: Nothing that is wanted was there: the group goes on behind it.
_PASSED_OVER = frozenset(
    {
        GetStatus.NO_MATCHED_MESSAGE,
        GetStatus.OFFSET_FOUND_NULL,
        GetStatus.MESSAGE_WAS_REMOVING,
        GetStatus.NO_MATCHED_LOGIC_QUEUE,
    }
)


class Wanted(NamedTuple):
    """What one pop asks for; times in ms."""

    topic: str
    group: str
    max_count: int
    invisible_time: int
    init_mode: int
    is_orderly: bool
    attempt_id: str | None
    filter: MessageFilter
    pop_time: int
    revive_queue_id: int


class Popped:
    """What one pop has taken so far. `points`: check points that must be stored before it is
    answered, with the claims that they stand for; `rest`: messages that it left behind."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.count = 0
        self.rest = 0
        self.infos = OffsetInfos()
        self.points: list[tuple[PopCheckPoint, Claim]] = []

    @property
    def data(self) -> bytes:
        return b"".join(self.parts)


class PopReads:
    """`told` is called with topic, group, messages, bytes and seconds of each read, `ordered` with
    each queue that gave some to an orderly group."""

    def __init__(
        self,
        config: BrokerConfig,
        store: IMessageStore,
        offsets: OffsetTable,
        positions: Positions,
        order: OrderBook,
        in_flight: InFlight,
        told: Callable[[str, str, int, int, float], None],
        ordered: Callable[[PoppedQueue], None],
        seconds: Callable[[], float],
    ) -> None:
        self._config = config
        self._store = store
        self._offsets = offsets
        self._positions = positions
        self._order = order
        self._in_flight = in_flight
        self._told = told
        self._ordered = ordered
        self._seconds = seconds

    def begin(self, queue: PoppedQueue) -> int:
        """Where the next pop of a queue begins, without changing anything."""
        topic, group, queue_id = queue
        offset = self._offsets.query(group, topic, queue_id)
        if offset < 0:
            offset = self._store.min_queue_offset(topic, queue_id)
        return max(offset, self._positions.next(queue) or 0)

    def take(self, wanted: Wanted, topic: str, queue_id: int, popped: Popped) -> None:
        """Adds messages of one queue to `popped`, as many as there is room for."""
        queue = (topic, wanted.group, queue_id)
        offset = self._offset(queue, wanted)
        end = self._store.max_queue_offset(topic, queue_id)
        config = self._config
        if wanted.is_orderly and self._order.is_blocked(
            queue, wanted.attempt_id, wanted.invisible_time
        ):
            # Those behind it wait with it, so they are not left for another pop.
            return
        too_many = config.enable_pop_message_threshold and (
            self._in_flight.of(queue) > config.pop_inflight_message_threshold
        )
        if too_many or popped.count >= wanted.max_count or end == offset:
            popped.rest += max(end - offset, 0)
            return
        began = self._seconds()
        offset, read = self._read(wanted, queue, offset, wanted.max_count - popped.count)
        took = self._seconds() - began
        self._told(topic, wanted.group, read.messages, len(read.data), took)
        if read.messages:
            self._hide(wanted, queue, offset, read, popped)
        elif read.status in _PASSED_OVER and read.next_offset > -1:
            if wanted.is_orderly:
                self._commit(queue, read.next_offset)
            else:
                claim = self._positions.claim(queue, offset, read.next_offset)
                self._positions.stored(claim)
        popped.rest += max(read.max_offset - read.next_offset, 0)

    def _read(
        self, wanted: Wanted, queue: PoppedQueue, offset: int, count: int
    ) -> tuple[int, QueueRead]:
        topic, _, queue_id = queue
        read = self._store.read_queue(topic, queue_id, offset, count, _NO_LIMIT, wanted.filter)
        if read.status in _MISPLACED and read.next_offset != offset:
            offset = read.next_offset
            self._positions.forget(queue)
            self._commit(queue, offset)
            read = self._store.read_queue(topic, queue_id, offset, count, _NO_LIMIT, wanted.filter)
        return offset, read

    def _hide(
        self, wanted: Wanted, queue: PoppedQueue, start: int, read: QueueRead, popped: Popped
    ) -> None:
        topic, group, queue_id = queue
        found = _offsets_in(topic, read.data)
        if wanted.is_orderly:
            counts = self._order.popped(
                queue, wanted.attempt_id, wanted.pop_time, wanted.invisible_time, found
            )
            popped.infos.add_counts(topic, queue_id, counts)
            least = min((count for _, count in counts), default=0)
            popped.infos.add_least_count(topic, queue_id, least if len(counts) == len(found) else 0)
            self._commit(queue, start)
            self._ordered(queue)
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
        popped.count += read.messages
        if not topic.startswith(RETRY_PREFIX) or (
            self._config.pop_response_return_actual_retry_topic
        ):
            popped.parts.append(read.data)
        else:
            popped.parts.append(self._as_original(wanted, topic, start, read.data))

    def _as_original(self, wanted: Wanted, topic: str, start: int, data: bytes) -> bytes:
        """Messages of a retry topic as those of the topic that is popped, with the extra info that
        tells where they are; as they are where that has no room, which clients understand too."""
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

    # Offsets

    def _offset(self, queue: PoppedQueue, wanted: Wanted) -> int:
        topic, group, queue_id = queue
        reset = self._offsets.take_reset(group, topic, queue_id)
        if reset is not None:
            self._order.clear(queue)
            self._positions.forget(queue)
            self._in_flight.forget(queue, wanted.pop_time)
            self._commit(queue, reset)
            return reset
        offset = self._offsets.query(group, topic, queue_id)
        if offset < 0:
            # It may have had one before the topic was deleted.
            self._in_flight.forget(queue, wanted.pop_time)
            offset = self._first(queue, wanted.init_mode)
            self._commit(queue, offset)
        return max(offset, self._positions.next(queue) or 0)

    def _first(self, queue: PoppedQueue, init_mode: int) -> int:
        """Where a group begins that has no offset."""
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

    def _commit(self, queue: PoppedQueue, offset: int) -> None:
        topic, group, queue_id = queue
        self._offsets.commit(group, topic, queue_id, offset, "pop")


def _offsets_in(topic: str, data: bytes) -> list[int]:
    """The offset of each record in the queue of `topic` that it was read from."""
    if has_offsets(data):
        return [offset_in(topic, message) for message in decode_records(data)]
    found = []
    position = 0
    while position < len(data):
        size, offset = _SIZE_AND_OFFSET.unpack_from(data, position)
        found.append(offset)
        position += size
    return found
