"""Questions about groups (38, 46, 203, 307, 309, 400): each broker of a group's topics knows its
members, so any of them is asked. Those at stock's proxies brokers do not know, nor those here that
are more than there are connections: they are added."""

from __future__ import annotations

from collections.abc import Sequence

from twisted.internet.interfaces import IReactorTime

from rocketmq_tw.message.ids import parse_offset_message_id
from rocketmq_tw.message.names import retry_topic
from rocketmq_tw.net.address import join_address
from rocketmq_tw.net.interfaces import IPeer
from rocketmq_tw.proxy.brokers import IBrokers
from rocketmq_tw.proxy.heartbeat_sync.members import Members
from rocketmq_tw.proxy.remoting.clients import ClassicClient, ClassicClients
from rocketmq_tw.proxy.remoting.other_members import with_other_members
from rocketmq_tw.proxy.remoting.passing import Passing
from rocketmq_tw.proxy.remoting.targets import named_broker
from rocketmq_tw.proxy.topic_brokers import brokers_of_topics
from rocketmq_tw.wire.bodies.base import FEW_VALUES, decode_request
from rocketmq_tw.wire.bodies.clients import CheckClientBody
from rocketmq_tw.wire.bodies.queues import QueryAssignmentRequestBody
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.clients import ConsumeMessageDirectlyResultRequestHeader


class ClassicGroups:
    """Asks a broker that knows the group."""

    def __init__(
        self,
        clock: IReactorTime,
        brokers: IBrokers,
        clients: ClassicClients,
        passing: Passing,
        members: Members,
    ) -> None:
        self._clock = clock
        self._brokers = brokers
        self._clients = clients
        self._passing = passing
        self._members = members

    async def of_group(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        """Answers 38, 203 and 307: the members of a group, or one of them."""
        client = self._clients.of(peer)
        group = request.ext_fields.get("consumerGroup")
        if not group:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, f"request {request.code} names no consumerGroup"
            )
        brokers = await self._brokers_of(group, client, request)
        answer = await self._passing.to_any(brokers, request, client, _is_success)
        unseen = [each.client_id for each in self._brokers.unseen(group)]
        return with_other_members(request, answer, group, self._members, unseen)

    async def check_client(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        """Answers 46: whether a client may subscribe so."""
        body = decode_request(CheckClientBody, request.body, max_values=FEW_VALUES)
        topic = "" if body.subscription_data is None else body.subscription_data.topic
        brokers = await brokers_of_topics(self._clock, self._brokers, [topic] if topic else [])
        if not brokers:
            # Once there is such a topic its brokers judge by themselves.
            return request.response()
        return await self._passing.to_any(brokers, request, self._clients.of(peer), _is_any)

    async def assignment(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        """Answers 400: the queues that a broker gives to a member."""
        body = decode_request(QueryAssignmentRequestBody, request.body, max_values=FEW_VALUES)
        brokers = await brokers_of_topics(self._clock, self._brokers, [body.topic])
        return await self._passing.to_any(brokers, request, self._clients.of(peer), _is_any)

    async def consume_directly(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        """Answers 309: has a client consume a message, which the broker reads whose address is in
        the message's id."""
        client = self._clients.of(peer)
        name = named_broker(request) or await self._broker_of_message(request)
        return await self._passing.to_any([name], request, client, _is_any)

    async def _broker_of_message(self, request: RemotingCommand) -> str:
        header = request.header(ConsumeMessageDirectlyResultRequestHeader)
        try:
            place = parse_offset_message_id(header.msg_id or "")
        except ValueError as error:
            raise RequestError(ResponseCode.SYSTEM_ERROR, str(error)) from error
        address = join_address(place.host, place.port)
        for topic in filter(None, (header.topic, retry_topic(header.consumer_group))):
            route = await self._brokers.route(topic)
            for data in () if route is None else route.broker_datas:
                if address in data.broker_addrs.values():
                    return data.broker_name
        raise RequestError(
            ResponseCode.SYSTEM_ERROR,
            f"no broker of the topic is at {address}, where the message's id says that it is: name"
            " the topic, and the broker (brokerName)",
        )

    async def _brokers_of(
        self, group: str, client: ClassicClient, request: RemotingCommand
    ) -> Sequence[str]:
        name = named_broker(request)
        if name is not None:
            return [name]
        # The retry topic of a group is at each broker that one of its members knows, so others
        # than its subscriptions' may know some of the members only.
        topic = client.groups.get(group)
        return (
            await brokers_of_topics(self._clock, self._brokers, [] if topic is None else [topic])
            or await brokers_of_topics(self._clock, self._brokers, [retry_topic(group)])
            or sorted(self._brokers.names())
        )


def _is_success(answer: RemotingCommand) -> bool:
    return answer.code == ResponseCode.SUCCESS


def _is_any(answer: RemotingCommand) -> bool:
    return True
