"""Offsets of queues and of groups in them: 14, 15, 29-32 and what resets or copies them.

Format: docs/formats/remoting.md.
"""

from rocketmq_tw.wire.headers.base import Header, Int, Long, RpcHeader, TopicRpcHeader


class QueryConsumerOffsetRequestHeader(TopicRpcHeader):
    """Request 14."""

    consumer_group: str
    topic: str
    queue_id: Int
    set_zero_if_not_found: bool | None = None


class QueryConsumerOffsetResponseHeader(Header):
    """Answer to 14."""

    offset: Long


class UpdateConsumerOffsetRequestHeader(TopicRpcHeader):
    """Request 15."""

    consumer_group: str
    topic: str
    queue_id: Int
    commit_offset: Long


class SearchOffsetRequestHeader(TopicRpcHeader):
    """Request 29; `timestamp` in ms, `boundary_type` LOWER or UPPER."""

    topic: str
    queue_id: Int
    timestamp: Long
    boundary_type: str | None = None


class SearchOffsetResponseHeader(Header):
    """Answer to 29."""

    offset: Long


class GetMaxOffsetRequestHeader(TopicRpcHeader):
    """Request 30. `committed` false: with what is not readable yet."""

    topic: str
    queue_id: Int
    committed: bool = True


class GetMaxOffsetResponseHeader(Header):
    """Answer to 30."""

    offset: Long


class GetMinOffsetRequestHeader(TopicRpcHeader):
    """Request 31."""

    topic: str
    queue_id: Int


class GetMinOffsetResponseHeader(Header):
    """Answer to 31."""

    offset: Long


class GetEarliestMsgStoretimeRequestHeader(TopicRpcHeader):
    """Request 32."""

    topic: str
    queue_id: Int


class GetEarliestMsgStoretimeResponseHeader(Header):
    """Answer to 32, in ms."""

    timestamp: Long


class ResetOffsetRequestHeader(TopicRpcHeader):
    """Request 222 to a broker, 220 to a client; `timestamp` in ms, negative: the queue's end. Queue
    -1, and none as 4.9.7 sends it, means all queues."""

    group: str
    topic: str
    queue_id: Int = -1
    offset: Long | None = None
    timestamp: Long = 0
    is_force: bool = False


class GetConsumerStatusRequestHeader(TopicRpcHeader):
    """Requests 221 and 223."""

    topic: str
    group: str
    client_addr: str | None = None


class QueryCorrectionOffsetHeader(TopicRpcHeader):
    """Request 308; `filter_groups` are separated by commas."""

    compare_group: str
    topic: str
    filter_groups: str | None = None


class CloneGroupOffsetRequestHeader(RpcHeader):
    """Request 314."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


class QueryConsumeTimeSpanRequestHeader(TopicRpcHeader):
    """Request 303."""

    topic: str
    group: str
