"""The messages of the revive topic: what was popped, and what was acknowledged.

Stock's timer brings a check point into the revive topic when it is nearly due, and an
acknowledgement when its check point is. Here both go there at once, in the order in which they
were made, with the time of that as the time of delivery: whoever reads the topic, stock's broker
too, knows that by then it has seen all that was acknowledged before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rocketmq_tw.message import properties as props
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.message.names import SYSTEM_GROUP_PREFIX
from rocketmq_tw.message.properties import join_properties
from rocketmq_tw.wire.bodies.base import encode_body
from rocketmq_tw.wire.bodies.pop import AckMsg, BatchAckMsg, PopCheckPoint

CHECK_POINT_TAG, ACK_TAG, BATCH_ACK_TAG = "ck", "ack", "bAck"
#: The group whose offsets say how far the revive topic is dealt with.
REVIVE_GROUP = SYSTEM_GROUP_PREFIX + "REVIVE_GROUP"

#: The latest time that stock can read.
FOREVER_MS = (1 << 63) - 1

#: Names a check point: topic, group, queue id, start offset, pop time, broker name.
CheckPointKey = tuple[str, str, int, int, int, str]


def check_point_key(point: PopCheckPoint | AckMsg, own_name: str) -> CheckPointKey:
    """What a check point and its acknowledgements have in common; `own_name` is the broker's, for
    one that names none."""
    return (
        point.topic or "",
        point.group or "",
        point.queue_id,
        point.start_offset,
        point.pop_time,
        point.broker_name or own_name,
    )


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
    """The messages at `offsets`, of which there are at most 32, are hidden until their time."""
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
    """The queue offsets of a check point's messages."""
    diffs = (point.offset_diffs or range(point.count))[: max(point.count, 0)]
    return [point.start_offset + diff for diff in diffs]


class ReviveMessages:
    """Makes the stored messages; `store_host` tells the broker's own address."""

    def __init__(
        self, topic: str, now_ms: Callable[[], int], store_host: Callable[[], tuple[str, int]]
    ) -> None:
        self.topic = topic
        self._now_ms = now_ms
        self._store_host = store_host

    def check_point(self, point: PopCheckPoint, revive_queue_id: int) -> StoredMessage:
        key = (
            f"{point.topic}@{point.queue_id}@{point.start_offset}@{point.group}@{point.pop_time}"
            f"@{point.broker_name}@{CHECK_POINT_TAG}"
        )
        return self._message(revive_queue_id, CHECK_POINT_TAG, key, encode_body(point))

    def ack(self, ack: AckMsg, revive_queue_id: int) -> StoredMessage:
        """Of one message, or of several where it is a `BatchAckMsg`."""
        tag = BATCH_ACK_TAG if isinstance(ack, BatchAckMsg) else ACK_TAG
        key = (
            f"{ack.topic}@{ack.queue_id}@{ack.ack_offset}@{ack.group}@{ack.pop_time}"
            f"@{ack.broker_name}@{ACK_TAG}"
        )
        return self._message(revive_queue_id, tag, key, encode_body(ack))

    def _message(self, queue_id: int, tag: str, key: str, body: bytes) -> StoredMessage:
        now, host = self._now_ms(), self._store_host()
        properties = {props.TAGS: tag, props.TIMER_DELIVER_MS: str(now), props.UNIQ_KEY: key}
        return StoredMessage(
            topic=self.topic,
            queue_id=queue_id,
            body=body,
            properties=join_properties(properties),
            born_timestamp=now,
            born_host=host,
            store_host=host,
        )
