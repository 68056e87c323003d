"""Clients before 5.0, which name no broker, where several brokers have the queues of a topic: each
broker has a port of the proxy."""

from __future__ import annotations

import pytest

from rocketmq_tw.config.values import split_named_ports
from rocketmq_tw.proxy.brokers import Endpoint
from rocketmq_tw.proxy.remoting.broker_ports import BrokerPorts
from rocketmq_tw.wire.bodies.base import decode_body, encode_body
from rocketmq_tw.wire.bodies.clients import ConsumerData, HeartbeatData
from rocketmq_tw.wire.bodies.route import TopicRouteData
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from tests.support.asked import refused
from tests.support.classic import ClassicPort, classic_request, echo
from tests.support.network import FakePeer

PORTS = BrokerPorts({"broker-a": 10911, "broker-b": 10912})


def classic_port(advertised: Endpoint | None = None) -> ClassicPort:
    port = ClassicPort(advertised, ports=PORTS)
    port.brokers.add_topic("T", {"broker-a": 4, "broker-b": 4, "broker-c": 4})
    for code in port.requests.handlers():
        port.brokers.answer(code, echo)
    return port


def at(port: int) -> FakePeer:
    return FakePeer("10.0.0.9:40000", local_address=f"10.0.0.1:{port}")


def addresses(port: ClassicPort, *, old: bool) -> dict[str, str]:
    request = classic_request(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T", old=old)
    route = decode_body(TopicRouteData, port.ask(request, at(8080)).body)
    return {data.broker_name: data.broker_addrs[0] for data in route.broker_datas}


def test_older_clients_are_told_the_port_of_each_broker() -> None:
    assert addresses(classic_port(), old=True) == {
        "broker-a": "10.0.0.1:10911",
        "broker-b": "10.0.0.1:10912",
        "broker-c": "10.0.0.1:8080",
    }
    assert addresses(classic_port(Endpoint("proxy.example", 9)), old=True) == {
        "broker-a": "proxy.example:10911",
        "broker-b": "proxy.example:10912",
        "broker-c": "proxy.example:9",
    }
    assert set(addresses(classic_port(), old=False).values()) == {"10.0.0.1:8080"}


@pytest.mark.parametrize(
    ("code", "fields"),
    [
        (RequestCode.SEND_MESSAGE_V2, {"b": "T", "e": 1}),
        (RequestCode.SEND_MESSAGE, {"topic": "T", "queueId": 1}),
        (RequestCode.PULL_MESSAGE, {"topic": "T", "queueId": 1}),
        (RequestCode.UPDATE_CONSUMER_OFFSET, {"topic": "T", "queueId": 1}),
        (RequestCode.CONSUMER_SEND_MSG_BACK, {"originTopic": "T"}),
        (RequestCode.END_TRANSACTION, {"transactionId": "x"}),
    ],
)
def test_the_port_tells_which_broker_is_meant(code: int, fields: dict[str, object]) -> None:
    port = classic_port()
    first, second, any_ = at(10911), at(10912), at(8080)
    for peer in (second, first):
        port.ask(classic_request(code, old=True, **fields), peer)
    assert port.asked_names() == ["broker-b", "broker-a"]
    # A name counts for more.
    name = {"n" if code == RequestCode.SEND_MESSAGE_V2 else "bname": "broker-c"}
    port.ask(classic_request(code, **fields, **name), first)
    assert port.asked_names()[2:] == ["broker-c"]
    with refused(ResponseCode.VERSION_NOT_SUPPORTED) as caught:
        port.ask(classic_request(code, old=True, **fields), any_)
    assert "remotingBrokerPorts" in caught.value.remark


def test_a_heartbeat_at_a_brokers_port_is_for_that_broker() -> None:
    port = classic_port()
    body = encode_body(
        HeartbeatData(client_id="old", consumer_data_set=[ConsumerData(group_name="G")])
    )
    first, second = at(10911), at(10912)
    for peer in (first, second):
        port.ask(classic_request(RequestCode.HEART_BEAT, body, old=True), peer)
    assert port.asked_names() == ["broker-a", "broker-b"]
    # What a broker asks of the client comes over the connection that the client takes for it.
    clients = [asked.client for asked in port.brokers.asked]
    assert clients == [port.requests.clients.of(peer) for peer in (first, second)]


def test_ports_are_given_by_name() -> None:
    assert split_named_ports(" broker-a:10911; broker-b:10912 ;") == {
        "broker-a": 10911,
        "broker-b": 10912,
    }
    assert split_named_ports("") == {}
    for wrong in ("broker-a", "broker-a:x", ":1", "a:0", "a:65536", "a:1;b:1", "a:1;a:2"):
        with pytest.raises(ValueError, match="give"):
            split_named_ports(wrong)
