"""Clients of a broker and consumer groups: connections, configuration, notices.

Format: docs/formats/remoting.md.
"""

from rocketmq_tw.structs import field
from rocketmq_tw.wire.headers.base import Header, Int, RpcHeader, TopicRpcHeader


class HeartbeatRequestHeader(RpcHeader):
    """Request 34."""


class UnregisterClientRequestHeader(RpcHeader):
    """Request 35."""

    client_id: str = field(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


class GetConsumerListByGroupRequestHeader(RpcHeader):
    """Request 38."""

    consumer_group: str


class NotifyConsumerIdsChangedRequestHeader(RpcHeader):
    """Request 40, to a client."""

    consumer_group: str


class LockBatchMqRequestHeader(RpcHeader):
    """Request 41."""


class UnlockBatchMqRequestHeader(RpcHeader):
    """Request 42."""


class GetConsumerConnectionListRequestHeader(RpcHeader):
    """Request 203."""

    consumer_group: str


class GetProducerConnectionListRequestHeader(RpcHeader):
    """Request 204."""

    producer_group: str


class GetConsumerRunningInfoRequestHeader(RpcHeader):
    """Request 307, to a broker and on to the client."""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


class ConsumeMessageDirectlyResultRequestHeader(TopicRpcHeader):
    """Request 309, to a broker and on to the client."""

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None
    topic_sys_flag: Int | None = None
    group_sys_flag: Int | None = None


class DeleteSubscriptionGroupRequestHeader(RpcHeader):
    """Request 207; `clean_offset` is 5.x's name, 4.9.7 sends `remove_offset`."""

    group_name: str
    clean_offset: bool = False
    remove_offset: bool = False


class GetSubscriptionGroupConfigRequestHeader(RpcHeader):
    """Request 352."""

    group: str


class GetConsumeStatsRequestHeader(TopicRpcHeader):
    """Request 208; `topic_list` is separated by semicolons."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None


class GetConsumeStatsInBrokerHeader(Header):
    """Request 317."""

    is_order: bool = False
