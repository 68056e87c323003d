"""The bodies that pop consumption stores and sends: check points, acknowledgements, orders in
consumption.

Format: docs/formats/pop.md.
"""

from typing import Annotated

from rocketmq_tw.structs import Meta, field
from rocketmq_tw.wire.bodies.base import Body
from rocketmq_tw.wire.headers.base import Int, Long

#: Java's byte: how many messages a check point may have.
_Count = Annotated[int, Meta(ge=-(2**7), le=2**7 - 1)]
_Diffs = Annotated[list[Int], Meta(max_length=2**7 - 1)]
#: More than a check point has, since one and the same may stand there twice.
_AckOffsets = Annotated[list[Long], Meta(max_length=1024)]


class PopCheckPoint(Body):
    """Body of a message with the tag `ck`: these messages were popped and are hidden until
    `revive_time`. `offset_diffs` has each one's distance from `start_offset`; where there are
    none, `count` messages follow each other."""

    bit_map: Int = field(default=0, name="bm")
    broker_name: str | None = field(default=None, name="bn")
    group: str | None = field(default=None, name="c")
    offset_diffs: _Diffs | None = field(default=None, name="d")
    invisible_time: Long = field(default=0, name="it")
    count: _Count = field(default=0, name="n")
    pop_time: Long = field(default=0, name="pt")
    queue_id: Int = field(default=0, name="q")
    revive_time: Long = 0
    revive_offset: Long = field(default=0, name="ro")
    #: How often the check point was stored again, as text.
    re_put_times: str | None = field(default=None, name="rp")
    start_offset: Long = field(default=0, name="so")
    topic: str | None = field(default=None, name="t")


class AckMsg(Body):
    """Body of a message with the tag `ack`: the message at `ack_offset` is consumed. The other
    fields name its check point."""

    ack_offset: Long = field(default=0, name="ao")
    broker_name: str | None = field(default=None, name="bn")
    group: str | None = field(default=None, name="c")
    pop_time: Long = field(default=0, name="pt")
    queue_id: Int = field(default=0, name="q")
    start_offset: Long = field(default=0, name="so")
    topic: str | None = field(default=None, name="t")


class BatchAckMsg(AckMsg):
    """Body of a message with the tag `bAck`: the messages at `ack_offsets` are consumed."""

    ack_offsets: _AckOffsets = field(default_factory=list, name="aol")


class PutBack(Body):
    """Body of a message with the tag `back`, which is ours: the group's offset went back to
    `offset`. Without a topic it has no offsets any more."""

    group: str | None = field(default=None, name="c")
    queue_id: Int = field(default=0, name="q")
    offset: Long = field(default=0, name="so")
    topic: str | None = field(default=None, name="t")


class BatchAck(Body):
    """Messages of one check point that are consumed. `bits`: a Java BitSet's bytes, a bit for each
    distance from `start_offset`; `retry`: 0 for the topic, 1 and 2 for the group's retry topic."""

    bits: bytes = field(default=b"", name="b")
    group: str = field(default="", name="c")
    invisible_time: Long = field(default=0, name="it")
    pop_time: Long = field(default=0, name="pt")
    queue_id: Int = field(default=0, name="q")
    retry: str = field(default="0", name="r")
    revive_queue_id: Int = field(default=0, name="rq")
    start_offset: Long = field(default=0, name="so")
    topic: str = field(default="", name="t")


class BatchAckMessageRequestBody(Body):
    """Request 200151."""

    broker_name: str | None = None
    acks: list[BatchAck] = field(default_factory=list)


class OrderInfo(Body):
    """What an orderly group has popped of one queue last. `offsets`: the first message's offset,
    then the distances from it; `commit_bits`: a bit for each that is consumed; times in ms."""

    attempt_id: str | None = field(default=None, name="a")
    commit_bits: int = field(default=0, name="cm")
    invisible_time: int | None = field(default=None, name="i")
    last_consume_timestamp: int = field(default=0, name="l")
    offsets: list[int] = field(default_factory=list, name="o")
    #: Offset -> how often it was consumed before.
    consumed_counts: dict[int, int] | None = field(default=None, name="oc")
    #: Offset -> when the message may be seen again, where that was changed.
    next_visible_times: dict[int, int] | None = field(default=None, name="ot")
    pop_time: int = 0


class OrderInfoTable(Body):
    """`consumerOrderInfo.json`: "topic@group" to queue id to what was popped."""

    table: dict[str, dict[int, OrderInfo]] = field(default_factory=dict)
