"""Sends of classic clients (10, 310, 320, 324, 325) and the ends of their transactions (37)."""

from __future__ import annotations

from twisted.internet.defer import Deferred

from rocketmq_tw.message.model import TRANSACTION_PREPARED
from rocketmq_tw.message.names import REVIVE_PREFIX, TIMER_TOPIC
from rocketmq_tw.message.properties import parse_properties
from rocketmq_tw.message.types import check_message_type
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.proxy.brokers import IBrokers
from rocketmq_tw.proxy.metadata import Metadata
from rocketmq_tw.proxy.remoting.clients import ClassicClient, ClassicClients
from rocketmq_tw.proxy.remoting.passing import Passing
from rocketmq_tw.proxy.remoting.targets import SHORT_NAMES, Targets, named_broker
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError

_SENDS = (
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE_V2,
)

#: Seconds for which brokers are waited for to say what a topic takes: clients give up after 3 s.
_TYPE_SECONDS = 1.0


class ClassicSends:
    """Passes messages on to brokers, and decisions to the brokers that have the half messages. With
    `metadata` topics take messages of their type only. `proxies_topic` is the one by which proxies
    tell each other of consumers; empty without."""

    def __init__(
        self,
        brokers: IBrokers,
        clients: ClassicClients,
        passing: Passing,
        targets: Targets,
        metadata: Metadata | None,
        proxies_topic: str,
    ) -> None:
        self._brokers = brokers
        self._clients = clients
        self._passing = passing
        self._targets = targets
        self._metadata = metadata
        self._not_for_clients = frozenset(filter(None, (TIMER_TOPIC, proxies_topic)))

    def handlers(self) -> dict[int, Handler]:
        """Returns the handlers by request code."""
        return {
            **dict.fromkeys(map(int, _SENDS), self.send),
            RequestCode.END_TRANSACTION: self.end_transaction,
        }

    def send(
        self, request: RemotingCommand, peer: IPeer
    ) -> RemotingCommand | Deferred[RemotingCommand]:
        """Sends go to the broker that they name, or that has their queue. Check points of pops are
        none of a client's: brokers take them from a proxy as from one of their cluster. Nor is what
        waits for its time, which the timer puts into any topic, and what proxies believe."""
        topic = request.ext_fields.get("b" if request.code in SHORT_NAMES else "topic", "")
        if topic.startswith(REVIVE_PREFIX) or topic in self._not_for_clients:
            raise RequestError(
                ResponseCode.NO_PERMISSION,
                f"servers use {topic} themselves: send to another topic",
            )
        client = self._clients.of(peer)
        name = named_broker(request) or client.broker_name
        if name is not None and self._metadata is None:
            self._clients.note_broker(client, name)
            return self._passing.to(name, request, client)
        return Deferred.fromCoroutine(self._send(request, client, name))

    def end_transaction(
        self, request: RemotingCommand, peer: IPeer
    ) -> RemotingCommand | Deferred[RemotingCommand]:
        """Answers 37: goes to the broker that has the half message."""
        client = self._clients.of(peer)
        transaction_id = request.ext_fields.get("transactionId", "")
        name = (
            named_broker(request) or client.broker_name or client.take_transaction(transaction_id)
        )
        if name is None:
            names = self._brokers.names()
            if len(names) != 1:
                raise RequestError(
                    ResponseCode.VERSION_NOT_SUPPORTED,
                    f"which of {len(names)} brokers has transaction {transaction_id[:40]} is not"
                    " known here: decide when the broker asks, use a client of 5.0 or later, or"
                    " give each broker a port of its own (remotingBrokerPorts)",
                )
            name = names[0]
        return self._passing.to(name, request, client)

    async def _send(
        self, request: RemotingCommand, client: ClassicClient, name: str | None
    ) -> RemotingCommand:
        await self._check_type(request)
        found = name or await self._targets.find(request)
        self._clients.note_broker(client, found)
        answer = self._passing.to(found, request, client)
        if isinstance(answer, Deferred):
            answer = await answer
        if name is None and answer.code == ResponseCode.SUCCESS and _is_half(request):
            # The client will not name the broker in its decision either.
            transaction_id = answer.ext_fields.get("transactionId")
            if transaction_id:
                client.note_transaction(transaction_id, found)
        return answer

    async def _check_type(self, request: RemotingCommand) -> None:
        if self._metadata is None:
            return
        is_short = request.code in SHORT_NAMES
        name = request.ext_fields.get("b" if is_short else "topic", "")
        topic = await self._metadata.topic_within(name, _TYPE_SECONDS)
        if topic is not None:
            text = request.ext_fields.get("i" if is_short else "properties", "")
            check_message_type(topic, parse_properties(text))


def _is_half(request: RemotingCommand) -> bool:
    flags = request.ext_fields.get("f" if request.code in SHORT_NAMES else "sysFlag", "0")
    return flags.isdecimal() and len(flags) < 11 and bool(int(flags) & TRANSACTION_PREPARED)
