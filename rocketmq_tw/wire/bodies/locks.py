"""Locks of queues, for orderly consumption."""

from msgspec import field

from rocketmq_tw.wire.bodies.base import Body
from rocketmq_tw.wire.bodies.offsets import MessageQueue


class LockBatchRequestBody(Body):
    """Request 41. `only_this_broker` is 5.x's: a broker of the group asks, do not ask further."""

    consumer_group: str = ""
    client_id: str = ""
    only_this_broker: bool | None = False
    mq_set: list[MessageQueue] = field(default_factory=list)


class LockBatchResponseBody(Body):
    """Answer to 41: the queues that are locked for the client now."""

    lock_ok_mq_set: list[MessageQueue] = field(default_factory=list, name="lockOKMQSet")


class UnlockBatchRequestBody(LockBatchRequestBody):
    """Request 42."""
