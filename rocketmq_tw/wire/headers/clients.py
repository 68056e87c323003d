"""Clients of a broker and consumer groups: connections, configuration, notices.

Format: docs/formats/remoting.md.
"""

from msgspec import field

from rocketmq_tw.wire.headers.base import Header, Int, RpcHeader, TopicRpcHeader


class HeartbeatRequestHeader(RpcHeader):
    """34."""


class UnregisterClientRequestHeader(RpcHeader):
    """35."""

    client_id: str = field(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


class GetConsumerListByGroupRequestHeader(RpcHeader):
    """38."""

    consumer_group: str


class NotifyConsumerIdsChangedRequestHeader(RpcHeader):
    """40, to a client."""

    consumer_group: str


class LockBatchMqRequestHeader(RpcHeader):
    """41."""


class UnlockBatchMqRequestHeader(RpcHeader):
    """42."""


class GetConsumerConnectionListRequestHeader(RpcHeader):
    """203."""

    consumer_group: str


class GetProducerConnectionListRequestHeader(RpcHeader):
    """204."""

    producer_group: str


class GetConsumerRunningInfoRequestHeader(RpcHeader):
    """307, to a broker and on to the client."""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


class ConsumeMessageDirectlyResultRequestHeader(TopicRpcHeader):
    """309, to a broker and on to the client."""

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None
    topic_sys_flag: Int | None = None
    group_sys_flag: Int | None = None


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
