"""The heartbeat of a client, and what it subscribes to."""

from msgspec import field

from rocketmq_tw.wire.bodies.base import Body


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


class CheckClientBody(Body):
    """Request 46: may this client subscribe so?"""

    client_id: str | None = None
    group: str | None = None
    subscription_data: SubscriptionData | None = None
    namespace: str | None = None
