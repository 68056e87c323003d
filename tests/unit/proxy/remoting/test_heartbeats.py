"""Heartbeats of classic clients, which all brokers of a client hear."""

import pytest
from twisted.internet.defer import Deferred, fail

from rocketmq_tw.net.errors import RequestTimeout
from rocketmq_tw.proxy.heartbeat_sync.records import (
    REGISTER,
    UNREGISTER,
    ConsumerHeartbeat,
    decode_consumer,
    heartbeat_subscriptions,
)
from rocketmq_tw.proxy.memberships import Membership
from rocketmq_tw.proxy.remoting import clients as clients_module
from rocketmq_tw.proxy.remoting.heartbeats import MAX_NAME_LENGTH, ROUND
from rocketmq_tw.wire.bodies.base import encode_body
from rocketmq_tw.wire.bodies.clients import (
    ConsumerData,
    HeartbeatData,
    ProducerData,
    SubscriptionData,
)
from rocketmq_tw.wire.bodies.route import TopicRouteData
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from tests.support.asked import refused
from tests.support.classic import ClassicPort, classic_request
from tests.support.network import FakePeer
from tests.support.proxy import HEARTBEAT_SYNC_TOPIC


@pytest.fixture
def port() -> ClassicPort:
    port = ClassicPort()
    port.brokers.add_topic("T", {"broker-a": 4, "broker-b": 4})
    port.brokers.add_topic("Other", {"broker-c": 4})

    def register(request: RemotingCommand) -> RemotingCommand:
        response = request.response()
        response.ext_fields = {"isSupportHeartBeatV2": "true"}
        return response

    port.brokers.answer(RequestCode.HEART_BEAT, register)
    port.brokers.answer(RequestCode.UNREGISTER_CLIENT, lambda request: request.response())
    return port


def heartbeat(*groups: str, topic: str = "T", client_id: str = "client-1") -> RemotingCommand:
    data = HeartbeatData(
        client_id=client_id,
        producer_data_set=[ProducerData(group_name="producers")],
        consumer_data_set=[
            ConsumerData(
                group_name=group,
                subscription_data_set=[
                    SubscriptionData(topic=f"%RETRY%{group}"),
                    SubscriptionData(topic=topic),
                ],
            )
            for group in groups
        ],
    )
    return classic_request(RequestCode.HEART_BEAT, encode_body(data))


def take_route(port: ClassicPort, topic: str) -> None:
    port.ask(classic_request(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=topic))


def test_the_brokers_of_the_routes_that_it_has_hear_of_a_client(port: ClassicPort) -> None:
    take_route(port, "T")
    request = heartbeat("G")
    answer = port.ask(request)
    assert port.asked_names() == ["broker-a", "broker-b"]
    client = port.requests.clients.of(port.peer)
    assert all(asked.request.body == request.body for asked in port.brokers.asked)
    assert all(asked.client is client for asked in port.brokers.asked)
    # The client gives a heartbeat up after 3 s, also where one of its brokers hangs.
    assert all(asked.timeout is not None and asked.timeout < 3 for asked in port.brokers.asked)
    assert (client.client_id, client.address) == ("client-1", "10.0.0.9:40000")
    # Heartbeats without subscriptions are not offered.
    assert (answer.code, answer.ext_fields) == (ResponseCode.SUCCESS, {})


def test_other_proxies_are_told_of_consumers(port: ClassicPort) -> None:
    """In stock's format: stock's proxies know members from these messages alone."""
    port.brokers.add_topic(HEARTBEAT_SYNC_TOPIC, {"broker-a": 1})
    told: list[ConsumerHeartbeat] = []

    def store(request: RemotingCommand) -> RemotingCommand:
        told.append(decode_consumer(request.body)[0])
        return request.response()

    port.brokers.answer(RequestCode.SEND_MESSAGE_V2, store)
    port.heartbeat_sync.telling.start()
    take_route(port, "T")
    port.ask(heartbeat("G", "H"))
    port.ask(heartbeat("G", "H"))
    assert [(each.heartbeat_type, each.group) for each in told] == [
        (REGISTER, "G"),
        (REGISTER, "H"),
    ]
    assert {each.client_id for each in told} == {"client-1"}
    assert [wanted.topic for wanted in heartbeat_subscriptions(told[0])] == ["%RETRY%G", "T"]
    told.clear()
    port.ask(classic_request(RequestCode.UNREGISTER_CLIENT, clientID="client-1", consumerGroup="H"))
    port.peer.lose()
    assert [(each.heartbeat_type, each.group) for each in told] == [
        (UNREGISTER, "H"),
        (UNREGISTER, "G"),
    ]


def test_one_of_a_round_of_heartbeats_is_passed_on(port: ClassicPort) -> None:
    take_route(port, "T")
    port.ask(heartbeat("G"))
    port.ask(heartbeat("G"))
    assert len(port.brokers.asked) == 2
    take_route(port, "Other")
    port.ask(heartbeat("G"))
    assert port.asked_names()[2:] == ["broker-c"]
    port.ask(heartbeat("G", "H"))
    assert len(port.brokers.asked) == 6
    port.clock.advance(ROUND)
    port.ask(heartbeat("G", "H"))
    assert len(port.brokers.asked) == 9


def test_a_client_that_has_its_routes_from_elsewhere(port: ClassicPort) -> None:
    port.ask(heartbeat("G"))
    assert port.asked_names() == ["broker-a", "broker-b"]
    port.brokers.asked.clear()
    producer = FakePeer("10.0.0.8:1")
    port.ask(heartbeat(), producer)
    assert port.asked_names() == ["broker-a", "broker-b", "broker-c"]


@pytest.fixture
def other_connection(port: ClassicPort) -> FakePeer:
    """A client of stock has one for each way to write an address: on this one it asks for routes,
    where its name server is a name, and its heartbeats come on the one to the address in them."""
    return FakePeer(address="10.0.0.9:40001", local_address="10.0.0.1:8080")


def test_a_broker_that_gets_the_topic_later(port: ClassicPort, other_connection: FakePeer) -> None:
    route = classic_request(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T")
    port.ask(route, other_connection)
    port.ask(heartbeat("G"))
    port.brokers.add_topic("T", {"broker-a": 4, "broker-b": 4, "broker-d": 4})
    port.ask(route, other_connection)
    port.brokers.asked.clear()
    port.clock.advance(ROUND)
    port.ask(heartbeat("G"))
    assert port.asked_names() == ["broker-a", "broker-b", "broker-d"]


def test_a_topic_that_is_made_or_subscribed_to_later(port: ClassicPort) -> None:
    port.ask(heartbeat("G", topic="T"))
    port.brokers.asked.clear()
    port.ask(heartbeat("G", topic="Other"))
    assert port.asked_names() == ["broker-a", "broker-b", "broker-c"]
    port.brokers.asked.clear()
    port.ask(heartbeat("G", topic="Made later"))
    port.brokers.add_topic("Made later", {"broker-d": 4})
    port.clock.advance(ROUND)
    port.brokers.asked.clear()
    port.ask(heartbeat("G", topic="Made later"))
    assert port.asked_names() == ["broker-a", "broker-b", "broker-c", "broker-d"]


def test_a_broker_that_requests_name(port: ClassicPort) -> None:
    """As with transactions of a client that also consumes: their broker asks it."""
    send = classic_request(RequestCode.SEND_MESSAGE_V2, b="Other", n="broker-c", e=0)
    port.brokers.answer(RequestCode.SEND_MESSAGE_V2, lambda request: request.response())
    pull = classic_request(RequestCode.PULL_MESSAGE, topic="Other", bname="no such broker")
    port.brokers.answer(RequestCode.PULL_MESSAGE, lambda request: request.response())
    port.ask(heartbeat("G"))
    port.ask(send)
    port.ask(pull)
    port.clock.advance(ROUND)
    port.brokers.asked.clear()
    port.ask(heartbeat("G"))
    assert port.asked_names() == ["broker-a", "broker-b", "broker-c"]


def test_heartbeats_do_not_wait_for_name_servers(
    port: ClassicPort, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers forget a client that cannot be heard."""
    port.ask(heartbeat("G"))
    asked: Deferred[TopicRouteData | None] = Deferred()
    with monkeypatch.context() as patched:
        patched.setattr(port.brokers, "route", lambda topic: asked)
        port.clock.advance(ROUND)
        port.brokers.asked.clear()
        assert port.ask(heartbeat("G")).code == ResponseCode.SUCCESS
    assert port.asked_names() == ["broker-a", "broker-b"]
    asked.callback(port.brokers.routes["Other"])
    port.brokers.route_error = RequestError(ResponseCode.SYSTEM_ERROR, "no name server answers")
    port.clock.advance(ROUND)
    port.brokers.asked.clear()
    assert port.ask(heartbeat("G")).code == ResponseCode.SUCCESS
    assert port.asked_names() == ["broker-a", "broker-b", "broker-c"]


def test_a_client_that_tells_other_topics_again_and_again_has_few_looked_for(
    port: ClassicPort, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Deferred[TopicRouteData | None]] = []

    def route(topic: str) -> Deferred[TopicRouteData | None]:
        asked.append(Deferred())
        return asked[-1]

    port.ask(heartbeat("G"))
    with monkeypatch.context() as patched:
        patched.setattr(port.brokers, "route", route)
        for number in range(1_000):
            assert port.ask(heartbeat("G", topic=f"T{number}")).code == ResponseCode.SUCCESS
        assert 0 < len(asked) < 20
        port.peer.close("it is gone")
        before = len(asked)
        for each in asked[:before]:
            each.callback(None)
        # Those that are under way end with the piece that they are at.
        assert len(asked) < 2 * before + 2


def test_a_route_more_takes_no_broker_away(port: ClassicPort) -> None:
    port.ask(heartbeat("G"))
    take_route(port, "Other")
    port.brokers.asked.clear()
    port.clock.advance(ROUND)
    port.ask(heartbeat("G"))
    assert port.asked_names() == ["broker-a", "broker-b", "broker-c"]


def test_a_broker_that_is_gone_is_told_again_next_time(port: ClassicPort) -> None:
    port.brokers.gone.add("broker-a")
    assert port.ask(heartbeat("G")).code == ResponseCode.SUCCESS
    port.brokers.gone.clear()
    port.brokers.asked.clear()
    port.ask(heartbeat("G"))
    assert port.asked_names() == ["broker-a"]


def test_a_broker_that_hangs_holds_up_one_heartbeat_of_a_round(port: ClassicPort) -> None:
    """A client sends one for each of its brokers, one after the other."""

    def answer(request: RemotingCommand) -> RemotingCommand | Deferred[RemotingCommand]:
        name, _, timeout, _ = port.brokers.asked[-1]
        if name == "broker-a":
            return request.response()
        return fail(RequestTimeout(name, request.code, timeout or 0))

    port.brokers.answer(RequestCode.HEART_BEAT, answer)
    for _ in range(5):
        assert port.ask(heartbeat("G")).code == ResponseCode.SUCCESS
    assert port.asked_names() == ["broker-a", "broker-b"]
    port.clock.advance(ROUND)
    port.ask(heartbeat("G"))
    assert port.asked_names()[2:] == ["broker-a", "broker-b"]
    # Where nobody answers each heartbeat says so.
    port.brokers.answer(RequestCode.HEART_BEAT, RequestTimeout("b:1", 34, 2.0))
    port.clock.advance(ROUND)
    for _ in range(2):
        with refused(ResponseCode.SERVICE_NOT_AVAILABLE):
            port.ask(heartbeat("G"))


def test_a_heartbeat_that_no_broker_takes_is_refused(port: ClassicPort) -> None:
    port.brokers.gone |= {"broker-a", "broker-b"}
    with refused(ResponseCode.SERVICE_NOT_AVAILABLE):
        port.ask(heartbeat("G"))
    port.brokers.gone.clear()
    port.brokers.answer(
        RequestCode.HEART_BEAT, lambda request: request.response(ResponseCode.SYSTEM_ERROR, "no")
    )
    answer = port.ask(heartbeat("G"))
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "no")


@pytest.mark.parametrize(
    "request_",
    [
        classic_request(RequestCode.HEART_BEAT, b"x" * (1 << 20) + b"x"),
        classic_request(RequestCode.HEART_BEAT, b"{"),
        heartbeat(client_id="c" * 300),
        heartbeat("G" * (MAX_NAME_LENGTH + 1)),
        heartbeat("G", topic="T" * (MAX_NAME_LENGTH + 1)),
    ],
)
def test_heartbeats_that_are_wrong_reach_no_broker(
    port: ClassicPort, request_: RemotingCommand
) -> None:
    with pytest.raises(Exception, match=r"limit|body|characters|longer|255"):
        port.ask(request_)
    assert not port.brokers.asked


def test_groups_of_all_clients_are_bounded(
    port: ClassicPort, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients_module, "MAX_CLIENT_GROUPS", 2)
    port.ask(heartbeat("G", "H"))
    port.ask(heartbeat("G"))
    other = FakePeer("10.0.0.8:1")
    port.ask(heartbeat("G"), other)
    with refused(ResponseCode.SYSTEM_BUSY):
        port.ask(heartbeat("G", "H"))
    other.lose()
    port.ask(heartbeat("G", "H"))


def test_a_client_that_leaves_is_taken_out_everywhere(port: ClassicPort) -> None:
    port.ask(heartbeat("G", "H"))
    client = port.requests.clients.of(port.peer)
    groups = {Membership("G", True), Membership("H", True), Membership("producers", False)}
    assert port.brokers.entered == {client: groups}
    request = classic_request(RequestCode.UNREGISTER_CLIENT, clientID="client-1", consumerGroup="G")
    # It tells each broker that it knows.
    assert port.ask(request).code == port.ask(request).code == ResponseCode.SUCCESS
    assert port.brokers.entered == {client: groups - {Membership("G", True)}}
    port.ask(heartbeat("G", "H"))
    assert port.brokers.entered == {client: groups}
    assert len(port.brokers.asked) == 4


def test_a_client_that_is_lost_during_its_heartbeat_is_not_registered(port: ClassicPort) -> None:
    route: Deferred[TopicRouteData | None] = Deferred()
    port.brokers.route = lambda topic: route  # type: ignore[method-assign]
    answer = port.begin(heartbeat("G"))
    port.peer.lose()
    route.callback(port.brokers.routes["T"])
    assert answer.called
    assert not port.brokers.asked and not port.brokers.entered
    assert len(port.requests.clients) == 0


def test_a_client_that_falls_silent_is_forgotten_before_brokers_do_it(port: ClassicPort) -> None:
    """They close the connection on which it is known, with the requests of others."""
    port.requests.start()
    other = FakePeer("10.0.0.8:1")
    port.ask(heartbeat("G"))
    client = port.requests.clients.of(port.peer)
    for _ in range(4):
        port.ask(heartbeat("G", client_id="client-2"), other)
        port.clock.pump([1.0] * 28)
    assert port.brokers.forgotten == [client]
    assert port.peer.connected
    # It may come back.
    port.brokers.asked.clear()
    port.ask(heartbeat("G"))
    assert port.asked_names() == ["broker-a", "broker-b"]
    assert client in port.brokers.entered
    port.requests.stop()
    assert not port.clock.getDelayedCalls()


def test_a_lost_connection_has_brokers_forget_the_client(port: ClassicPort) -> None:
    port.ask(heartbeat("G"))
    client = port.requests.clients.of(port.peer)
    assert len(port.requests.clients) == 1
    port.peer.lose()
    assert port.brokers.forgotten == [client]
    assert len(port.requests.clients) == 0
