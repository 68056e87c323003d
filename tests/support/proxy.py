"""What surrounds a service of the proxy in a unit test: a call, the cluster, its clients.

brokers = PlayedBrokers()
brokers.add_topic("T", {"broker-a": 4})
brokers.answer(RequestCode.SEND_MESSAGE_V2, lambda request: request.response())
response = answer_of(service.methods()["/..."].handler(request, FakeCall()))
(asked,) = brokers.asked
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from typing import Any, NamedTuple

from google.protobuf.message import Message
from twisted.internet.defer import Deferred, ensureDeferred, fail, maybeDeferred, succeed
from twisted.internet.task import Clock
from zope.interface import implementer

from rocketmq_tw.client.message import SendResult
from rocketmq_tw.config.proxy import ProxyConfig
from rocketmq_tw.message.types import MESSAGE_TYPE
from rocketmq_tw.net.errors import ConnectError, RemotingError
from rocketmq_tw.proxy.brokers import (
    ABSENT_SECONDS,
    IBrokers,
    IProxyClient,
    Outgoing,
    send_by_request,
)
from rocketmq_tw.proxy.grpc.interfaces import GrpcError, GrpcStatus, ICall
from rocketmq_tw.proxy.heartbeat_sync.records import ProxyIdentity
from rocketmq_tw.proxy.heartbeat_sync.sync import HeartbeatSync
from rocketmq_tw.proxy.memberships import Membership
from rocketmq_tw.proxy.messaging.asked_clients import AskedClients, Recover
from rocketmq_tw.proxy.messaging.broker_times import BrokerTimes
from rocketmq_tw.proxy.messaging.popped import PopClient
from rocketmq_tw.proxy.messaging.renewal import Renewal
from rocketmq_tw.proxy.messaging.unpacking import Unpacking
from rocketmq_tw.proxy.metadata import Metadata
from rocketmq_tw.proxy.proto.messages import ClientType, Settings, TelemetryCommand
from rocketmq_tw.proxy.remoting.pops import UndeliveredPops
from rocketmq_tw.runtime.listeners import Listeners
from rocketmq_tw.runtime.threads import InThread, at_once
from rocketmq_tw.wire.bodies.base import encode_body
from rocketmq_tw.wire.bodies.queues import MessageQueue
from rocketmq_tw.wire.bodies.route import BrokerData, QueueData, TopicRouteData
from rocketmq_tw.wire.bodies.topics import TopicConfig
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import LanguageCode, RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.topics import GetTopicConfigRequestHeader
from tests.support.broker import BrokerInMemory
from tests.support.network import FakePeer
from tests.support.wait import result_of

#: What answers a request: a response, a Deferred of one, or an error to fail with.
Answer = Callable[[RemotingCommand], "RemotingCommand | Deferred[RemotingCommand]"]


def asked_clients(
    clock: Clock,
    recover: Recover,
    in_thread: InThread = at_once,
    config: ProxyConfig | None = None,
) -> AskedClients:
    """What hands questions of brokers on to clients of gRPC."""
    config = config or ProxyConfig()
    return AskedClients(clock, recover, Unpacking(config, in_thread), config)


@implementer(ICall)
class FakeCall:
    """A call of a client: `sent` are the messages of its response, `error` and `is_over` how it
    ended. With `ready` False the client does not keep up until `go_on`."""

    def __init__(
        self,
        client_id: str = "client",
        *,
        method: str = "/apache.rocketmq.v2.MessagingService/Method",
        metadata: Mapping[str, str] = {},
        authority: str = "proxy:8081",
        deadline: float | None = None,
    ) -> None:
        self.method = method
        self.metadata = {"x-mq-client-id": client_id, "x-mq-language": "PYTHON", **metadata}
        self.authority = authority
        self.address = "10.0.0.9:40000"
        self.local_address = "10.0.0.1:8081"
        self.deadline = deadline
        self.is_over = False
        self.ready = True
        #: Bytes that the handler holds, and how many it may.
        self.held, self.most_held = 0, 1 << 30
        self.sent: list[Any] = []
        self.error: GrpcError | None = None
        self._waiting: list[Callable[[], None]] = []
        self._ends: list[Callable[[], None]] = []

    def send(self, message: Message) -> None:
        if not self.is_over:
            self.sent.append(message)

    def when_ready(self, callback: Callable[[], None]) -> None:
        if self.is_over:
            return
        if self.ready:
            callback()
        else:
            self._waiting.append(callback)

    def go_on(self) -> None:
        """The client has taken what was sent."""
        self.ready = True
        self.take()

    def take(self) -> None:
        """The client takes what was sent, and keeps up no more than before."""
        waiting, self._waiting = self._waiting, []
        for callback in waiting:
            callback()

    def on_end(self, callback: Callable[[], None]) -> None:
        if self.is_over:
            callback()
        else:
            self._ends.append(callback)

    # What ends it is the caller, or an error.
    on_cut = on_end

    def hold(self, size: int) -> None:
        if size > self.most_held:
            raise GrpcError(GrpcStatus.RESOURCE_EXHAUSTED, "too many bytes are in flight")
        self.held = size

    def finish(self, error: GrpcError | None = None) -> None:
        if self.is_over:
            return
        self.is_over, self.error = True, error
        ends, self._ends, self._waiting = self._ends, [], []
        for callback in ends:
            callback()


class Asked(NamedTuple):
    """A request that a broker was asked, or told."""

    broker_name: str
    request: RemotingCommand
    timeout: float | None
    client: IProxyClient | None


@implementer(IBrokers)
class PlayedBrokers:
    """A cluster whose brokers answer what the test says. `asked` are all requests, oneway ones too,
    but those for the configuration of a topic, which is answered from `add_topic`."""

    def __init__(self) -> None:
        self.routes: dict[str, TopicRouteData] = {}
        self.types: dict[str, str] = {}
        self.asked: list[Asked] = []
        self.forgotten: list[IProxyClient] = []
        #: The groups of clients.
        self.entered: dict[IProxyClient, set[Membership]] = {}
        #: How often name servers were asked for a route anew.
        self.refreshed = 0
        #: Where set, no name server answers.
        self.route_error: RequestError | None = None
        #: Names of brokers that cannot be reached.
        self.gone: set[str] = set()
        #: Codes of requests that brokers do not answer.
        self.silent: set[int] = set()
        #: What brokers say that they are written in.
        self.language = LanguageCode.PYTHON
        #: Whether name servers have told of the brokers; none is known before.
        self.told = True
        #: Group -> clients that are not shown to brokers.
        self.hidden: dict[str, list[IProxyClient]] = {}
        self.unseen_changed = Listeners[str]("brokers see other members of a group")
        self._answers: dict[int, Answer] = {}

    def add_topic(
        self, topic: str, queues: Mapping[str, int], *, perm: int = 6, message_type: str = ""
    ) -> None:
        """Gives a topic so many queues on each broker; `message_type` is its attribute."""
        self.routes[topic] = TopicRouteData(
            queue_datas=[
                QueueData(
                    broker_name=name, read_queue_nums=count, write_queue_nums=count, perm=perm
                )
                for name, count in queues.items()
            ],
            broker_datas=[
                BrokerData(
                    cluster="DefaultCluster",
                    broker_name=name,
                    broker_addrs={0: f"{name}.example:10911"},
                )
                for name in queues
            ],
        )
        self.types[topic] = message_type

    def answer(self, code: int, answer: Answer | RemotingError | RequestError) -> None:
        """Has all brokers answer requests of a code from now on, or fail so."""
        if isinstance(answer, Exception):
            error = answer
            self._answers[code] = lambda _: fail(error)
        else:
            self._answers[code] = answer

    # IBrokers

    def route(
        self, topic: str, absent_seconds: float = ABSENT_SECONDS
    ) -> Deferred[TopicRouteData | None]:
        if self.route_error is not None:
            return fail(self.route_error)
        return succeed(self.routes.get(topic))

    def known_route(self, topic: str) -> TopicRouteData | None:
        return None if self.route_error is not None else self.routes.get(topic)

    def refresh_route(self, topic: str) -> Deferred[TopicRouteData | None]:
        self.refreshed += 1
        return self.route(topic)

    def ask(
        self,
        broker_name: str,
        request: RemotingCommand,
        timeout: float,
        client: IProxyClient | None = None,
    ) -> Deferred[RemotingCommand]:
        if request.code != RequestCode.GET_TOPIC_CONFIG:
            self.asked.append(Asked(broker_name, request, timeout, client))
        if broker_name in self.gone:
            return fail(ConnectError(f"{broker_name}.example:10911", "connection refused"))
        if request.code in self.silent:
            return Deferred()
        if request.code == RequestCode.GET_TOPIC_CONFIG:
            return succeed(self._topic_config(request))
        answer = self._answers.get(request.code)
        assert answer is not None, f"nobody answers {request!r}"
        ask: Callable[[RemotingCommand], Any] = answer
        return maybeDeferred(ask, request)

    def send(self, queue: MessageQueue, outgoing: Outgoing, timeout: float) -> Deferred[SendResult]:
        return send_by_request(self, queue, outgoing, timeout)

    def withdraw(self, request: RemotingCommand, client: IProxyClient | None = None) -> bool:
        return False

    def tell(
        self, broker_name: str, request: RemotingCommand, client: IProxyClient | None = None
    ) -> Deferred[None]:
        self.asked.append(Asked(broker_name, request, None, client))
        return succeed(None)

    def enter(
        self,
        client: IProxyClient,
        memberships: Collection[Membership],
        broker_names: Collection[str] | None = None,
    ) -> None:
        self.entered[client] = set(memberships)

    def leave(self, client: IProxyClient, memberships: Collection[Membership]) -> None:
        self.entered.get(client, set()).difference_update(memberships)

    def forget(self, client: IProxyClient) -> None:
        self.entered.pop(client, None)
        self.forgotten.append(client)

    def unseen(self, group: str) -> Collection[IProxyClient]:
        return self.hidden.get(group, [])

    def names(self) -> Sequence[str]:
        if not self.told:
            return []
        return sorted({data.broker_name for r in self.routes.values() for data in r.broker_datas})

    def are_told(self) -> bool:
        return self.told

    def _topic_config(self, request: RemotingCommand) -> RemotingCommand:
        topic = request.header(GetTopicConfigRequestHeader).topic
        if topic not in self.types:
            return request.response(ResponseCode.TOPIC_NOT_EXIST, "no such topic")
        kind = self.types[topic]
        config = TopicConfig(topic_name=topic, attributes={MESSAGE_TYPE: kind} if kind else {})
        answer = request.response(body=encode_body(config))
        answer.language = self.language
        return answer


class FakeClient:
    """A connected client; `told` are the commands of its telemetry stream."""

    def __init__(
        self,
        client_id: str = "client",
        client_type: int = ClientType.PRODUCER,
        group: str = "",
        settings: Settings | None = None,
    ) -> None:
        self.client_id = client_id
        self.client_type = client_type
        self.group = group
        self.settings = settings
        self.address = "10.0.0.9:40000"
        self.told: list[TelemetryCommand] = []
        #: Whether its stream is open.
        self.has_stream = True
        self.stream = FakeCall(client_id)

    def tell(self, command: TelemetryCommand) -> bool:
        if self.has_stream:
            self.told.append(command)
        return self.has_stream


class FakeClients(dict[str, Any]):
    """Clients by their id."""

    def __init__(self) -> None:
        super().__init__()
        self.gone: Listeners[Any] = Listeners("a client is gone")

    def join(self, client: FakeClient) -> FakeClient:
        """Connects a client."""
        self[client.client_id] = client
        return client


#: The topic of proxies in tests, and how a proxy under test names itself.
HEARTBEAT_SYNC_TOPIC = "DefaultHeartBeatSyncerTopic"
IDENTITY = ProxyIdentity("10.0.0.1", 8080, 8081)


def heartbeat_sync_of(
    clock: Clock,
    brokers: IBrokers,
    identity: ProxyIdentity = IDENTITY,
    now_ms: Callable[[], int] | None = None,
) -> HeartbeatSync:
    """What a proxy knows of others; it tells and hears nothing before `start`."""
    return HeartbeatSync(
        clock,
        brokers,
        identity,
        HEARTBEAT_SYNC_TOPIC,
        "DefaultCluster",
        lambda: 120.0,
        now_ms or (lambda: int(clock.seconds() * 1000)),
    )


def undelivered_pops(clock: Clock, brokers: IBrokers) -> UndeliveredPops:
    """What has messages come back that were popped for classic clients which are gone."""
    clients: Any = FakeClients()
    metadata = Metadata(clock, brokers)
    config = ProxyConfig()
    renewal = Renewal(clock, PopClient(brokers, BrokerTimes(clock)), clients, metadata, config)
    return UndeliveredPops(renewal, config)


def answer_of(result: Any, clock: Clock | None = None) -> Any:
    """What a handler answers: itself, or what its coroutine or Deferred fires with while `clock`
    moves on."""
    if isinstance(result, Coroutine):
        result = ensureDeferred(result)
    if isinstance(result, Deferred):
        return result_of(clock or Clock(), result)
    return result


class AnsweringPeer(FakePeer):
    """The connection of a proxy to a broker in memory: each answer fires its Deferred."""

    def __init__(self) -> None:
        super().__init__()
        self._asked: dict[int, Deferred[RemotingCommand]] = {}

    def ask(self, broker: BrokerInMemory, request: RemotingCommand) -> Deferred[RemotingCommand]:
        """Fires with the broker's answer, in this or a later turn of its clock."""
        answer: Deferred[RemotingCommand] = Deferred()
        self._asked[request.opaque] = answer
        response = broker.request(request, self)
        if response is not None and request.opaque in self._asked:
            self.reply(response)
        return answer

    def reply(self, response: RemotingCommand) -> None:
        super().reply(response)
        asked = self._asked.pop(response.opaque, None)
        if asked is not None:
            asked.callback(response)


class BrokersInMemory(PlayedBrokers):
    """A cluster of one real broker in memory, with what the test adds to it by `add_topic`."""

    def __init__(self, broker: BrokerInMemory) -> None:
        super().__init__()
        self.broker = broker
        self.peer = AnsweringPeer()

    def add_topic(
        self, topic: str, queues: Mapping[str, int], *, perm: int = 6, message_type: str = ""
    ) -> None:
        super().add_topic(topic, queues, perm=perm, message_type=message_type)
        for count in queues.values():
            attributes = {f"+{MESSAGE_TYPE}": message_type} if message_type else {}
            self.broker.add_topic(
                topic, read_queue_nums=count, write_queue_nums=count, attributes=attributes
            )

    def ask(
        self,
        broker_name: str,
        request: RemotingCommand,
        timeout: float,
        client: IProxyClient | None = None,
    ) -> Deferred[RemotingCommand]:
        return self.peer.ask(self.broker, request)
