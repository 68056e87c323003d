"""Hours of a name server and a proxy, with a broker behind: clients of both protocols, topics,
groups and further brokers come and go."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from typing import Any

from twisted.internet.protocol import Factory
from twisted.internet.testing import MemoryReactorClock

from rocketmq_tw.config.namesrv import NamesrvConfig
from rocketmq_tw.config.net import NettyServerConfig
from rocketmq_tw.config.proxy import ProxyConfig
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.namesrv.namesrv import NameServer
from rocketmq_tw.net.client import RemotingClient
from rocketmq_tw.net.server import RemotingServer
from rocketmq_tw.proxy.brokers import IBrokers
from rocketmq_tw.proxy.cluster.brokers import ClusterBrokers
from rocketmq_tw.proxy.grpc.server import GrpcConfig, GrpcServer
from rocketmq_tw.proxy.local.brokers import LocalBrokers
from rocketmq_tw.proxy.messaging.methods import path
from rocketmq_tw.proxy.proto import messages as pb
from rocketmq_tw.proxy.proto.messages import Duration
from rocketmq_tw.proxy.proxy import Proxy
from rocketmq_tw.runtime.clock import wall_clock_ms
from rocketmq_tw.wire.bodies.base import encode_body
from rocketmq_tw.wire.bodies.groups import SubscriptionGroupConfig
from rocketmq_tw.wire.bodies.registration import RegisterBrokerBody
from rocketmq_tw.wire.bodies.topics import TopicConfig, TopicConfigTable
from rocketmq_tw.wire.codes import RequestCode as Code
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.base import Header
from rocketmq_tw.wire.headers.clients import (
    DeleteSubscriptionGroupRequestHeader,
    UnregisterClientRequestHeader,
)
from rocketmq_tw.wire.headers.namesrv import (
    DeleteTopicFromNamesrvRequestHeader,
    GetRouteInfoRequestHeader,
    RegisterBrokerRequestHeader,
    UnRegisterBrokerRequestHeader,
)
from rocketmq_tw.wire.headers.topics import DeleteTopicRequestHeader
from tests.support.broker import BrokerInMemory, Threads
from tests.support.heartbeats import heartbeat_of, push_consumer
from tests.support.http2 import Http2Client, Response, framed
from tests.support.network import MemoryNetwork

NAMES, PROXY = "10.0.0.1:9876", "10.0.0.2:8081"
#: Clients of each protocol in one hour.
CLIENTS = 6
#: How the topics of retries and of dead letters begin that groups leave.
_OF_GROUPS = ("%RETRY%", "%DLQ%G")


class GrpcApplicant:
    """A client of RocketMQ 5 with its connection and its Telemetry stream."""

    def __init__(self, hours: ProxyHours, host: str, client_id: str) -> None:
        self.hours = hours
        self.client_id = client_id
        made: list[Any] = []
        factory = Factory.forProtocol(Http2Client)
        hours.network.connect(host, PROXY, factory).addCallback(made.append)
        (self.http2,) = made
        self._headers = {"x-mq-client-id": client_id, "x-mq-language": "PYTHON"}
        hours.turns()

    def tell(self, settings: pb.Settings) -> None:
        """Opens the stream and says what the client is."""
        stream, response = self.http2.open(path("Telemetry"), self._headers)
        command = pb.TelemetryCommand(settings=settings)
        self.http2.send(stream, framed(command.SerializeToString()))
        self.hours.turns()
        assert response.messages, response

    def begin(self, method: str, request: Any) -> Response:
        """Asks, and goes on."""
        stream, response = self.http2.open(path(method), self._headers)
        self.http2.send(stream, framed(request.SerializeToString()), end=True)
        return response

    def ask(self, method: str, request: Any, kind: type[Any]) -> list[Any]:
        """The messages of the response, however long it takes."""
        response = self.begin(method, request)
        for turn in range(400):
            if response.ended or response.reset is not None:
                break
            self.hours.clock.advance(0 if turn < 20 else 0.1)
        assert response.status == 0, (method, response)
        return [kind.FromString(message) for message in response.messages]

    def send(self, topic: str, **system: Any) -> Any:
        """The entry of the answer to a send."""
        message = pb.Message(
            topic=pb.Resource(name=topic),
            body=b"body",
            system_properties=pb.SystemProperties(
                message_id=f"{self.client_id}-{next(self.hours.numbers)}", **system
            ),
        )
        answers = self.ask(
            "SendMessage", pb.SendMessageRequest(messages=[message]), pb.SendMessageResponse
        )
        assert answers[0].status.code == pb.OK, answers
        return answers[0].entries[0]

    def receive(self, group: str, topic: str, **fields: Any) -> list[Any]:
        """Messages that were received."""
        request: dict[str, Any] = {
            "group": pb.Resource(name=group),
            "message_queue": pb.MessageQueue(topic=pb.Resource(name=topic)),
            "filter_expression": pb.FilterExpression(type=pb.TAG, expression="*"),
            "batch_size": 8,
            "auto_renew": True,
            "long_polling_timeout": Duration(seconds=2),
        }
        answers = self.ask(
            "ReceiveMessage",
            pb.ReceiveMessageRequest(**request | fields),
            pb.ReceiveMessageResponse,
        )
        return [each.message for each in answers if each.WhichOneof("content") == "message"]

    def lose(self) -> None:
        """The connection is lost."""
        self.http2.transport.abortConnection()


class ProxyHours:
    """`hour` lets everything come and go."""

    def __init__(self, *, is_local: bool = False, **config: Any) -> None:
        """`is_local`: the proxy is in the broker's process."""
        self.clock = MemoryReactorClock()
        self.network = MemoryNetwork(self.clock)
        self.numbers = count(1)
        net = NettyServerConfig()
        self.names = NameServer(
            self.clock,
            MemoryFiles(),
            NamesrvConfig(kv_config_path="/kv.json", config_store_path="/ns.properties"),
            client=self.network.client("10.0.0.1"),
            in_thread=Threads(),
        )
        self.names.start(RemotingServer(self.clock, net))
        listener: Any = self.names._listener
        self.network.listen(NAMES, listener.factory)
        self.broker = BrokerInMemory(
            clock=self.clock,
            network=self.network,
            address="10.0.0.3:10911",
            broker={"namesrv_addr": NAMES, "transaction_time_out": 5_000},
        )
        # A proxy's handles have the time of its own machine.
        self.broker.shift_ms = wall_clock_ms() - self.broker.now_ms()
        self.config = ProxyConfig(
            namesrv_addr=NAMES, enable_topic_message_type_check=False, **config
        )
        cluster = ClusterBrokers(self.clock, self.config, self._connect)
        cluster.start()
        self.brokers: IBrokers = cluster
        if is_local:
            self.brokers = LocalBrokers(self.clock, self.broker.broker, cluster)
        self.proxy = Proxy(self.clock, self.config, self.brokers, Threads())
        grpc = GrpcServer(self.clock, GrpcConfig(), self.proxy.methods, None)
        self.server = RemotingServer(self.clock, net)
        self.listener = self.server.listener(http2=grpc.connection)
        self.listener.serve(self.proxy.handlers)
        self.network.listen(PROXY, self.listener.factory)
        self.proxy.start()
        self.pass_time(35)
        self.client = self._grpc_client(0, "stays", "Stays")
        self.pass_time(35)
        self._ends = self.clock.seconds()

    def roots(self) -> Iterable[object]:
        """The servers."""
        return self.names, self.proxy, self.brokers, self.server, self.listener, self.clock

    def _connect(self) -> RemotingClient:
        return self.network.client("10.0.0.2", clock=self.clock)

    def turns(self) -> None:
        """All that is on its way arrives."""
        for _ in range(20):
            self.clock.advance(0)

    def pass_time(self, seconds: float, step: float = 0.5) -> None:
        """Everything periodic happens some times."""
        self.clock.pump([step] * round(seconds / step))

    def _grpc_client(self, number: int, group: str, topic: str) -> GrpcApplicant:
        if topic not in self.broker.topics:
            self.broker.add_topic(topic, read_queue_nums=2, write_queue_nums=2)
            self.pass_time(1)
        if group not in self.broker.groups:
            self.broker.groups.update(SubscriptionGroupConfig(group_name=group, retry_max_times=2))
        client = GrpcApplicant(self, f"10.5.{number % 250}.9", f"{group}-{next(self.numbers)}")
        kind = pb.PRODUCER if number % 3 == 2 else pb.SIMPLE_CONSUMER
        settings = pb.Settings(client_type=kind)
        if kind == pb.PRODUCER:
            settings.publishing.topics.add(name=topic)
        else:
            settings.subscription.group.name = group
            entry = settings.subscription.subscriptions.add()
            entry.topic.name = topic
            entry.expression.type, entry.expression.expression = pb.TAG, "*"
        client.tell(settings)
        return client

    def hour(self) -> None:
        """Clients come, use what is theirs, and go in every way. It takes an hour to the second, so
        that what is periodic is where it was."""
        self._ends += 3600
        number = next(self.numbers)
        topics = [f"T{number}-{each}" for each in range(3)]
        groups = [f"G{number}-{each}" for each in range(3)]
        others = self._other_brokers(number, topics)
        clients = [
            self._grpc_client(each, groups[each % 3], topics[each % 3]) for each in range(CLIENTS)
        ]
        self.pass_time(25)
        others += self._classic(number, groups, topics)
        for each, client in enumerate(clients):
            self._use(client, groups[each % 3], topics[each % 3])
        self._use(self.client, "stays", "Stays")
        self._use(self.client, "stays", topics[0])
        # Some name what is not there.
        lost = clients[0].begin(
            "QueryRoute", pb.QueryRouteRequest(topic=pb.Resource(name=f"missing{number}"))
        )
        self.pass_time(60)
        assert lost.ended
        for each, client in enumerate(clients):
            if each % 3 == 0:
                request = pb.NotifyClientTerminationRequest(
                    group=pb.Resource(name=groups[each % 3])
                )
                client.ask("NotifyClientTermination", request, pb.NotifyClientTerminationResponse)
            if each % 3 < 2:
                client.lose()
        self._wait_for_silence()
        for client in clients:
            if not client.http2.lost:
                client.lose()
        for other in others:
            other.close()
        self._delete(topics, groups)
        self._wait_for_silence()
        while self.clock.seconds() < self._ends - 100:
            self.clock.advance(100)
            self._heartbeat()
            self.turns()
        self.pass_time(self._ends - self.clock.seconds())

    def _wait_for_silence(self) -> None:
        for _ in range(5):
            self._heartbeat()
            self.pass_time(28)

    def _heartbeat(self) -> None:
        request = pb.HeartbeatRequest(
            group=pb.Resource(name="stays"), client_type=pb.SIMPLE_CONSUMER
        )
        if self.client.http2.lost:
            self.client = self._grpc_client(0, "stays", "Stays")
        self.client.begin("Heartbeat", request)
        self.turns()

    def _use(self, client: GrpcApplicant, group: str, topic: str) -> None:
        client.ask(
            "QueryRoute",
            pb.QueryRouteRequest(topic=pb.Resource(name=topic)),
            pb.QueryRouteResponse,
        )
        for _ in range(6):
            client.send(topic, message_type=pb.NORMAL)
        for kind in range(3):
            half = client.send(
                topic,
                message_type=pb.TRANSACTION,
                orphaned_transaction_recovery_duration=Duration(seconds=10),
            )
            if kind < 2:
                client.ask(
                    "EndTransaction",
                    pb.EndTransactionRequest(
                        topic=pb.Resource(name=topic),
                        message_id=half.message_id,
                        transaction_id=half.transaction_id,
                        resolution=pb.COMMIT if kind else pb.ROLLBACK,
                    ),
                    pb.EndTransactionResponse,
                )
        messages = client.receive(group, topic)
        names = {"group": pb.Resource(name=group), "topic": pb.Resource(name=topic)}
        for each, message in enumerate(messages):
            system = message.system_properties
            handle, message_id = system.receipt_handle, system.message_id
            if each % 4 == 0:
                entry = pb.AckMessageEntry(message_id=message_id, receipt_handle=handle)
                request = pb.AckMessageRequest(entries=[entry], **names)
                client.ask("AckMessage", request, pb.AckMessageResponse)
            elif each % 4 == 1:
                hide = pb.ChangeInvisibleDurationRequest(
                    receipt_handle=handle,
                    message_id=message_id,
                    invisible_duration=Duration(seconds=20),
                    **names,
                )
                client.ask("ChangeInvisibleDuration", hide, pb.ChangeInvisibleDurationResponse)
            elif each % 4 == 2:
                bury = pb.ForwardMessageToDeadLetterQueueRequest(
                    receipt_handle=handle,
                    message_id=message_id,
                    delivery_attempt=2,
                    max_delivery_attempts=2,
                    **names,
                )
                client.ask(
                    "ForwardMessageToDeadLetterQueue",
                    bury,
                    pb.ForwardMessageToDeadLetterQueueResponse,
                )
        # One that waits when its client goes.
        client.begin(
            "ReceiveMessage",
            pb.ReceiveMessageRequest(
                group=pb.Resource(name=group),
                message_queue=pb.MessageQueue(topic=pb.Resource(name=topic)),
                filter_expression=pb.FilterExpression(type=pb.TAG, expression="none"),
                batch_size=1,
                auto_renew=True,
                long_polling_timeout=Duration(seconds=20),
            ),
        )

    # Classic clients

    def _classic(self, number: int, groups: list[str], topics: list[str]) -> list[RemotingClient]:
        """They register, send and pull; some say goodbye, some are lost; returns those that are
        silent from now on."""
        silent = []
        for each in range(CLIENTS):
            remoting = self.network.client(f"10.6.{number % 250}.{each + 1}")
            client_id, group, topic = f"c{number}-{each}", groups[each % 3], topics[each % 3]
            ask = remoting.request
            data = heartbeat_of(client_id, push_consumer(group, topic), producer=group)
            requests: list[tuple[int, Header | None, bytes]] = [
                (Code.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic=topic), b""),
                (Code.HEART_BEAT, None, encode_body(data)),
            ]
            for code, header, body in requests:
                ask(PROXY, RemotingCommand.request(code, header, body), 9.0).addBoth(_nothing)
                self.pass_time(0.5)
            send = self.broker.send_request(
                b"body",
                topic=topic,
                properties={"TRAN_MSG": "true", "PGROUP": group, "UNIQ_KEY": client_id},
            )
            ask(PROXY, send, 9.0).addBoth(_nothing)
            pull = self.broker.pull_request(
                10_000, suspend_ms=30_000, consumer_group=group, topic=topic
            )
            pull.ext_fields["bname"] = "broker-a"
            ask(PROXY, pull, 60.0).addBoth(_nothing)
            self.pass_time(0.5)
            if each % 3 == 0:
                leave = UnregisterClientRequestHeader(
                    client_id=client_id, producer_group=group, consumer_group=group
                )
                command = RemotingCommand.request(Code.UNREGISTER_CLIENT, leave)
                ask(PROXY, command, 9.0).addBoth(_nothing)
                self.pass_time(0.5)
            if each % 3 < 2:
                remoting.close()
            else:
                silent.append(remoting)
        return silent

    # Name servers

    def _other_brokers(self, number: int, topics: list[str]) -> list[RemotingClient]:
        """Brokers that come, and go by their word, by a loss or in silence; nobody listens at
        their addresses."""
        brokers = []
        for each in range(6):
            name, address = f"b{number}-{each % 3}", f"10.7.{number % 250}.{each}:10911"
            header = RegisterBrokerRequestHeader(
                broker_name=name,
                broker_addr=address,
                cluster_name=f"cluster{number}",
                ha_server_addr=address,
                broker_id=each // 3,
            )
            known = [TopicConfig(topic_name=each) for each in (name, *topics, f"own{number}")]
            table = TopicConfigTable(
                topic_config_table={config.topic_name: config for config in known}
            )
            body = encode_body(RegisterBrokerBody(topic_config_serialize_wrapper=table))
            remoting = self.network.client(f"10.7.{number % 250}.{each}")
            command = RemotingCommand.request(Code.REGISTER_BROKER, header, body)
            remoting.request(NAMES, command, 9.0).addBoth(_nothing)
            self.turns()
            if each == 0:
                gone = UnRegisterBrokerRequestHeader(
                    broker_name=name,
                    broker_addr=address,
                    cluster_name=f"cluster{number}",
                    broker_id=each // 3,
                )
                command = RemotingCommand.request(Code.UNREGISTER_BROKER, gone)
                remoting.request(NAMES, command, 9.0).addBoth(_nothing)
                self.turns()
            if each % 3 == 1:
                remoting.close()
            brokers.append(remoting)
        return brokers

    def _delete(self, topics: list[str], groups: list[str]) -> None:
        admin = self.network.client("10.9.9.9")

        def ask(address: str, code: int, header: Header) -> None:
            admin.request(address, RemotingCommand.request(code, header), 9.0).addBoth(_nothing)
            self.pass_time(0.5)

        retries = [name for name in self.broker.topics.all() if name.startswith(_OF_GROUPS)]
        for topic in (*topics, *retries):
            ask(
                self.broker.address,
                Code.DELETE_TOPIC_IN_BROKER,
                DeleteTopicRequestHeader(topic=topic),
            )
            ask(
                NAMES,
                Code.DELETE_TOPIC_IN_NAMESRV,
                DeleteTopicFromNamesrvRequestHeader(topic=topic),
            )
        for group in groups:
            ask(
                self.broker.address,
                Code.DELETE_SUBSCRIPTIONGROUP,
                DeleteSubscriptionGroupRequestHeader(group_name=group, clean_offset=True),
            )
        admin.close()


def _nothing(_: object) -> None:
    return None
