"""Consumer groups of a broker."""

from rocketmq_tw.wire.headers.base import Header, RpcHeader, TopicRpcHeader


class DeleteSubscriptionGroupRequestHeader(RpcHeader):
    """207; `clean_offset` is 5.x's name, 4.9.7 sends `remove_offset`."""

    group_name: str
    clean_offset: bool = False
    remove_offset: bool = False


class GetSubscriptionGroupConfigRequestHeader(RpcHeader):
    """352."""

    group: str


class GetConsumeStatsRequestHeader(TopicRpcHeader):
    """208; `topic_list` is separated by semicolons."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None


class GetConsumeStatsInBrokerHeader(Header):
    """317."""

    is_order: bool = False
