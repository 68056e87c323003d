"""Requests about connected clients (203, 204, 328, 345), and those that are forwarded to a consumer
(307, 309).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from rocketmq_tw.broker.clients.registry import Client, ClientRegistry
from rocketmq_tw.broker.tables.groups.table import GroupTable
from rocketmq_tw.broker.tables.topics.table import TopicTable
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.message.ids import parse_offset_message_id
from rocketmq_tw.net.errors import ConnectionLost, RequestTimeout
from rocketmq_tw.net.growing_answers import GrowingAnswers
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.runtime.slices import every
from rocketmq_tw.store.interface import IMessageStore
from rocketmq_tw.wire.bodies.base import encode_body
from rocketmq_tw.wire.bodies.clients import (
    Connection,
    ConsumerConnection,
    ProducerConnection,
    ProducerInfo,
    ProducerTable,
    SubscriptionQueryBody,
)
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.clients import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerConnectionListRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetProducerConnectionListRequestHeader,
)
from rocketmq_tw.wire.headers.topics import QuerySubscriptionByConsumerRequestHeader

#: Seconds that a client gets to answer a request that is forwarded to it.
CLIENT_TIMEOUT = 10.0


class ConnectionRequests:
    """Lists connected clients and forwards requests to one of them."""

    def __init__(
        self,
        config: BrokerConfig,
        clients: ClientRegistry,
        topics: TopicTable,
        groups: GroupTable,
        store: IMessageStore,
        growing: GrowingAnswers,
    ) -> None:
        self._growing = growing
        self._config = config
        self._clients = clients
        self._topics = topics
        self._groups = groups
        self._store = store

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self.consumers,
            RequestCode.GET_PRODUCER_CONNECTION_LIST: self.producers,
            RequestCode.GET_ALL_PRODUCER_INFO: self.all_producers,
            RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: self.subscription,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self.running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self.consume_directly,
        }

    def consumers(
        self, request: RemotingCommand, peer: IPeer
    ) -> RemotingCommand | Deferred[RemotingCommand]:
        """Answers 203: the connected consumers of a group and what they subscribe to."""
        name = request.header(GetConsumerConnectionListRequestHeader).consumer_group
        group = self._clients.consumer_group(name)
        if group is None:
            raise RequestError(
                ResponseCode.CONSUMER_NOT_ONLINE,
                f"no consumer of group {name} is connected to this broker: start one, or ask"
                " another broker",
            )
        return self._growing.answer(
            request,
            lambda: ConsumerConnection(
                subscription_table=group.subscriptions,
                consume_type=group.consume_type,
                message_model=group.message_model,
                consume_from_where=group.consume_from_where,
            ),
            lambda body: _add_connections(body.connection_set, group.clients.values()),
        )

    def producers(
        self, request: RemotingCommand, peer: IPeer
    ) -> RemotingCommand | Deferred[RemotingCommand]:
        """Answers 204: the connected producers of a group."""
        name = request.header(GetProducerConnectionListRequestHeader).producer_group
        clients = self._clients.producers(name)
        if not clients:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, f"no producer of group {name} is connected here"
            )
        return self._growing.answer(
            request,
            ProducerConnection,
            lambda body: _add_connections(body.connection_set, clients),
        )

    def all_producers(
        self, request: RemotingCommand, peer: IPeer
    ) -> RemotingCommand | Deferred[RemotingCommand]:
        """Answers 328: all connected producers by group."""
        return self._growing.answer(request, ProducerTable, self._add_producers)

    def _add_producers(self, body: ProducerTable) -> Iterator[None]:
        listed = 0
        for group in self._clients.producer_groups():
            producers = []
            for client in self._clients.producers(group):
                producers.append(
                    ProducerInfo(
                        client_id=client.client_id,
                        # As Java writes the address of a socket.
                        remote_ip=f"/{client.peer.address}",
                        language=client.language,
                        version=client.version,
                        last_update_timestamp=client.last_update_ms,
                    )
                )
                if every(listed):
                    yield
                listed += 1
            if producers:
                body.data[group] = producers

    def subscription(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        """Answers 345: what a group's consumers subscribe to in a topic."""
        header = request.header(QuerySubscriptionByConsumerRequestHeader)
        body = SubscriptionQueryBody(
            group=header.group,
            topic=header.topic,
            subscription_data=self._clients.subscription(header.group, header.topic or ""),
        )
        return request.response(body=encode_body(body))

    def running_info(self, request: RemotingCommand, peer: IPeer) -> Deferred[RemotingCommand]:
        """Answers 307: asks one consumer what it is doing."""
        header = request.header(GetConsumerRunningInfoRequestHeader)
        return self._forward(request, header.consumer_group, header.client_id, request.ext_fields)

    def consume_directly(self, request: RemotingCommand, peer: IPeer) -> Deferred[RemotingCommand]:
        """Answers 309: has one client consume one message of this broker's log, of which it gets
        the whole record."""
        header = request.header(ConsumeMessageDirectlyResultRequestHeader)
        fields = request.ext_fields | {"brokerName": self._config.broker_name}
        topic = self._topics.get(header.topic or "")
        if topic is not None:
            fields["topicSysFlag"] = str(topic.topic_sys_flag)
        group = self._groups.get(header.consumer_group)
        if group is not None:
            fields["groupSysFlag"] = str(group.group_sys_flag or 0)
        record = self._record(header.msg_id or "")
        return self._forward(request, header.consumer_group, header.client_id or "", fields, record)

    def _record(self, message_id: str) -> bytes:
        try:
            offset = parse_offset_message_id(message_id).offset
        except ValueError as error:
            raise RequestError(ResponseCode.SYSTEM_ERROR, str(error)) from error
        record = self._store.record_at(offset)
        if record is None:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, f"there is no message {message_id} in this broker's log"
            )
        return record

    def _forward(
        self,
        request: RemotingCommand,
        group: str,
        client_id: str,
        fields: dict[str, str],
        body: bytes | None = None,
    ) -> Deferred[RemotingCommand]:
        members = self._clients.consumer_group(group)
        client = None if members is None else members.find(client_id)
        if client is None:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"consumer {client_id} of group {group} is not connected here",
            )
        command = RemotingCommand.request(request.code, body=request.body if body is None else body)
        command.ext_fields = dict(fields)

        def answer(reply: RemotingCommand) -> RemotingCommand:
            response = request.response(reply.code, reply.remark, body=reply.body)
            response.ext_fields = reply.ext_fields
            return response

        def refuse(failure: Failure) -> RemotingCommand:
            late = failure.check(RequestTimeout)
            failure.trap(RequestTimeout, ConnectionLost)
            raise RequestError(
                ResponseCode.CONSUME_MSG_TIMEOUT if late else ResponseCode.SYSTEM_ERROR,
                f"consumer {client_id} of group {group}: {failure.value}",
            )

        return client.peer.request(command, CLIENT_TIMEOUT).addCallbacks(answer, refuse)


def _add_connections(found: list[Connection], clients: Iterable[Client]) -> Iterator[None]:
    """Adds clients to `found`, in steps."""
    # A copy: clients come and go meanwhile.
    for number, client in enumerate(list(clients)):
        found.append(_connection(client))
        if every(number):
            yield


def _connection(client: Client) -> Connection:
    return Connection(
        client_id=client.client_id,
        client_addr=client.peer.address,
        language=client.language,
        version=client.version,
    )
