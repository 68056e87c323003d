"""What the end of the log, before it is cut, says of popped messages holds no more.

A check point is dealt with by acknowledgements, by messages of retry topics, or by check points
for a later time. Those that are cut off leave it open: the revive group goes back to it. What was
acknowledged in front of the cut stays so. And a message whose check point is cut off is to be
popped again.
"""

from __future__ import annotations

from collections.abc import Iterator

from rocketmq_tw.broker.assembly.truncation import LogCut
from rocketmq_tw.broker.pop.check_points import (
    ACK_TAG,
    BATCH_ACK_TAG,
    CHECK_POINT_TAG,
    REVIVE_GROUP,
    PoppedQueue,
    popped_offsets,
)
from rocketmq_tw.broker.tables.offsets.table import OffsetTable
from rocketmq_tw.message import properties as props
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.message.names import RETRY_PREFIX, pop_retry_topic
from rocketmq_tw.message.properties import number, parse_properties
from rocketmq_tw.message.record import RecordHead
from rocketmq_tw.store.interface import IMessageStore
from rocketmq_tw.wire.bodies.base import decode_body
from rocketmq_tw.wire.bodies.pop import AckMsg, BatchAckMsg, PopCheckPoint
from rocketmq_tw.wire.errors import BodyError

#: Queues that are looked at in one step, and messages of a revive queue.
SLICE = 500
STEPS_BACK = 50
#: Messages of one revive queue that are looked through: clients may name any time.
MOST_BACK = 1_000_000
#: By so much clocks may have been set back between a pop and the check point's place in the log.
CLOCK_MS = 60_000

#: A retry topic and the unique id of a message there.
_Revived = tuple[str, str | None]


class PoppedBehind:
    """Finds out about what a cut of the log takes away."""

    def __init__(
        self, store: IMessageStore, offsets: OffsetTable, revive_topic: str, cut: LogCut
    ) -> None:
        self._store = store
        self._offsets = offsets
        self._topic = revive_topic
        self._cut = cut
        cut.need_messages_of(revive_topic)
        cut.observe(self._see)
        #: What was popped when, of which check points are dealt with there.
        self._named: set[tuple[PoppedQueue, int]] = set()
        self._named_since: int | None = None
        #: What was revived there -> when it was popped at the earliest.
        self._revived: dict[_Revived, int] = {}
        #: Of each queue the first message with a check point there -> its pop time.
        self._popped: dict[PoppedQueue, dict[int, int]] = {}
        #: Messages that had another check point before.
        self._hidden: set[tuple[PoppedQueue, int]] = set()

    def take_back(self, queue_count: int) -> Iterator[None]:
        """Takes offsets back to what is not dealt with in front of that place, in steps. Nothing is
        popped or revived meanwhile."""
        self._named_since = min((popped_ms for _, popped_ms in self._named), default=None)
        for queue_id in range(queue_count):
            yield from self._queue_back(queue_id)
        for count, (queue, popped) in enumerate(self._popped.items(), 1):
            self._pop_again(queue, popped)
            if count % SLICE == 0:
                yield

    def _see(self, head: RecordHead) -> None:
        if head.topic == self._topic:
            message = self._store.message_at(head.physical_offset)
            if message is not None:
                self._see_revive_message(message)
        elif head.topic.startswith(RETRY_PREFIX):
            properties = parse_properties(head.properties)
            popped_ms = number(properties.get(props.FIRST_POP_TIME))
            if popped_ms is not None:
                revived = (head.topic, properties.get(props.UNIQ_KEY))
                self._revived[revived] = min(popped_ms, self._revived.get(revived, popped_ms))

    def _see_revive_message(self, message: StoredMessage) -> None:
        point = _decode(message)
        if isinstance(point, PopCheckPoint):
            queue, offsets = _queue_of(point), popped_offsets(point)
            if point.re_put_times:
                self._named.add((queue, point.pop_time))
            elif offsets:
                self._popped.setdefault(queue, {}).setdefault(offsets[0], point.pop_time)
        elif point is not None:
            queue = _queue_of(point)
            self._named.add((queue, point.pop_time))
            popped = self._popped.get(queue, {}).get(point.ack_offset)
            if popped is not None and point.pop_time < popped:
                self._hidden.add((queue, point.ack_offset))

    def _queue_back(self, queue_id: int) -> Iterator[None]:
        store, topic = self._store, self._topic
        known = self._offsets.query(REVIVE_GROUP, topic, queue_id)
        back = min(known, self._cut.end_of(topic, queue_id) - 1)
        revived = dict(self._revived)
        since = self._since(revived)
        least = max(store.min_queue_offset(topic, queue_id), back - MOST_BACK)
        for offset in range(back, least - 1, -1):
            if since is None:
                break
            message = self._cut.message(topic, queue_id, offset)
            if message is not None:
                if message.store_timestamp < since - CLOCK_MS:
                    break
                point = _decode(message)
                if isinstance(point, PopCheckPoint) and self._is_open(point, revived):
                    back = offset - 1
            if offset % STEPS_BACK == 0:
                since = self._since(revived)
                yield
        if back < known:
            self._offsets.commit(REVIVE_GROUP, topic, queue_id, back, "the broker")

    def _since(self, revived: dict[_Revived, int]) -> int | None:
        """When the first of all that is looked for was popped; None where there is nothing."""
        times = [] if self._named_since is None else [self._named_since]
        return min([*times, *revived.values()], default=None)

    def _is_open(self, point: PopCheckPoint, revived: dict[_Revived, int]) -> bool:
        """Whether some of it is dealt with behind the cut; `revived` is less by what it explains,
        for a message's next revival came from its next check point."""
        if (_queue_of(point), point.pop_time) in self._named:
            return True
        topic, group = point.topic or "", point.group or ""
        topics = {topic, pop_retry_topic(topic, group, 1), pop_retry_topic(topic, group, 2)}
        if not any(revived_topic in topics for revived_topic, _ in revived):
            return False
        found = set()
        for offset in popped_offsets(point):
            units = self._store.queue_units(topic, point.queue_id, offset, 1)
            message = self._store.message_at(units[0].position) if units else None
            if message is None:
                # It is not in its queue yet: the check point may be one of them.
                return True
            unique_id = parse_properties(message.properties).get(props.UNIQ_KEY)
            found |= {(name, unique_id) for name in topics} & revived.keys()
        for claim in found:
            del revived[claim]
        return bool(found)

    def _pop_again(self, queue: PoppedQueue, popped: dict[int, int]) -> None:
        offsets = [offset for offset in popped if (queue, offset) not in self._hidden]
        topic, group, queue_id = queue
        known = self._offsets.of(group, topic).get(queue_id)
        if offsets and known is not None and min(offsets) < known:
            self._offsets.commit(group, topic, queue_id, min(offsets), "the broker")


def _queue_of(point: PopCheckPoint | AckMsg) -> PoppedQueue:
    return point.topic or "", point.group or "", point.queue_id


def _decode(message: StoredMessage) -> PopCheckPoint | AckMsg | None:
    """What a message of the revive topic says; None where it says nothing."""
    tag = parse_properties(message.properties).get(props.TAGS)
    try:
        if tag == CHECK_POINT_TAG:
            return decode_body(PopCheckPoint, message.body)
        if tag == ACK_TAG:
            return decode_body(AckMsg, message.body)
        if tag == BATCH_ACK_TAG:
            return decode_body(BatchAckMsg, message.body)
    except BodyError:
        # The revival passes it over too.
        pass
    return None
