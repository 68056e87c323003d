"""Describes a gRPC client to brokers: the heartbeat (34) that they get for it."""

from __future__ import annotations

from rocketmq_tw.message.tags import SQL92_TYPE, SUBSCRIBE_ALL, TAG_TYPE, parse_tag_expression
from rocketmq_tw.proxy.clients import ProxyClient
from rocketmq_tw.proxy.heartbeat_sync.records import GRPC, Origin
from rocketmq_tw.proxy.messaging.expressions import Expressions
from rocketmq_tw.proxy.messaging.statuses import StatusError
from rocketmq_tw.proxy.proto.messages import (
    PUSH_CONSUMER,
    SQL,
    Settings,
    SubscriptionEntry,
)
from rocketmq_tw.wire.bodies.clients import (
    ConsumerData,
    HeartbeatData,
    ProducerData,
    SubscriptionData,
)
from rocketmq_tw.wire.command import VERSION_5_3_3


def heartbeat_of(client: ProxyClient, since_ms: int) -> HeartbeatData:
    """Returns the heartbeat of a client. A producer's groups are the names of its topics, as with
    stock's proxies; `since_ms` is when it told its subscriptions."""
    if not client.is_consumer:
        producers = [ProducerData(group_name=topic) for topic in client.topics]
        return HeartbeatData(client_id=client.client_id, producer_data_set=producers)
    consumer = ConsumerData(
        group_name=client.group,
        consume_type=consume_type_of(client),
        message_model="CLUSTERING",
        consume_from_where="CONSUME_FROM_LAST_OFFSET",
        subscription_data_set=subscriptions_of(client, since_ms),
    )
    return HeartbeatData(client_id=client.client_id, consumer_data_set=[consumer])


def origin_of(client: ProxyClient) -> Origin:
    """Returns where a client is, for other proxies."""
    local_address = "" if client.stream is None else client.stream.local_address
    return Origin(
        client.client_id, GRPC, client.address, local_address, client.language, VERSION_5_3_3
    )


def consume_type_of(client: ProxyClient) -> str:
    """Returns how a consumer gets its messages, in the words of brokers."""
    is_push = client.client_type == PUSH_CONSUMER
    return "CONSUME_PASSIVELY" if is_push else "CONSUME_ACTIVELY"


def subscriptions_of(client: ProxyClient, since_ms: int = 0) -> list[SubscriptionData]:
    """Returns what a consumer subscribes to, without expressions that cannot be read."""
    found = []
    for entry in (client.settings or Settings()).subscription.subscriptions:
        try:
            found.append(_subscription(entry, since_ms))
        except ValueError:
            continue
    return found


def check_expressions(settings: Settings, expressions: Expressions) -> None:
    """Raises `StatusError` (ILLEGAL_FILTER_EXPRESSION) where a subscription cannot be read. SQL92
    behind what may be compiled in this turn is left to the receives that ask for it."""
    for entry in settings.subscription.subscriptions:
        try:
            expressions.check(entry.expression)
        except StatusError as error:
            raise StatusError(error.code, f"{entry.topic.name}: {error.message}") from None


def _subscription(entry: SubscriptionEntry, since_ms: int) -> SubscriptionData:
    expression = entry.expression.expression or SUBSCRIBE_ALL
    wanted = SubscriptionData(topic=entry.topic.name, sub_string=expression, sub_version=since_ms)
    if entry.expression.type == SQL:
        wanted.expression_type = SQL92_TYPE
        return wanted
    parsed = parse_tag_expression(expression)
    wanted.expression_type = TAG_TYPE
    wanted.sub_string = parsed.text
    wanted.tags_set, wanted.code_set = sorted(parsed.tags), sorted(parsed.codes)
    return wanted
