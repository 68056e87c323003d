"""The requests of classic clients, by code."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from rocketmq_tw.message.model import TRANSACTION_PREPARED
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.proxy.brokers import Endpoint, IBrokers
from rocketmq_tw.proxy.remoting.clients import ClassicClient, ClassicClients
from rocketmq_tw.proxy.remoting.groups import ClassicGroups
from rocketmq_tw.proxy.remoting.heartbeats import ClassicHeartbeats
from rocketmq_tw.proxy.remoting.passing import Passing, timeout_of
from rocketmq_tw.proxy.remoting.routes import ClassicRoutes
from rocketmq_tw.proxy.remoting.targets import Targets, named_broker
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError

#: Requests that go to the one broker that they name or whose queue they are about.
_TO_ONE_BROKER = (
    RequestCode.CONSUMER_SEND_MSG_BACK,
    RequestCode.RECALL_MESSAGE,
    RequestCode.PULL_MESSAGE,
    RequestCode.LITE_PULL_MESSAGE,
    RequestCode.POP_MESSAGE,
    RequestCode.ACK_MESSAGE,
    RequestCode.BATCH_ACK_MESSAGE,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
    RequestCode.PEEK_MESSAGE,
    RequestCode.NOTIFICATION,
    RequestCode.POLLING_INFO,
    RequestCode.QUERY_CONSUMER_OFFSET,
    RequestCode.UPDATE_CONSUMER_OFFSET,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
    RequestCode.GET_MAX_OFFSET,
    RequestCode.GET_MIN_OFFSET,
    RequestCode.GET_EARLIEST_MSG_STORETIME,
    RequestCode.LOCK_BATCH_MQ,
    RequestCode.UNLOCK_BATCH_MQ,
)
#: Sends: code -> the field with the flags of the message.
_SENDS = {
    RequestCode.SEND_MESSAGE: "sysFlag",
    RequestCode.SEND_MESSAGE_V2: "f",
    RequestCode.SEND_BATCH_MESSAGE: "f",
    RequestCode.SEND_REPLY_MESSAGE: "sysFlag",
    RequestCode.SEND_REPLY_MESSAGE_V2: "f",
}
_OF_GROUPS = (
    RequestCode.GET_CONSUMER_LIST_BY_GROUP,
    RequestCode.GET_CONSUMER_CONNECTION_LIST,
    RequestCode.GET_CONSUMER_RUNNING_INFO,
)


class ClassicRequests:
    """Answers classic clients, whose brokers all have the proxy's address. `advertised` is what
    routes name in place of the address at which a client asked."""

    def __init__(
        self, brokers: IBrokers, clock: IReactorTime, advertised: Endpoint | None = None
    ) -> None:
        self._brokers = brokers
        self.clients = ClassicClients(brokers)
        self._passing = Passing(brokers)
        self._targets = Targets(brokers)
        self._routes = ClassicRoutes(brokers, self.clients, advertised)
        self._heartbeats = ClassicHeartbeats(brokers, self.clients, clock)
        self._groups = ClassicGroups(brokers, self.clients, self._passing)

    def handlers(self) -> dict[int, Handler]:
        """Returns the handlers by request code. No request of administrators is among them: a
        broker would take it for one of the proxy, and judge by its address."""
        return {
            **dict.fromkeys(map(int, _TO_ONE_BROKER), self.pass_on),
            **dict.fromkeys(map(int, _SENDS), self.send),
            **dict.fromkeys(map(int, _OF_GROUPS), self._groups.of_group),
            RequestCode.END_TRANSACTION: self.end_transaction,
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self._routes.route,
            RequestCode.HEART_BEAT: self._heartbeats.heartbeat,
            RequestCode.UNREGISTER_CLIENT: self._heartbeats.unregister,
            RequestCode.CHECK_CLIENT_CONFIG: self._groups.check_client,
            RequestCode.QUERY_ASSIGNMENT: self._groups.assignment,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self._groups.consume_directly,
        }

    def pass_on(
        self, request: RemotingCommand, peer: IPeer
    ) -> RemotingCommand | Deferred[RemotingCommand]:
        """Passes a request on to its one broker."""
        client = self.clients.of(peer)
        timeout = timeout_of(request)
        name = named_broker(request)
        if name is not None:
            return self._passing.to(name, request, client, timeout)
        found = Deferred.fromCoroutine(self._targets.find(request))
        return found.addCallback(
            lambda name: self._passing.to(name, request, client, timeout),
        )

    def send(
        self, request: RemotingCommand, peer: IPeer
    ) -> RemotingCommand | Deferred[RemotingCommand]:
        """10, 310, 320, 324 and 325. Which broker takes a half message is remembered for clients
        that will not name it."""
        if named_broker(request) is not None or not _is_half(request):
            return self.pass_on(request, peer)
        return Deferred.fromCoroutine(self._send_half(request, self.clients.of(peer)))

    def end_transaction(
        self, request: RemotingCommand, peer: IPeer
    ) -> RemotingCommand | Deferred[RemotingCommand]:
        """37: goes to the broker that has the half message."""
        client = self.clients.of(peer)
        transaction_id = request.ext_fields.get("transactionId", "")
        name = named_broker(request) or client.take_transaction(transaction_id)
        if name is None:
            names = self._brokers.names()
            if len(names) != 1:
                raise RequestError(
                    ResponseCode.VERSION_NOT_SUPPORTED,
                    f"which of {len(names)} brokers has transaction {transaction_id} is not known"
                    " here any more: decide when the broker asks, or use a client of 5.0 or later",
                )
            name = names[0]
        return self._passing.to(name, request, client)

    async def _send_half(self, request: RemotingCommand, client: ClassicClient) -> RemotingCommand:
        name = await self._targets.find(request)
        answer = self._passing.to(name, request, client)
        if isinstance(answer, Deferred):
            answer = await answer
        transaction_id = answer.ext_fields.get("transactionId")
        if transaction_id and answer.code == ResponseCode.SUCCESS:
            client.note_transaction(transaction_id, name)
        return answer


def _is_half(request: RemotingCommand) -> bool:
    flags = request.ext_fields.get(_SENDS[RequestCode(request.code)], "0")
    return flags.isdecimal() and len(flags) < 11 and bool(int(flags) & TRANSACTION_PREPARED)
