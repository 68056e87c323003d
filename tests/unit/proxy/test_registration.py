"""Brokers know the gRPC clients of a proxy, over the network and in their own process."""

from __future__ import annotations

import json
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent

import rocketmq_tw.proxy.registration as module
from rocketmq_tw.config.proxy import ProxyConfig
from rocketmq_tw.net.errors import RequestTimeout
from rocketmq_tw.proxy.broker_lines import SAY_BROKER_AGAIN_SECONDS
from rocketmq_tw.proxy.brokers import IBrokers
from rocketmq_tw.proxy.clients import ProxyClient, ProxyClients
from rocketmq_tw.proxy.cluster.brokers import ClusterBrokers
from rocketmq_tw.proxy.local.brokers import LocalBrokers
from rocketmq_tw.proxy.proto import messages as pb
from rocketmq_tw.proxy.registration import ClientRegistration
from rocketmq_tw.runtime.slices import Slices, all_steps
from rocketmq_tw.structs import msgspec
from rocketmq_tw.wire.bodies.base import decode_body
from rocketmq_tw.wire.bodies.clients import (
    ConsumeMessageDirectlyResult,
    ConsumerConnection,
    ConsumerRunningInfo,
    HeartbeatData,
)
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.clients import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerConnectionListRequestHeader,
    GetConsumerRunningInfoRequestHeader,
)
from rocketmq_tw.wire.headers.pop import PopMessageRequestHeader
from tests.support.broker import BrokerInMemory, ok
from tests.support.name_server import NameServerInMemory
from tests.support.proxy import (
    HEARTBEAT_SYNC_TOPIC,
    FakeCall,
    PlayedBrokers,
    answer_of,
    asked_clients,
    heartbeat_sync_of,
)
from tests.support.tables import tables_of

NAME_SERVER = "10.0.0.1:9876"
BROKER = "10.0.0.2:10911"
RELAY_SECONDS = 3
#: What brokers wait for that they ask client `b`.
WAITED_FOR = {
    RequestCode.GET_CONSUMER_RUNNING_INFO: GetConsumerRunningInfoRequestHeader(
        consumer_group="g", client_id="b", jstack_enable=True
    ),
    RequestCode.CONSUME_MESSAGE_DIRECTLY: ConsumeMessageDirectlyResultRequestHeader(
        consumer_group="g", client_id="b"
    ),
}


class Site:
    """A broker, and a proxy before it or in its process; time passes when the test says so."""

    def __init__(self, *, is_local: bool, lanes: int = 64) -> None:
        self.broker = BrokerInMemory(
            address=BROKER, broker={"namesrv_addr": NAME_SERVER, "auto_create_topic_enable": True}
        )
        self.clock = self.broker.clock
        names = NameServerInMemory(self.clock)
        self.broker.network.serve(NAME_SERVER, names.handlers)
        self.broker.add_topic("Topic")
        config = msgspec.structs.replace(
            ProxyConfig(),
            namesrv_addr=NAME_SERVER,
            max_connections_per_broker=lanes,
            grpc_proxy_relay_request_timeout_in_seconds=RELAY_SECONDS,
        )
        self.cluster = ClusterBrokers(
            self.clock, config, lambda: self.broker.network.client("10.0.0.3")
        )
        self.names = names
        brokers: IBrokers = self.cluster
        if is_local:
            brokers = LocalBrokers(self.clock, self.broker.broker, self.cluster)
        self.brokers = brokers
        self.asked = asked_clients(self.clock, lambda client, request: None, config=config)
        self.clients = ProxyClients(self.clock.seconds, self.asked.hand_on, lambda: 120.0)
        self.heartbeat_sync = heartbeat_sync_of(self.clock, brokers)
        self.registration = ClientRegistration(
            self.clock, brokers, self.clients, all_steps, self.heartbeat_sync.telling
        )
        self.pass_time(35)
        self.cluster.start()
        self.registration.start()
        self.pass_time(6)

    def pass_time(self, seconds: float) -> None:
        self.clock.pump([0.1] * int(seconds * 10))

    def enter(
        self, client_id: str, group: str = "g", topic: str = "Topic", language: str = "PYTHON"
    ) -> FakeCall:
        """A consumer tells its settings."""
        settings = pb.Settings(client_type=pb.SIMPLE_CONSUMER)
        settings.subscription.group.name = group
        settings.subscription.subscriptions.add().topic.name = topic
        call = FakeCall(client_id, metadata={"x-mq-language": language})
        self.clients.settle(client_id, call, settings, group, [topic])
        self.pass_time(1)
        return call

    def ask(self, code: int, header: Any) -> RemotingCommand:
        """A tool asks the broker."""
        answers: list[RemotingCommand] = []
        asked = self.broker.network.client("10.0.0.9").request(
            BROKER, RemotingCommand.request(code, header), 5.0
        )
        asked.addCallback(answers.append)
        self.pass_time(1)
        (answer,) = answers
        return answer

    def online(self, group: str = "g") -> list[str]:
        """The clients that 203 has of a group."""
        return sorted(self.languages(group))

    def languages(self, group: str = "g") -> dict[str, str | None]:
        """The language of each of these."""
        header = GetConsumerConnectionListRequestHeader(consumer_group=group)
        answer = self.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
        if answer.code == ResponseCode.CONSUMER_NOT_ONLINE:
            return {}
        body = decode_body(ConsumerConnection, answer.body)
        assert set(body.subscription_table) == {"Topic"}
        return {str(each.client_id): each.language for each in body.connection_set}


@pytest.fixture(params=["cluster", "local"])
def site(request: pytest.FixtureRequest) -> Site:
    return Site(is_local=request.param == "local")


def test_clients_of_one_group_stand_side_by_side(site: Site) -> None:
    for client_id in ("a", "b", "c"):
        site.enter(client_id)
    site.enter("d", "other")
    assert site.online() == ["a", "b", "c"]
    assert site.online("other") == ["d"]
    # Three heartbeats later they do still.
    for _ in range(3):
        site.pass_time(50)
        for client in site.clients:
            site.clients.heard(client)
    assert site.online() == ["a", "b", "c"]


def test_brokers_know_the_language_of_each_client(site: Site) -> None:
    for language in ("JAVA", "GO", "KLINGON"):
        site.enter(language.lower(), language=language)
    assert site.languages() == {"java": "JAVA", "go": "GO", "klingon": "OTHER"}


def test_settings_that_no_other_proxy_can_be_told_are_taken(site: Site) -> None:
    settings = pb.Settings(client_type=pb.SIMPLE_CONSUMER)
    settings.subscription.group.name = "g"
    settings.subscription.subscriptions.add().topic.name = "Topic"
    settings.request_timeout.nanos = -(1 << 31)
    settings.subscription.long_polling_timeout.seconds = 1 << 62
    site.heartbeat_sync.telling.start()
    site.clients.settle("odd", FakeCall("odd"), settings, "g", ["Topic"])
    site.pass_time(1)
    assert site.online() == ["odd"]


def test_nothing_is_left_of_brokers_that_are_gone(site: Site) -> None:
    for number in range(5):
        name = f"broker-{number}"
        site.names.register(f"10.0.1.{number}:10911", name, f"T{number}", 1)
        site.enter(f"c{number}", topic=f"T{number}")
    site.pass_time(30)
    assert (
        tables_of(site.registration, outside=(ClusterBrokers, LocalBrokers))[
            "ClientRegistration._telling"
        ]
        <= 5
    )
    for number in range(5):
        site.clients.remove(f"c{number}")
    site.pass_time(30)
    left = tables_of(site.registration, outside=(ClusterBrokers, LocalBrokers))
    assert left["ClientRegistration._telling"] == 0


def test_a_client_that_goes_is_known_no_more(site: Site) -> None:
    site.enter("a")
    site.enter("b")
    site.clients.remove("a")
    site.pass_time(1)
    assert site.online() == ["b"]
    site.pass_time(121)
    assert site.online() == []


def test_the_client_that_is_meant_is_asked(site: Site) -> None:
    site.enter("a")
    call = site.enter("b")
    header = GetConsumerRunningInfoRequestHeader(consumer_group="g", client_id="b")
    answer = site.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, header)
    assert answer.code == ResponseCode.SUCCESS
    (wanted,) = decode_body(ConsumerRunningInfo, answer.body).subscription_set
    assert wanted.topic == "Topic"
    call.finish()
    header = GetConsumerRunningInfoRequestHeader(
        consumer_group="g", client_id="b", jstack_enable=True
    )
    answer = site.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, header)
    assert answer.code != ResponseCode.SUCCESS and "no open stream" in (answer.remark or "")


@pytest.mark.parametrize("code", sorted(WAITED_FOR))
def test_a_client_that_does_not_answer_is_waited_for_as_long_as_the_key_says(
    site: Site, code: int
) -> None:
    """`grpcProxyRelayRequestTimeoutInSeconds`, which is less than brokers wait."""
    call, header = site.enter("b"), WAITED_FOR[code]
    answers: list[RemotingCommand] = []
    request = RemotingCommand.request(code, header)
    request.ext_fields["msgId"] = ok(site.broker.send())["msgId"]
    asked = site.broker.network.client("10.0.0.9").request(BROKER, request, 30.0)
    asked.addCallback(answers.append)
    site.pass_time(RELAY_SECONDS - 0.5)
    assert len(call.sent) == 1 and not answers
    site.pass_time(1)
    (answer,) = answers
    assert answer.code == ResponseCode.CONSUME_MSG_TIMEOUT
    assert f"b did not answer within {RELAY_SECONDS} s" in (answer.remark or "")


def test_a_tool_has_the_client_that_is_meant_try_a_message(site: Site) -> None:
    site.enter("a")
    call = site.enter("b")
    header = WAITED_FOR[RequestCode.CONSUME_MESSAGE_DIRECTLY]
    request = RemotingCommand.request(RequestCode.CONSUME_MESSAGE_DIRECTLY, header)
    request.ext_fields["msgId"] = ok(site.broker.send(b"tried"))["msgId"]
    answers: list[RemotingCommand] = []
    asked = site.broker.network.client("10.0.0.9").request(BROKER, request, 30.0)
    asked.addCallback(answers.append)
    site.pass_time(1)
    command = call.sent[0].verify_message_command
    assert command.message.body == b"tried" and not answers
    verified = pb.TelemetryCommand(
        status=pb.Status(code=pb.OK),
        verify_message_result=pb.VerifyMessageResult(nonce=command.nonce),
    )
    site.asked.answered(site.clients.get("b"), verified)
    site.pass_time(1)
    result = decode_body(ConsumeMessageDirectlyResult, answers[0].body)
    assert result.consume_result == "CR_SUCCESS"


def test_a_lost_connection_is_made_again(site: Site) -> None:
    site.enter("a")
    for end in site.broker.network.ends("10.0.0.3"):
        end.abortConnection()
    site.pass_time(21)
    site.clients.heard(next(iter(site.clients)))
    assert site.online() == ["a"]


def test_a_client_that_changes_its_group_leaves_the_former_one(site: Site) -> None:
    site.enter("a", "first")
    site.enter("b", "other")
    site.enter("b", "second")
    assert site.online("other") == []
    assert (site.online("first"), site.online("second")) == (["a"], ["b"])
    receives_go_on(site)


def test_a_client_whose_topics_are_elsewhere_now_leaves_the_broker(site: Site) -> None:
    site.enter("a", "first")
    site.enter("b", "second")
    site.names.register("10.0.0.5:10911", "broker-b", "Other", 4)
    site.enter("b", "second", "Other")
    assert (site.online("first"), site.online("second")) == (["a"], [])
    receives_go_on(site)
    site.enter("b", "second")
    assert site.online("second") == ["b"]


def receives_go_on(site: Site) -> None:
    """Brokers close a connection on which a group is silent, with the requests of all its
    clients."""
    client = site.clients.get("a")
    held: list[RemotingCommand] = []
    failed: list[object] = []
    for _ in range(8):
        request = RemotingCommand.request(RequestCode.POP_MESSAGE, pop_header(site))
        site.brokers.ask("broker-a", request, 25, client).addCallbacks(held.append, failed.append)
        site.pass_time(20)
        for each in site.clients:
            site.clients.heard(each)
    assert not failed
    assert [answer.code for answer in held] == [ResponseCode.POLLING_TIMEOUT] * 8


def pop_header(site: Site) -> PopMessageRequestHeader:
    """A pop of group `first` that is held for 15 s."""
    return PopMessageRequestHeader(
        consumer_group="first",
        topic="Topic",
        queue_id=-1,
        max_msg_nums=1,
        invisible_time=30_000,
        poll_time=15_000,
        born_time=site.broker.now_ms(),
        init_mode=1,
    )


def test_other_proxies_are_told_of_consumers() -> None:
    """With their settings as JSON, which stock's proxies keep."""
    clock, brokers = Clock(), PlayedBrokers()
    brokers.add_topic("Topic", {"broker-a": 4})
    brokers.add_topic(HEARTBEAT_SYNC_TOPIC, {"broker-a": 1})
    told: list[dict[str, Any]] = []

    def store(request: RemotingCommand) -> RemotingCommand:
        told.append(json.loads(request.body))
        return request.response()

    brokers.answer(RequestCode.SEND_MESSAGE_V2, store)
    brokers.answer(RequestCode.HEART_BEAT, lambda request: request.response())
    telling = heartbeat_sync_of(clock, brokers).telling
    telling.start()
    clients = ProxyClients(clock.seconds, asked_clients(clock, hand_on).hand_on, lambda: 1e9)
    registration = ClientRegistration(clock, brokers, clients, all_steps, telling)
    registration.start()
    settings = pb.Settings(client_type=pb.SIMPLE_CONSUMER)
    settings.subscription.group.name = "g"
    settings.subscription.subscriptions.add().topic.name = "Topic"
    clients.settle("c", FakeCall("c"), settings, "g", ["Topic"])
    producer = pb.Settings(client_type=pb.PRODUCER)
    clients.settle("producer", FakeCall("producer"), producer, "", ["Topic"])
    clock.pump([1.0] * 85)
    assert [each["clientId"] for each in told] == ["c", "c", "c"]
    assert (told[0]["group"], told[0]["consumeType"]) == ("g", "CONSUME_ACTIVELY")
    channel = json.loads(told[0]["channelData"])
    assert (channel["type"], channel["remoteAddress"]) == ("GRPC_V2", "10.0.0.9:40000")
    assert channel["localAddress"] == "10.0.0.1:8081"
    read = ParseDict(json.loads(channel["extendAttribute"]), pb.as_original(pb.Settings()))
    assert read == pb.as_original(settings)
    clients.remove("c")
    assert told[-1]["heartbeatType"] == "UNREGISTER"
    registration.stop()


@pytest.mark.parametrize("has_room", [True, False])
def test_other_proxies_are_told_at_once_of_a_consumer_that_brokers_do_not_see(
    has_room: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the last connection to them has another one of its group already."""
    clock, brokers = Clock(), PlayedBrokers()
    brokers.add_topic("Topic", {"broker-a": 4})
    brokers.answer(RequestCode.HEART_BEAT, lambda request: request.response())
    sync, unseen = heartbeat_sync_of(clock, brokers), []

    def enter(client: ProxyClient, *_: Any) -> None:
        if not has_room:
            raise RequestError(ResponseCode.SYSTEM_BUSY, "no connection has room")
        brokers.hidden["g"] = [client]

    monkeypatch.setattr(brokers, "enter", enter)
    monkeypatch.setattr(sync.telling, "heard", lambda *told: unseen.append(set(told[-1])))
    clients = ProxyClients(clock.seconds, asked_clients(clock, hand_on).hand_on, lambda: 1e9)
    ClientRegistration(clock, brokers, clients, all_steps, sync.telling)
    settings = pb.Settings(client_type=pb.SIMPLE_CONSUMER)
    settings.subscription.group.name = "g"
    settings.subscription.subscriptions.add().topic.name = "Topic"
    clients.settle("c", FakeCall("c"), settings, "g", ["Topic"])
    clock.advance(0)
    assert unseen == [{"g"}]


def test_beyond_the_last_connection_brokers_see_one_of_them() -> None:
    site = Site(is_local=False, lanes=2)
    for client_id in ("a", "b", "c"):
        site.enter(client_id)
    for _ in range(3):
        assert site.online() == ["a", "b"]
        site.pass_time(7)


def test_a_local_proxy_serves_other_brokers_too() -> None:
    site = Site(is_local=True)
    other = "10.0.0.5:10911"
    site.names.register(other, "broker-b", "Other", 4)
    network = site.broker.network
    network.serve(other, {9: lambda request, peer: request.response(remark="over the network")})
    site.pass_time(6)
    assert set(site.brokers.names()) == {"broker-a", "broker-b"}
    answers: list[RemotingCommand] = []
    made = network.made
    for name in ("broker-a", "broker-b"):
        site.brokers.ask(name, RemotingCommand.request(9), 3.0).addCallback(answers.append)
    site.pass_time(1)
    here, there = answers
    assert here.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert there.remark == "over the network"
    # The broker of the process needs no connection.
    assert network.made == made + 1


def test_a_broker_that_hangs_keeps_no_other_from_hearing_of_clients() -> None:
    """Brokers close connections that are silent for 120 s."""
    clock, brokers, heard = Clock(), PlayedBrokers(), {}
    brokers.add_topic("Topic", {"broker-a": 4, "broker-b": 4})

    def answer(request: RemotingCommand) -> Deferred[RemotingCommand]:
        name, _, timeout, client = brokers.asked[-1]
        assert client is not None and timeout is not None
        heard[name, client.client_id] = clock.seconds()
        if name == "broker-a":
            return succeed(request.response())
        hung: Deferred[RemotingCommand] = Deferred()
        clock.callLater(timeout, hung.errback, RequestTimeout(name, request.code, timeout))
        return hung

    brokers.answer(RequestCode.HEART_BEAT, answer)
    clients = ProxyClients(clock.seconds, asked_clients(clock, hand_on).hand_on, lambda: 1e9)
    registration = ClientRegistration(
        clock, brokers, clients, Slices(clock), heartbeat_sync_of(clock, brokers).telling
    )
    registration.start()
    settings = pb.Settings(client_type=pb.SIMPLE_CONSUMER)
    for number in range(300):
        clients.settle(str(number), FakeCall(str(number)), settings, "g", ["Topic"])
    clock.pump([0.5] * 240)
    registration.stop()
    last = [at for (name, _), at in heard.items() if name == "broker-a"]
    assert len(last) == 300
    assert min(last) > clock.seconds() - 30
    # As many as can be told are told of, in turn.
    assert len({client for name, client in heard if name == "broker-b"}) == 300


class Producer:
    """A proxy with one producer, before brokers that register it."""

    def __init__(self) -> None:
        self.clock, self.brokers = Clock(), PlayedBrokers()
        self.brokers.answer(RequestCode.HEART_BEAT, lambda request: request.response())
        clients = asked_clients(self.clock, hand_on)
        self.clients = ProxyClients(self.clock.seconds, clients.hand_on, lambda: 1e9)
        telling = heartbeat_sync_of(self.clock, self.brokers).telling
        self.registration = ClientRegistration(
            self.clock, self.brokers, self.clients, Slices(self.clock), telling
        )

    def tell(self, *topics: str) -> None:
        """It tells its topics."""
        settings = pb.Settings(client_type=pb.PRODUCER)
        for topic in topics:
            settings.publishing.topics.add().name = topic
        self.clients.settle("p", FakeCall("p"), settings, "", topics)

    def told(self) -> list[tuple[str, list[str]]]:
        """The brokers that heard of it, with its groups."""
        found = []
        for asked in self.brokers.asked:
            heartbeat = decode_body(HeartbeatData, asked.request.body)
            groups = [each.group_name for each in heartbeat.producer_data_set]
            found.append((asked.broker_name, groups))
        return found


def test_the_broker_of_a_late_topic_hears_of_a_client() -> None:
    """Otherwise it could not ask a producer about its transactions."""
    producer = Producer()
    topics = [f"T{number}" for number in range(257)]
    for topic in topics:
        producer.brokers.add_topic(topic, {"broker-a": 4})
    producer.brokers.add_topic(topics[-1], {"broker-b": 4})
    producer.tell(*topics)
    producer.clock.advance(0)
    assert producer.told() == [("broker-a", topics), ("broker-b", topics)]


@pytest.mark.parametrize("how", ["gone", "refuses"])
def test_of_a_broker_that_registers_no_client_the_log_has_a_line_now_and_then(how: str) -> None:
    """It is told of each client every 20 s."""
    producer = Producer()
    producer.brokers.add_topic("T", {"broker-a": 4, "broker-b": 4})
    if how == "gone":
        producer.brokers.gone |= {"broker-a", "broker-b"}
    else:
        producer.brokers.answer(
            RequestCode.HEART_BEAT, lambda request: request.response(ResponseCode.SYSTEM_BUSY)
        )
    for _ in range(2):
        with capturedLogs() as events:
            for _ in range(20):
                producer.tell("T")
        lines = [str(formatEvent(event)) for event in events]
        assert [line.split()[1] for line in lines] == ["broker-a", "broker-b"]
        producer.clock.advance(SAY_BROKER_AGAIN_SECONDS)


def test_the_brokers_of_former_topics_hear_nothing() -> None:
    """They were being looked for when the client told others."""
    producer = Producer()
    former = [f"T{number}" for number in range(257)]
    for topic in former:
        producer.brokers.add_topic(topic, {"broker-a": 4})
    producer.brokers.add_topic("U", {"broker-b": 4})
    producer.tell(*former)
    producer.tell("U")
    producer.clock.advance(0)
    assert producer.told() == [("broker-b", ["U"])]


def test_a_heartbeat_is_made_once_for_the_same_settings() -> None:
    """That of many subscriptions takes 10 ms; and its version is that of its subscriptions."""
    clock, brokers = Clock(), PlayedBrokers()
    brokers.add_topic("Topic", {"broker-a": 4})
    brokers.answer(RequestCode.HEART_BEAT, lambda request: request.response())
    clients = ProxyClients(clock.seconds, asked_clients(clock, hand_on).hand_on, lambda: 1e9)
    registration = ClientRegistration(
        clock,
        brokers,
        clients,
        all_steps,
        heartbeat_sync_of(clock, brokers).telling,
        # The time of day is set back meanwhile.
        iter([1_000, 1_005, 900]).__next__,
    )
    registration.start()

    def told(expression: str) -> bytes:
        """What brokers hear when settings are told, and for some time."""
        settings = pb.Settings(client_type=pb.SIMPLE_CONSUMER)
        settings.subscription.group.name = "g"
        entry = settings.subscription.subscriptions.add()
        entry.topic.name, entry.expression.expression = "Topic", expression
        brokers.asked.clear()
        clients.settle("c", FakeCall("c"), settings, "g", ["Topic"])
        clock.pump([1.0] * 65)
        bodies = {asked.request.body for asked in brokers.asked}
        assert len(brokers.asked) >= 4
        (body,) = bodies
        return body

    def version(body: bytes) -> int:
        (consumer,) = decode_body(HeartbeatData, body).consumer_data_set
        (wanted,) = consumer.subscription_data_set
        return wanted.sub_version

    first = told("a")
    assert told("a") == first
    assert [version(body) for body in (first, told("b"), told("c"))] == [1_000, 1_005, 1_006]
    clients.remove("c")
    left = tables_of(registration, outside=(PlayedBrokers,))
    assert left["ClientRegistration._heartbeats"] == 0
    registration.stop()


def test_heartbeats_of_many_clients_are_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_KEPT_BYTES", 1000)
    clock, brokers = Clock(), PlayedBrokers()
    brokers.add_topic("Topic", {"broker-a": 4})
    brokers.answer(RequestCode.HEART_BEAT, lambda request: request.response())
    clients = ProxyClients(clock.seconds, asked_clients(clock, hand_on).hand_on, lambda: 1e9)
    telling = heartbeat_sync_of(clock, brokers).telling
    registration = ClientRegistration(clock, brokers, clients, all_steps, telling)
    registration.start()
    for number in range(10):
        settings = pb.Settings(client_type=pb.SIMPLE_CONSUMER)
        settings.subscription.subscriptions.add().topic.name = "Topic"
        clients.settle(str(number), FakeCall(str(number)), settings, "g", ["Topic"])
    clock.pump([1.0] * 65)
    bodies = [asked.request.body for asked in brokers.asked]
    assert len(bodies) >= 40
    kept = tables_of(registration, outside=(PlayedBrokers,))["ClientRegistration._heartbeats"]
    assert kept == 1000 // len(bodies[0])
    for number in range(10):
        clients.remove(str(number))
    assert tables_of(registration)["ClientRegistration._heartbeats"] == 0
    registration.stop()


def hand_on(client: ProxyClient, request: RemotingCommand) -> Deferred[RemotingCommand]:
    raise AssertionError("no broker asks")


def test_of_a_broker_that_is_not_told_the_log_has_a_line_now_and_then(site: Site) -> None:
    """Classic clients may name any, as often as they like."""
    for _ in range(2):
        with capturedLogs() as events:
            for name in ("x", "y") * 20:
                site.brokers.tell(name, RemotingCommand.request(RequestCode.HEART_BEAT))
        assert [str(formatEvent(event))[:25] for event in events] == [
            "broker x is not sent requ",
            "broker y is not sent requ",
        ]
        site.pass_time(SAY_BROKER_AGAIN_SECONDS + 1)


def test_a_client_whose_topics_nobody_has_takes_no_place(site: Site) -> None:
    site.enter("fake", topic="Missing")
    client = site.clients.get("fake")
    assert client is not None and site.cluster._lanes.place(client) is None
    site.enter("fake")
    assert site.online() == ["fake"]
    site.enter("fake", topic="Missing")
    assert site.online() == [] and site.cluster._lanes.place(client) is None


def test_a_client_that_gave_way_is_not_registered(site: Site) -> None:
    """Its heartbeat may have waited for a broker meanwhile."""
    site.enter("c")
    client = site.clients.get("c")
    assert client is not None
    site.cluster.forget(client)
    request = RemotingCommand.request(RequestCode.HEART_BEAT)
    failed = site.cluster.ask("broker-a", request, 1.0, client)
    failure = failed.addErrback(lambda failure: failure.check(RequestError))
    assert answer_of(failure) is RequestError
    assert answer_of(site.cluster.tell("broker-a", request, client)) is None
