"""Clients: their heartbeats, and what they and brokers say of connected ones.

Format: docs/formats/bodies.md.
"""

from rocketmq_tw.structs import field
from rocketmq_tw.wire.bodies.base import Body, decode_request
from rocketmq_tw.wire.bodies.queues import ConsumeQueueUnit, MessageQueue
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError

#: Bytes of a heartbeat. A thousand subscriptions take a fifth of it; the content stays in memory.
MAX_HEARTBEAT_BYTES = 1 << 20
#: Groups that one connection may take part in, with producers and with consumers each.
MAX_GROUPS_PER_PEER = 4096
#: Topics that a group may subscribe to.
MAX_SUBSCRIPTIONS = 1024


class SubscriptionData(Body):
    """What a group wants of a topic; `code_set` are the hash codes of `tags_set`, and
    `sub_version` is the client's time in ms when it made the subscription."""

    topic: str = ""
    sub_string: str | None = None
    tags_set: list[str] = field(default_factory=list)
    code_set: list[int] = field(default_factory=list)
    sub_version: int = 0
    expression_type: str = "TAG"
    class_filter_mode: bool = False


class ProducerData(Body):
    group_name: str = ""


class ConsumerData(Body):
    """A group of this client: `consume_type` CONSUME_ACTIVELY or CONSUME_PASSIVELY,
    `message_model` BROADCASTING or CLUSTERING."""

    group_name: str = ""
    consume_type: str | None = None
    message_model: str | None = None
    consume_from_where: str | None = None
    subscription_data_set: list[SubscriptionData] = field(default_factory=list)
    unit_mode: bool = False


class HeartbeatData(Body):
    """Request 34. A 5.x client that knows the broker sends `without_sub` with the fingerprint
    of what it sent before; None, 4.9.7's form, leaves both out."""

    client_id: str = field(default="", name="clientID")
    producer_data_set: list[ProducerData] = field(default_factory=list)
    consumer_data_set: list[ConsumerData] = field(default_factory=list)
    heartbeat_fingerprint: int | None = 0
    without_sub: bool | None = False


def decode_heartbeat(body: bytes) -> HeartbeatData:
    """Reads the body of a heartbeat; raises `RequestError` where it is too long, `BodyError`."""
    if len(body) > MAX_HEARTBEAT_BYTES:
        raise RequestError(
            ResponseCode.SYSTEM_ERROR,
            f"a heartbeat of {len(body)} bytes: subscribe to fewer topics an instance,"
            f" {MAX_HEARTBEAT_BYTES} are the limit",
        )
    return decode_request(HeartbeatData, body)


class CheckClientBody(Body):
    """Request 46: may this client subscribe so?"""

    client_id: str | None = None
    group: str | None = None
    subscription_data: SubscriptionData | None = None
    namespace: str | None = None


class ConsumerIdList(Body):
    """Answer to 38."""

    consumer_id_list: list[str] = field(default_factory=list)


class Connection(Body):
    """`language` is a name of `LanguageCode`, `version` stock's ordinal."""

    client_id: str | None = None
    client_addr: str | None = None
    language: str | None = None
    version: int = 0


class ConsumerConnection(Body):
    """Answer to 203."""

    connection_set: list[Connection] = field(default_factory=list)
    subscription_table: dict[str, SubscriptionData] = field(default_factory=dict)
    consume_type: str | None = None
    message_model: str | None = None
    consume_from_where: str | None = None


class ProducerConnection(Body):
    """Answer to 204."""

    connection_set: list[Connection] = field(default_factory=list)


class ProducerInfo(Body):
    client_id: str | None = None
    remote_ip: str | None = field(default=None, name="remoteIP")
    language: str | None = None
    version: int = 0
    last_update_timestamp: int = 0


class ProducerTable(Body):
    """Answer to 328: producer group to its clients."""

    data: dict[str, list[ProducerInfo]] = field(default_factory=dict)


class ProcessQueueInfo(Body):
    """A consumer's cache of one queue."""

    commit_offset: int = 0
    cached_msg_min_offset: int = 0
    cached_msg_max_offset: int = 0
    cached_msg_count: int = 0
    cached_msg_size_in_mib: int = field(default=0, name="cachedMsgSizeInMiB")
    transaction_msg_min_offset: int = 0
    transaction_msg_max_offset: int = 0
    transaction_msg_count: int = 0
    locked: bool = False
    try_unlock_times: int = 0
    last_lock_timestamp: int = 0
    droped: bool = False
    last_pull_timestamp: int = 0
    last_consume_timestamp: int = 0


class PopProcessQueueInfo(Body):
    wait_ack_count: int = 0
    droped: bool = False
    last_pop_timestamp: int = 0


class ConsumeStatus(Body):
    """Rates of a consumer in a topic: times in ms, TPS per second."""

    pull_rt: float = field(default=0.0, name="pullRT")
    pull_tps: float = field(default=0.0, name="pullTPS")
    consume_rt: float = field(default=0.0, name="consumeRT")
    consume_ok_tps: float = field(default=0.0, name="consumeOKTPS")
    consume_failed_tps: float = field(default=0.0, name="consumeFailedTPS")
    consume_failed_msgs: int = 0


class ConsumerRunningInfo(Body):
    """Answer to 307. The fields that may be None are 5.x's."""

    properties: dict[str, str] = field(default_factory=dict)
    subscription_set: list[SubscriptionData] = field(default_factory=list)
    mq_table: dict[MessageQueue, ProcessQueueInfo] = field(default_factory=dict)
    mq_pop_table: dict[MessageQueue, PopProcessQueueInfo] | None = None
    status_table: dict[str, ConsumeStatus] = field(default_factory=dict)
    user_consumer_info: dict[str, str] | None = None
    jstack: str | None = None


class ConsumeMessageDirectlyResult(Body):
    """Answer to 309; `consume_result` is CR_SUCCESS, CR_LATER, CR_ROLLBACK, CR_COMMIT,
    CR_THROW_EXCEPTION or CR_RETURN_NULL."""

    order: bool = False
    auto_commit: bool = True
    consume_result: str | None = None
    remark: str | None = None
    spent_time_mills: int = 0


class SubscriptionQueryBody(Body):
    """Answer to 345."""

    subscription_data: SubscriptionData | None = None
    group: str | None = None
    topic: str | None = None


class ConsumeQueueBody(Body):
    """Answer to 321."""

    subscription_data: SubscriptionData | None = None
    filter_data: str | None = None
    queue_data: list[ConsumeQueueUnit] = field(default_factory=list)
    max_queue_index: int = 0
    min_queue_index: int = 0
