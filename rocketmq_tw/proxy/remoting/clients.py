"""The classic clients of a proxy: their connections, and requests of brokers to them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from math import inf

from twisted.internet.defer import Deferred, fail, succeed
from twisted.python.failure import Failure
from zope.interface import implementer

from rocketmq_tw.net.errors import ConnectionLost, RequestTimeout
from rocketmq_tw.net.interfaces import IPeer
from rocketmq_tw.proxy.brokers import IBrokers, IProxyClient
from rocketmq_tw.proxy.memberships import ASKED_OF_CLIENTS
from rocketmq_tw.proxy.remoting.broker_ports import BrokerPorts
from rocketmq_tw.proxy.remoting.passing import answer_to, pass_on
from rocketmq_tw.runtime.listeners import Listeners
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError

#: Transactions of one client whose brokers are remembered; the oldest are forgotten first, and are
#: decided when their broker asks.
MAX_TRANSACTIONS = 1000
MAX_ID_LENGTH = 255
#: Groups of all clients together.
MAX_CLIENT_GROUPS = 500_000
#: Seconds without a heartbeat after which brokers are to forget a client: less than the 120 after
#: which they close the connection on which it is known, and others with it.
SILENCE = 90.0


@implementer(IProxyClient)
class ClassicClient:
    """One connection of a client; `broker_name` is the broker that its port stands for."""

    def __init__(self, peer: IPeer, broker_name: str | None) -> None:
        self._peer = peer
        self.broker_name = broker_name
        self.address = peer.address
        #: Empty until its first heartbeat.
        self.client_id = ""
        #: The brokers that it was told of in routes, or that have its topics.
        self.told_brokers: set[str] = set()
        #: The brokers of the cluster that its requests went to.
        self.named_brokers: set[str] = set()
        #: The heartbeat whose topics' brokers were looked for last, and when.
        self.searched: tuple[bytes, float] = (b"", -inf)
        #: Consumer group -> one of its topics, of the last heartbeat.
        self.groups: Mapping[str, str] = {}
        #: Broker name -> what it was last told in a heartbeat, and when.
        self.registered: dict[str, tuple[bytes, float]] = {}
        self._transactions: OrderedDict[str, str] = OrderedDict()

    @property
    def is_connected(self) -> bool:
        """Whether its connection is there still."""
        return self._peer.connected

    def ask(self, request: RemotingCommand, timeout: float) -> Deferred[RemotingCommand]:
        """Hands on a request of a broker, as `IProxyClient` says."""
        if request.code not in ASKED_OF_CLIENTS:
            return fail(
                RequestError(
                    ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                    f"request {request.code} is none that clients are asked",
                )
            )
        if request.code == RequestCode.CHECK_TRANSACTION_STATE:
            self._note_check(request)
        if request.is_oneway:
            self._peer.send_oneway(pass_on(request, oneway=True))
            return succeed(request.response())
        answer = self._peer.request(pass_on(request), timeout)
        return answer.addCallbacks(
            lambda reply: answer_to(request, reply), self._not_answered, errbackArgs=()
        )

    def note_transaction(self, transaction_id: str, broker_name: str) -> None:
        """Remembers which broker has a half message."""
        if len(transaction_id) > MAX_ID_LENGTH:
            return
        self._transactions[transaction_id] = broker_name
        if len(self._transactions) > MAX_TRANSACTIONS:
            self._transactions.popitem(last=False)

    def take_transaction(self, transaction_id: str) -> str | None:
        """Returns which broker has a half message, and forgets it; None where that is not known."""
        return self._transactions.pop(transaction_id, None)

    def _note_check(self, request: RemotingCommand) -> None:
        transaction_id = request.ext_fields.get("transactionId")
        broker_name = request.ext_fields.get("bname")
        if transaction_id and broker_name:
            self.note_transaction(transaction_id, broker_name)

    def _not_answered(self, failure: Failure) -> RemotingCommand:
        late = failure.check(RequestTimeout)
        failure.trap(RequestTimeout, ConnectionLost)
        raise RequestError(
            ResponseCode.CONSUME_MSG_TIMEOUT if late else ResponseCode.SYSTEM_ERROR,
            f"client {self.client_id}: {failure.value}",
        )


class ClassicClients:
    """The connected classic clients. A client begins with the first request of its connection and
    ends with the connection."""

    def __init__(self, brokers: IBrokers, ports: BrokerPorts) -> None:
        self._brokers = brokers
        self._ports = ports
        self._clients: dict[IPeer, ClassicClient] = {}
        #: When clients sent their last heartbeats; the longest ago is first.
        self._heard: dict[ClassicClient, float] = {}
        self._groups = 0
        #: Told of each client that is gone, or silent.
        self.gone: Listeners[ClassicClient] = Listeners("a classic client is gone")

    def __iter__(self) -> Iterator[ClassicClient]:
        return iter(list(self._clients.values()))

    def __len__(self) -> int:
        return len(self._clients)

    def of(self, peer: IPeer) -> ClassicClient:
        """Returns the client at the other end of a connection."""
        client = self._clients.get(peer)
        if client is None:
            broker_name = self._ports.broker_at(peer.local_address)
            client = self._clients[peer] = ClassicClient(peer, broker_name)
            peer.when_lost(self._lost)
        return client

    def keep_groups(self, client: ClassicClient, groups: Mapping[str, str]) -> None:
        """Remembers the consumer groups of a client, each with a topic; raises `RequestError`
        (SYSTEM_BUSY) where there is no room."""
        grown = len(groups) - len(client.groups)
        if grown > 0 and self._groups + grown > MAX_CLIENT_GROUPS:
            raise RequestError(
                ResponseCode.SYSTEM_BUSY,
                f"the clients of this proxy are in {self._groups} groups: use another proxy",
            )
        self._groups += grown
        client.groups = groups

    def note_broker(self, client: ClassicClient, broker_name: str) -> None:
        """Notes which broker a request of a client goes to, so that it hears of the client."""
        known = client.named_brokers
        if broker_name not in known and broker_name in self._brokers.names():
            known.add(broker_name)

    def heard(self, client: ClassicClient, now: float) -> None:
        """Notes a heartbeat of a client."""
        self._heard.pop(client, None)
        self._heard[client] = now

    def expire(self, now: float) -> Iterator[None]:
        """Has brokers forget clients that send no heartbeats any more, one in each step. Those
        whose connections are open may come back."""
        while self._heard:
            client, at = next(iter(self._heard.items()))
            if now - at < SILENCE:
                break
            self._forget(client)
            yield

    def _lost(self, peer: IPeer) -> None:
        client = self._clients.pop(peer, None)
        if client is not None:
            self._forget(client)

    def _forget(self, client: ClassicClient) -> None:
        self._heard.pop(client, None)
        self._groups -= len(client.groups)
        client.groups = {}
        client.registered.clear()
        self._brokers.forget(client)
        self.gone.tell(client)
