"""QueryRoute and QueryAssignment: which queues a topic has, and from which a consumer receives."""

from __future__ import annotations

from collections.abc import Iterator

from rocketmq_tw.config.proxy import ProxyConfig
from rocketmq_tw.message.types import (
    DELAY_TYPE,
    FIFO_TYPE,
    MIXED_TYPE,
    NORMAL_TYPE,
    TRANSACTION_TYPE,
    topic_type,
)
from rocketmq_tw.proxy.brokers import IBrokers
from rocketmq_tw.proxy.grpc.interfaces import ICall, Methods
from rocketmq_tw.proxy.messaging.checks import client_group, client_topic, no_route
from rocketmq_tw.proxy.messaging.endpoints import endpoints_for
from rocketmq_tw.proxy.messaging.methods import path, unary
from rocketmq_tw.proxy.messaging.statuses import StatusError, ok
from rocketmq_tw.proxy.metadata import Metadata
from rocketmq_tw.proxy.proto.messages import (
    Assignment,
    Broker,
    Code,
    Endpoints,
    MessageQueue,
    MessageType,
    Permission,
    QueryAssignmentRequest,
    QueryAssignmentResponse,
    QueryRouteRequest,
    QueryRouteResponse,
    Resource,
)
from rocketmq_tw.wire.bodies.route import QueueData, TopicRouteData
from rocketmq_tw.wire.bodies.topics import TopicConfig
from rocketmq_tw.wire.permissions import is_readable, is_writable

#: Seconds that brokers get to say what a topic takes: Java's client gives up a route after 3 s.
_TYPE_SECONDS = 1.0
#: In place of a queue's id: all queues of a broker.
_ANY_QUEUE = -1

_TYPES: dict[str, list[MessageType]] = {
    NORMAL_TYPE: [MessageType.NORMAL],
    FIFO_TYPE: [MessageType.FIFO],
    DELAY_TYPE: [MessageType.DELAY],
    TRANSACTION_TYPE: [MessageType.TRANSACTION],
    MIXED_TYPE: [
        MessageType.NORMAL,
        MessageType.FIFO,
        MessageType.DELAY,
        MessageType.TRANSACTION,
    ],
}


class RouteQueries:
    """Answers where the queues of topics are: at this proxy, whatever broker has them."""

    def __init__(self, brokers: IBrokers, metadata: Metadata, config: ProxyConfig) -> None:
        self._brokers = brokers
        self._metadata = metadata
        self._config = config

    def methods(self) -> Methods:
        """Returns the methods by path."""
        return {
            path("QueryRoute"): unary(QueryRouteRequest, QueryRouteResponse, self.query_route),
            path("QueryAssignment"): unary(
                QueryAssignmentRequest, QueryAssignmentResponse, self.query_assignment
            ),
        }

    async def query_route(self, request: QueryRouteRequest, call: ICall) -> QueryRouteResponse:
        """Answers with the queues of a topic, and which messages they take."""
        topic = client_topic(request.topic)
        places = endpoints_for(request.endpoints, call, self._config)
        route = await self._route(topic)
        types = _types(await self._metadata.topic_within(topic, _TYPE_SECONDS))
        shown = _shown(request.topic)
        queues = [
            MessageQueue(
                topic=shown,
                id=queue_id,
                permission=permission,
                broker=broker,
                accept_message_types=types,
            )
            for data in route.queue_datas
            for broker in _brokers(route, data.broker_name, places)
            for queue_id, permission in enumerate(_permissions(data))
        ]
        return QueryRouteResponse(status=ok(), message_queues=queues)

    async def query_assignment(
        self, request: QueryAssignmentRequest, call: ICall
    ) -> QueryAssignmentResponse:
        """Answers with what a consumer receives from: every broker with readable queues, as each
        receive is served from any of its queues; a FIFO group gets the queues one by one."""
        topic = client_topic(request.topic)
        group = client_group(request.group)
        places = endpoints_for(request.endpoints, call, self._config)
        route = await self._route(topic)
        config = await self._metadata.group(group, [topic])
        is_fifo = config is not None and bool(config.consume_message_orderly)
        shown = _shown(request.topic)
        assignments = [
            Assignment(
                message_queue=MessageQueue(
                    topic=shown,
                    id=queue_id,
                    permission=_permission(data.perm),
                    broker=broker,
                )
            )
            for data in route.queue_datas
            if is_readable(data.perm) and data.read_queue_nums > 0
            for broker in list(_brokers(route, data.broker_name, places))[:1]
            for queue_id in (range(data.read_queue_nums) if is_fifo else (_ANY_QUEUE,))
        ]
        if not assignments:
            raise StatusError(
                Code.FORBIDDEN, f"{topic} has no readable queue: ask for its read permission"
            )
        return QueryAssignmentResponse(status=ok(), assignments=assignments)

    async def _route(self, topic: str) -> TopicRouteData:
        route = await self._brokers.route(topic)
        if route is None:
            raise no_route(self._brokers, topic)
        return route


def _shown(topic: Resource) -> Resource:
    """Returns a client's topic without what it has beside its name, which each queue would
    repeat."""
    return Resource(resource_namespace=topic.resource_namespace, name=topic.name)


def readable_brokers(route: TopicRouteData) -> list[str]:
    """Returns the names of brokers with readable queues, each once, in their order."""
    running = {data.broker_name for data in route.broker_datas if data.broker_addrs}
    return sorted(
        {
            data.broker_name
            for data in route.queue_datas
            if is_readable(data.perm) and data.read_queue_nums > 0 and data.broker_name in running
        }
    )


def _brokers(route: TopicRouteData, name: str, places: Endpoints) -> Iterator[Broker]:
    """Yields the brokers of a name, the master first; clients reach each of them at the proxy."""
    for data in route.broker_datas:
        if data.broker_name == name:
            for broker_id in sorted(data.broker_addrs):
                yield Broker(name=name, id=broker_id, endpoints=places)


def _permissions(data: QueueData) -> list[Permission]:
    """Returns the permission of each queue by its id, in stock's order: where there are more
    queues to read than to write, the first ones are those that are only read."""
    readable, writable = is_readable(data.perm), is_writable(data.perm)
    read = data.read_queue_nums if readable else 0
    write = data.write_queue_nums if writable else 0
    both = min(read, write)
    if not readable and not writable:
        count = max(1, data.read_queue_nums, data.write_queue_nums)
        return [Permission.NONE] * count
    return (
        [Permission.READ] * (read - both)
        + [Permission.WRITE] * (write - both)
        + [Permission.READ_WRITE] * both
    )


def _permission(perm: int) -> Permission:
    if is_readable(perm):
        return Permission.READ_WRITE if is_writable(perm) else Permission.READ
    return Permission.WRITE if is_writable(perm) else Permission.NONE


def _types(topic: TopicConfig | None) -> list[MessageType]:
    """Returns what clients may send to a topic: all where no broker says it, as sends are taken
    then. Java's client refuses by itself what is not named."""
    kind = MIXED_TYPE if topic is None else topic_type(topic.attributes)
    return _TYPES.get(kind, [MessageType.MESSAGE_TYPE_UNSPECIFIED])
