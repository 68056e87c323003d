"""Takes back how far popped messages are dealt with, and groups have popped, before the log's end
is cut off.

A check point is dealt with by acknowledgements, by messages of retry topics, or by check points for
a later time. Where those are cut off it is open again, and the revive group goes back to it;
acknowledgements in front of the cut still count. A message whose check point is cut off is popped
again. Rules: docs/formats/pop.md, "Revival".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from rocketmq_tw.broker.assembly.truncation import LogCut
from rocketmq_tw.broker.pop.check_points import (
    REVIVE_GROUP,
    PoppedQueue,
    decode_revive_message,
    is_local,
    popped_offsets,
)
from rocketmq_tw.broker.tables.offsets.table import OffsetTable
from rocketmq_tw.message import properties as props
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.message.names import RETRY_PREFIX, pop_retry_topic
from rocketmq_tw.message.properties import number, parse_properties
from rocketmq_tw.message.record import RecordHead
from rocketmq_tw.store.interface import IMessageStore
from rocketmq_tw.wire.bodies.pop import AckMsg, PopCheckPoint
from rocketmq_tw.wire.errors import BodyError

#: Queues that one step goes back in, and messages of a revive queue that one step looks at.
_QUEUES_A_STEP = 500
_MESSAGES_A_STEP = 50
#: Messages of one revive queue that are looked through at most, since clients may name any time.
_MOST_BACK = 1_000_000
#: Milliseconds between a pop and the append of its check point at most.
CLOCK_MS = 60_000
#: Messages of a revive queue, one after the other, that are older than what is looked for, and in
#: front of which nothing younger is expected. Of them are those that were stored since the clock
#: was set back.
MOST_OLDER = 10_000

#: A retry topic and the unique id of a message there.
_Revived = tuple[str, str | None]


class _Revivals:
    """Messages that were revived behind a cut and that no check point explains yet."""

    def __init__(self, popped_ms: Mapping[_Revived, int]) -> None:
        #: When each was popped first, in ms.
        self.popped_ms = dict(popped_ms)
        #: How many there are of each retry topic.
        self.of_topic = Counter(topic for topic, _ in popped_ms)

    def remove(self, revived: _Revived) -> None:
        """Takes one out."""
        del self.popped_ms[revived]
        self.of_topic[revived[0]] -= 1


class PopRewind:
    """Takes back the offsets of the revive group, and of groups that pop, to what the log says once
    `cut` is made."""

    def __init__(
        self,
        store: IMessageStore,
        offsets: OffsetTable,
        revive_topic: str,
        own_name: str,
        cut: LogCut,
    ) -> None:
        self._store = store
        self._offsets = offsets
        self._topic = revive_topic
        self._cut = cut
        self._own_name = own_name
        cut.need_messages_of(revive_topic)
        cut.observe(self._observe)
        #: Queues and pop times of check points that records behind the cut deal with.
        self._dealt_with: set[tuple[PoppedQueue, int]] = set()
        self._oldest_dealt_with: int | None = None
        #: Messages that were revived behind the cut -> when they were popped first, in ms.
        self._revived: dict[_Revived, int] = {}
        #: Queue -> the first messages of check points behind the cut -> their pop times.
        self._popped: dict[PoppedQueue, dict[int, int]] = {}
        #: Messages whose check point behind the cut took the place of another one.
        self._had_another: set[tuple[PoppedQueue, int]] = set()

    def steps(self, queue_ids: Iterable[int]) -> Iterator[None]:
        """Takes offsets back, in steps, once `cut` was gone through; `queue_ids` are the revive
        queues. Nothing is popped or revived meanwhile."""
        self._oldest_dealt_with = min(
            (popped_ms for _, popped_ms in self._dealt_with), default=None
        )
        for queue_id in queue_ids:
            yield from self._rewind_queue(queue_id)
        for count, (queue, popped) in enumerate(self._popped.items(), 1):
            self._rewind_pops(queue, popped)
            if count % _QUEUES_A_STEP == 0:
                yield

    def _observe(self, head: RecordHead) -> None:
        if head.topic == self._topic:
            message = self._store.message_at(head.physical_offset)
            if message is not None:
                self._observe_revive_message(message)
        elif head.topic.startswith(RETRY_PREFIX):
            properties = parse_properties(head.properties)
            popped_ms = number(properties.get(props.FIRST_POP_TIME))
            if popped_ms is not None:
                revived = (head.topic, properties.get(props.UNIQ_KEY))
                self._revived[revived] = min(popped_ms, self._revived.get(revived, popped_ms))

    def _observe_revive_message(self, message: StoredMessage) -> None:
        point = _decode(message)
        if isinstance(point, PopCheckPoint):
            queue, offsets = _queue_of(point), popped_offsets(point)
            if point.re_put_times:
                self._dealt_with.add((queue, point.pop_time))
            elif offsets and is_local(point, self._own_name):
                self._popped.setdefault(queue, {}).setdefault(offsets[0], point.pop_time)
        elif point is not None:
            queue = _queue_of(point)
            self._dealt_with.add((queue, point.pop_time))
            popped = self._popped.get(queue, {}).get(point.ack_offset)
            if popped is not None and point.pop_time < popped:
                self._had_another.add((queue, point.ack_offset))

    def _rewind_queue(self, queue_id: int) -> Iterator[None]:
        store, topic = self._store, self._topic
        known = self._offsets.query(REVIVE_GROUP, topic, queue_id)
        back = min(known, self._cut.end_of(topic, queue_id) - 1)
        revived = _Revivals(self._revived)
        since, older = self._oldest_open_ms(revived), 0
        least = max(store.min_queue_offset(topic, queue_id), back - _MOST_BACK)
        for offset in range(back, least - 1, -1):
            if since is None:
                break
            message = self._cut.message(topic, queue_id, offset)
            if message is not None and message.store_timestamp < since - CLOCK_MS:
                older += 1
                if older == MOST_OLDER:
                    break
            elif message is not None:
                older = 0
                point = _decode(message)
                if isinstance(point, PopCheckPoint) and self._is_open(point, revived):
                    back = offset - 1
            if offset % _MESSAGES_A_STEP == 0:
                since = self._oldest_open_ms(revived)
                yield
        if back < known:
            self._offsets.commit(REVIVE_GROUP, topic, queue_id, back, "the broker")

    def _oldest_open_ms(self, revived: _Revivals) -> int | None:
        """Returns when the oldest message of an open check point was popped, in ms; None: there is
        none."""
        times = [] if self._oldest_dealt_with is None else [self._oldest_dealt_with]
        return min([*times, *revived.popped_ms.values()], default=None)

    def _is_open(self, point: PopCheckPoint, revived: _Revivals) -> bool:
        """Returns whether a check point is dealt with behind the cut, wholly or in part. What it
        explains is taken out of `revived`: a message's next revival came from its next check
        point."""
        if (_queue_of(point), point.pop_time) in self._dealt_with:
            return True
        topic, group = point.topic or "", point.group or ""
        topics = {topic, pop_retry_topic(topic, group, 1), pop_retry_topic(topic, group, 2)}
        if not any(revived.of_topic[each] for each in topics):
            return False
        if not is_local(point, self._own_name):
            # It may be one of them: the messages are not here.
            return True
        found = set()
        for offset in popped_offsets(point):
            units = self._store.queue_units(topic, point.queue_id, offset, 1)
            message = self._store.message_at(units[0].position) if units else None
            if message is None:
                # It is not in its queue yet: the check point may be one of them.
                return True
            unique_id = parse_properties(message.properties).get(props.UNIQ_KEY)
            found |= {(name, unique_id) for name in topics} & revived.popped_ms.keys()
        for key in found:
            revived.remove(key)
        return bool(found)

    def _rewind_pops(self, queue: PoppedQueue, popped: dict[int, int]) -> None:
        offsets = [offset for offset in popped if (queue, offset) not in self._had_another]
        topic, group, queue_id = queue
        known = self._offsets.of(group, topic).get(queue_id)
        if offsets and known is not None and min(offsets) < known:
            self._offsets.commit(group, topic, queue_id, min(offsets), "the broker")


def _queue_of(point: PopCheckPoint | AckMsg) -> PoppedQueue:
    return point.topic or "", point.group or "", point.queue_id


def _decode(message: StoredMessage) -> PopCheckPoint | AckMsg | None:
    """Returns the body of a message of the revive topic; None where it is of no kind or damaged."""
    try:
        return decode_revive_message(message.properties, message.body)
    except BodyError:
        # The revival skips it too.
        return None
