"""The messages of the revive topic: check points of popped messages, and their acknowledgements
(docs/formats/pop.md).

Stock's timer brings a check point into the revive topic when it is nearly due, and an
acknowledgement when its check point is. Here both go there at once, in the order in which they
were made, with the time of that as the time of delivery: a broker that reads the topic, stock's
too, knows that by then it has seen all that was acknowledged before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from rocketmq_tw.broker.pop.revive_counts import ReviveCounts
from rocketmq_tw.broker.writing.sink import IMessageSink, PutResult
from rocketmq_tw.message import properties as props
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.message.names import SYSTEM_GROUP_PREFIX
from rocketmq_tw.message.properties import join_properties, number, parse_properties
from rocketmq_tw.runtime.listeners import Listeners
from rocketmq_tw.store.interface import IMessageStore
from rocketmq_tw.wire.bodies.base import decode_strict_body, encode_body
from rocketmq_tw.wire.bodies.pop import AckMsg, BatchAckMsg, PopCheckPoint, PutBack
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError

CHECK_POINT_TAG, ACK_TAG, BATCH_ACK_TAG = "ck", "ack", "bAck"
_TAGS = props.TAGS.encode() + b"\x01"
_SEPARATORS = str.maketrans({props.NAME_VALUE_SEPARATOR: "?", props.PROPERTY_SEPARATOR: "?"})
#: Ours: a group was put back. The revival passes over it.
PUT_BACK_TAG = "back"
#: The group whose offsets say how far the revive topic is dealt with.
REVIVE_GROUP = SYSTEM_GROUP_PREFIX + "REVIVE_GROUP"

#: The latest time that stock can read.
FOREVER_MS = (1 << 63) - 1

#: Topic, group, queue id.
PoppedQueue = tuple[str, str, int]
#: Names a check point: topic, group, queue id, start offset, pop time, broker name.
CheckPointKey = tuple[str, str, int, int, int, str]
#: All of such a name but the topic and the group.
PoppedAt = tuple[int, int, int, str]

#: What the revive queues are made of.
ReviveRecord = PopCheckPoint | AckMsg


def revive_queue_ids(store: IMessageStore, topic: str, configured: int) -> list[int]:
    """Returns the revive queues that are read: as many as are `configured` (`reviveQueueNum`), and
    those that the store has from when there were more."""
    return sorted({*range(configured), *store.queue_ids(topic)})


def is_revive_queue(store: IMessageStore, topic: str, configured: int, queue_id: int) -> bool:
    """Returns whether `revive_queue_ids` has a queue."""
    return 0 <= queue_id < configured or store.max_queue_offset(topic, queue_id) > 0


def check_point_key(point: ReviveRecord, own_name: str) -> CheckPointKey:
    """Returns the name of a check point, which its acknowledgements have too; `own_name` is the
    broker's, for one that names no broker."""
    return (
        point.topic or "",
        point.group or "",
        point.queue_id,
        point.start_offset,
        point.pop_time,
        point.broker_name or own_name,
    )


def popped_at(key: CheckPointKey) -> PoppedAt:
    """Returns what check points have in common that differ in nothing but the topic or group."""
    return key[2:]


def is_local(point: PopCheckPoint, own_name: str) -> bool:
    """Returns whether the messages of a check point are in the log of the broker `own_name`; an
    acting master of another group may have sent it here."""
    return not point.broker_name or point.broker_name == own_name


def new_check_point(
    topic: str,
    group: str,
    queue_id: int,
    offsets: Sequence[int],
    start: int,
    pop_time: int,
    invisible_time: int,
    broker_name: str,
) -> PopCheckPoint:
    """Returns a check point of the messages at `offsets`, at most 32; they are hidden for
    `invisible_time` ms from `pop_time` on, which is in ms too. `start` is where the pop began."""
    invisible_time = min(invisible_time, FOREVER_MS - max(pop_time, 0))
    return PopCheckPoint(
        broker_name=broker_name,
        group=group,
        offset_diffs=[offset - start for offset in offsets],
        invisible_time=invisible_time,
        count=len(offsets),
        pop_time=pop_time,
        queue_id=queue_id,
        revive_time=pop_time + invisible_time,
        start_offset=start,
        topic=topic,
    )


def popped_offsets(point: PopCheckPoint) -> list[int]:
    """Returns the queue offsets of a check point's messages."""
    return [point.start_offset + distance for distance in popped_distances(point)]


def popped_distances(point: PopCheckPoint) -> Sequence[int]:
    """Returns how far each of a check point's messages is behind its start."""
    count, diffs = max(point.count, 0), point.offset_diffs
    if not diffs:
        return range(count)
    if len(diffs) > count:
        diffs = diffs[:count]
    # Mostly nothing was left out in between, and a range finds a distance at once.
    consecutive = range(len(diffs))
    return consecutive if diffs == list(consecutive) else diffs


def acknowledged_offsets(ack: AckMsg) -> list[int]:
    """Returns the queue offsets of the messages that an acknowledgement is for."""
    return ack.ack_offsets if isinstance(ack, BatchAckMsg) else [ack.ack_offset]


def decode_revive_message(properties: bytes, body: bytes) -> ReviveRecord | None:
    """Returns the body of a message of the revive topic, made of its stored properties and body;
    None where its tag is none of the three. Raises `BodyError` where it is damaged: brokers write
    strict JSON, and what anybody else sent there would take long to read in a tolerant way."""
    tag = _tag_of(properties)
    if tag == ACK_TAG:
        return decode_strict_body(AckMsg, body)
    if tag == CHECK_POINT_TAG:
        return decode_strict_body(PopCheckPoint, body)
    if tag == BATCH_ACK_TAG:
        return decode_strict_body(BatchAckMsg, body)
    return None


def _tag_of(properties: bytes) -> str | None:
    if properties.startswith(_TAGS) and properties.find(_TAGS, len(_TAGS)) < 0:
        # As brokers write it: the only tag, in front.
        return str(properties[len(_TAGS) :].partition(b"\x02")[0], "utf-8", "replace") or None
    return parse_properties(properties).get(props.TAGS)


def claimed_part(properties: Mapping[str, str]) -> tuple[int, int] | None:
    """Returns which part of its queue the pop took whose check point has these properties: its
    first offset, and the one behind it. None where they do not say so."""
    texts = properties.get(props.POP_CLAIM, "").split(" ")
    if len(texts) != 2:
        return None
    begin, end = number(texts[0]), number(texts[1])
    return None if begin is None or end is None else (begin, end)


class ReviveLog:
    """Puts check points and acknowledgements into the revive topic, each into the revive queue that
    its pop was given. `store_host` tells the broker's own address."""

    def __init__(
        self,
        topic: str,
        sink: IMessageSink,
        now_ms: Callable[[], int],
        store_host: Callable[[], tuple[str, int]],
        counts: ReviveCounts,
    ) -> None:
        self.topic = topic
        #: Told of each check point and acknowledgement before it is stored, and once more where
        #: it could not be.
        self.putting: Listeners[ReviveRecord] = Listeners("something popped is noted")
        self.not_stored: Listeners[ReviveRecord] = Listeners("a note is not stored")
        #: Told of each check point once it is stored.
        self.check_point_stored: Listeners[PopCheckPoint] = Listeners("a check point is stored")
        #: Told of each acknowledgement with its revive queue, before it is stored.
        self.acknowledged: Listeners[AckMsg, int] = Listeners("messages are acknowledged")
        #: Told of each message that goes into the topic, and of what is read of it.
        self.counts = counts
        self._sink = sink
        self._now_ms = now_ms
        self._store_host = store_host

    def put_check_point(
        self, point: PopCheckPoint, revive_queue_id: int, claimed: tuple[int, int] | None = None
    ) -> Deferred[PutResult]:
        """Stores a check point; returns what `IMessageSink.put` returns. `claimed` is of a pop: the
        part of the queue that it took, with what its filter left out."""
        key = (
            f"{point.topic}@{point.queue_id}@{point.start_offset}@{point.group}@{point.pop_time}"
            f"@{point.broker_name}@{CHECK_POINT_TAG}"
        )
        more = {} if claimed is None else {props.POP_CLAIM: f"{claimed[0]} {claimed[1]}"}
        self.putting.tell(point)
        put = self._put(revive_queue_id, CHECK_POINT_TAG, key, encode_body(point), more)
        self.counts.put(point, put)
        if self.check_point_stored:
            put.addCallback(self._stored, point)
        return put.addBoth(self._ended, point)

    def put_ack(self, ack: AckMsg, revive_queue_id: int) -> Deferred[PutResult]:
        """Stores the acknowledgement of one message, or of several where it is a `BatchAckMsg`."""
        self.acknowledged.tell(ack, revive_queue_id)
        self.putting.tell(ack)
        tag = BATCH_ACK_TAG if isinstance(ack, BatchAckMsg) else ACK_TAG
        key = (
            f"{ack.topic}@{ack.queue_id}@{ack.ack_offset}@{ack.group}@{ack.pop_time}"
            f"@{ack.broker_name}@{ACK_TAG}"
        )
        put = self.counts.put(ack, self._put(revive_queue_id, tag, key, encode_body(ack)))
        return put.addBoth(self._ended, ack)

    def replace(self, ack: AckMsg, point: PopCheckPoint, revive_queue_id: int) -> Deferred[None]:
        """Stores a check point, and behind it the acknowledgement of the one that it takes the
        place of: at no time neither has the message. Fails as `all_stored` does."""
        if self._sink.is_one_log:
            # Both in one write.
            puts = partial(self.put_check_point, point), partial(self.put_ack, ack)
            return all_stored(put(revive_queue_id) for put in puts)
        stored = all_stored([self.put_check_point(point, revive_queue_id)])
        return stored.addCallback(lambda _: all_stored([self.put_ack(ack, revive_queue_id)]))

    def at_turn_end(self, put: Callable[[], None]) -> Deferred[Any]:
        """Calls `put`, which puts acknowledgements, at the end of this reactor turn, once all else
        of it is in the sink: one write takes them with that. Fails at once, and without a call,
        where the sink has no such write."""
        return self._sink.at_turn_end(put)

    def put_mark(self, back: PutBack) -> Deferred[PutResult]:
        """Stores that a group was put back."""
        key = (
            f"{back.topic}@{back.queue_id}@{back.offset}@{back.group}@{self._now_ms()}"
            f"@{PUT_BACK_TAG}"
        )
        return self._put(0, PUT_BACK_TAG, key, encode_body(back))

    def _put(
        self,
        queue_id: int,
        tag: str,
        key: str,
        body: bytes,
        more: Mapping[str, str] = MappingProxyType({}),
    ) -> Deferred[PutResult]:
        now, host = self._now_ms(), self._store_host()
        # Names in it are those that clients gave: none may begin another property.
        key = key.translate(_SEPARATORS)
        properties = {props.TAGS: tag, props.TIMER_DELIVER_MS: str(now), props.UNIQ_KEY: key}
        properties |= more
        message = StoredMessage(
            topic=self.topic,
            queue_id=queue_id,
            body=body,
            properties=join_properties(properties),
            born_timestamp=now,
            born_host=host,
            store_host=host,
        )
        return self._sink.put(message, wait=True)

    def _ended(self, result: PutResult | Failure, record: ReviveRecord) -> PutResult | Failure:
        if isinstance(result, Failure) or not result.is_stored:
            self.not_stored.tell(record)
        return result

    def _stored(self, result: PutResult, point: PopCheckPoint) -> PutResult:
        if result.is_stored:
            self.check_point_stored.tell(point)
        return result


def check_stored(result: PutResult) -> None:
    """Raises `RequestError` with SYSTEM_ERROR where a put ended and nothing is stored."""
    if not result.is_stored:
        raise _not_stored(result)


def _not_stored(result: PutResult) -> RequestError:
    why = f"it could not be stored: {result.code.name}"
    return RequestError(ResponseCode.SYSTEM_ERROR, why)


def all_stored(puts: Iterable[Deferred[PutResult]]) -> Deferred[None]:
    """Fires once all of `puts` are stored; they are made one by one, and none behind one that is
    refused at once. Fails, once all that were made have ended, with the `RequestError` of one that
    was refused, or with SYSTEM_ERROR where one could not be stored."""
    ended: Deferred[None] = Deferred()
    error: Failure | None = None
    left = 1

    def one_ended(result: PutResult | Failure | None) -> None:
        nonlocal left, error
        left -= 1
        if isinstance(result, Failure):
            error = result
        elif result is not None and not result.is_stored:
            error = Failure(_not_stored(result))
        if not left:
            ended.callback(None) if error is None else ended.errback(error)

    for put in puts:
        left += 1
        put.addBoth(one_ended)
        if error is not None:
            break
    one_ended(None)
    return ended
