"""Topics of a broker: their configuration, statistics and consumers.

Format: docs/formats/remoting.md.
"""

from rocketmq_tw.wire.headers.base import Int, RpcHeader, TopicRpcHeader


class CreateTopicRequestHeader(TopicRpcHeader):
    """Request 17; `attributes` is "+key=value,-key"."""

    topic: str
    default_topic: str
    read_queue_nums: Int
    write_queue_nums: Int
    perm: Int
    topic_filter_type: str
    order: bool
    topic_sys_flag: Int | None = None
    attributes: str | None = None
    force: bool = False


class DeleteTopicRequestHeader(TopicRpcHeader):
    """Request 215."""

    topic: str


class GetTopicConfigRequestHeader(TopicRpcHeader):
    """Request 351."""

    topic: str


class GetTopicStatsInfoRequestHeader(TopicRpcHeader):
    """Request 202."""

    topic: str


class QueryTopicConsumeByWhoRequestHeader(TopicRpcHeader):
    """Request 300."""

    topic: str


class QueryTopicsByConsumerRequestHeader(RpcHeader):
    """Request 343."""

    group: str


class QuerySubscriptionByConsumerRequestHeader(TopicRpcHeader):
    """Request 345."""

    group: str
    topic: str | None = None


class UpdateGroupForbiddenRequestHeader(TopicRpcHeader):
    """Request 353."""

    group: str
    topic: str
    readable: bool | None = None
