"""Requests of clients: heartbeats (34), unregistration (35), the members of a group (38)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from twisted.internet.defer import Deferred

from rocketmq_tw.broker.clients.registry import Client, ClientRegistry
from rocketmq_tw.broker.tables.groups.table import GroupTable
from rocketmq_tw.broker.tables.topics.announcements import Announcements
from rocketmq_tw.broker.tables.topics.table import TopicTable
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.message import names
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.runtime.slices import InSlices
from rocketmq_tw.wire.bodies.clients import (
    MAX_SUBSCRIPTIONS,
    ConsumerData,
    HeartbeatData,
    decode_heartbeat,
)
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.clients import (
    GetConsumerListByGroupRequestHeader,
    UnregisterClientRequestHeader,
)
from rocketmq_tw.wire.permissions import READ, WRITE

#: Groups and subscriptions of one heartbeat that are registered in one go; more are registered in
#: steps.
FEW = 100
#: The bit of a topic's `topic_sys_flag` that says that unit-mode groups subscribe.
UNIT_SUB_FLAG = 2


class ClientRequests:
    """Registers and unregisters clients, and lists the members of a group."""

    def __init__(
        self,
        in_slices: InSlices,
        config: BrokerConfig,
        clients: ClientRegistry,
        groups: GroupTable,
        topics: TopicTable,
        announcements: Announcements,
    ) -> None:
        self._in_slices = in_slices
        self._config = config
        self._clients = clients
        self._groups = groups
        self._topics = topics
        self._announcements = announcements

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.HEART_BEAT: self.heartbeat,
            RequestCode.UNREGISTER_CLIENT: self.unregister,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self.list_consumers,
        }

    def heartbeat(
        self, request: RemotingCommand, peer: IPeer
    ) -> RemotingCommand | Deferred[RemotingCommand]:
        """Answers 34: registers all groups of the client and makes their retry topics; answers once
        these are announced, since a consumer asks for their routes next."""
        data = decode_heartbeat(request.body)
        names.check_length("clientID", data.client_id)
        subscriptions = _check_subscriptions(data)
        client = Client(peer, data.client_id, request.language.name, request.version)
        resend: list[str] = []
        steps = self._register(client, data, resend)
        groups = len(data.consumer_data_set) + len(data.producer_data_set)
        if groups + subscriptions <= FEW:
            for _ in steps:
                pass
            return self._registered(request, data, resend)
        registered = self._in_slices(steps)
        return registered.addCallback(lambda _: self._registered(request, data, resend))

    def _register(self, client: Client, data: HeartbeatData, resend: list[str]) -> Iterator[None]:
        """Registers one group in each step; adds to `resend` those whose clients should send their
        subscriptions in full."""
        for consumer in data.consumer_data_set:
            if not client.peer.connected:
                return
            if self._register_consumer(client, consumer, data):
                resend.append(consumer.group_name)
            yield
        for producer in data.producer_data_set:
            if not client.peer.connected:
                return
            names.check_group(producer.group_name)
            self._clients.register_producer(producer.group_name, client)
            yield

    def _registered(
        self, request: RemotingCommand, data: HeartbeatData, resend: list[str]
    ) -> RemotingCommand | Deferred[RemotingCommand]:
        response = request.response()
        # A 4.9 client, and a 5.x client before it knows the broker, sends no fingerprint.
        response.ext_fields = {
            "isSupportHeartBeatV2": "true",
            "isSubChange": "true" if resend or not data.heartbeat_fingerprint else "false",
        }
        announced = self._announcements.when_announced(
            names.retry_topic(consumer.group_name) for consumer in data.consumer_data_set
        )
        return response if announced is None else announced.addCallback(lambda _: response)

    def unregister(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        """Answers 35: takes the client out of a group of producers, of consumers, or of both."""
        header = request.header(UnregisterClientRequestHeader)
        if header.producer_group is not None:
            self._clients.unregister_producer(header.producer_group, peer)
        if header.consumer_group is not None:
            self._clients.unregister_consumer(header.consumer_group, peer)
        return request.response()

    def list_consumers(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        """Answers 38: the ids of a group's connected consumers."""
        name = request.header(GetConsumerListByGroupRequestHeader).consumer_group
        group = self._clients.consumer_group(name)
        if group is None:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"no consumer of group {name} is connected to this broker: start one, or ask"
                " another broker",
            )
        return request.response(body=group.id_list())

    def _register_consumer(
        self, client: Client, consumer: ConsumerData, heartbeat: HeartbeatData
    ) -> bool:
        if self._config.reject_pull_consumer_enable and consumer.consume_type == "CONSUME_ACTIVELY":
            return False
        group = self._groups.get(consumer.group_name)
        if group is None:
            # As in stock, the pull of such a group is what gets refused and says why.
            return False
        ordered = any(
            topic is not None and topic.order
            for topic in (
                self._topics.get(wanted.topic) for wanted in consumer.subscription_data_set
            )
        )
        # Without room for it, what the group gives back is refused and says why.
        with suppress(RequestError):
            self._topics.create_on_send_back(
                names.retry_topic(group.group_name),
                group.retry_queue_nums,
                READ | WRITE,
                UNIT_SUB_FLAG if consumer.unit_mode else 0,
                order=ordered,
            )
        return self._clients.register_consumer(
            client,
            consumer,
            notify_changes=group.notify_consumer_ids_changed_enable,
            fingerprint=heartbeat.heartbeat_fingerprint or 0,
            without_sub=bool(heartbeat.without_sub),
        )


def _check_subscriptions(heartbeat: HeartbeatData) -> int:
    """Returns how many subscriptions its groups have; raises `RequestError` where one has more than
    `MAX_SUBSCRIPTIONS`."""
    total = 0
    for consumer in heartbeat.consumer_data_set:
        count = len(consumer.subscription_data_set)
        if count > MAX_SUBSCRIPTIONS:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"group {consumer.group_name[:200]} subscribes to {count} topics:"
                f" {MAX_SUBSCRIPTIONS} are the limit, use further groups for more",
            )
        total += count
    return total
