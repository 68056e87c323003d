"""Routes that classic clients get of a proxy."""

from typing import cast

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from rocketmq_tw.config.proxy import ProxyConfig
from rocketmq_tw.proxy.brokers import Endpoint
from rocketmq_tw.proxy.cluster.brokers import ClusterBrokers
from rocketmq_tw.proxy.remoting.broker_ports import NO_PORTS
from rocketmq_tw.proxy.remoting.clients import ClassicClients
from rocketmq_tw.proxy.remoting.routes import ClassicRoutes
from rocketmq_tw.wire.bodies.base import decode_body
from rocketmq_tw.wire.bodies.route import TopicRouteData
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from tests.support.asked import refused
from tests.support.classic import ClassicPort, classic_request
from tests.support.name_server import NameServerInMemory
from tests.support.network import FakePeer, MemoryNetwork
from tests.support.wait import result_of


def route_of(port: ClassicPort, topic: str = "T", peer: FakePeer | None = None) -> TopicRouteData:
    answer = port.ask(classic_request(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=topic), peer)
    return decode_body(TopicRouteData, answer.body)


def test_all_brokers_are_where_the_client_asked() -> None:
    port = ClassicPort()
    port.brokers.add_topic("T", {"broker-a": 4, "broker-b": 2})
    port.brokers.routes["T"].broker_datas[0].broker_addrs[1] = "broker-a-slave:10911"
    port.brokers.routes["T"].order_topic_conf = "broker-a:4"
    route = route_of(port)
    assert {data.broker_name: data.broker_addrs for data in route.broker_datas} == {
        "broker-a": {0: "10.0.0.1:8080"},
        "broker-b": {0: "10.0.0.1:8080"},
    }
    assert [(data.broker_name, data.read_queue_nums) for data in route.queue_datas] == [
        ("broker-a", 4),
        ("broker-b", 2),
    ]
    assert route.order_topic_conf == "broker-a:4"
    other = FakePeer("[fe80::9]:1", local_address="[fe80::1]:8080")
    assert route_of(port, peer=other).broker_datas[0].broker_addrs == {0: "[fe80::1]:8080"}
    # What is in memory stays as name servers told it.
    assert port.brokers.routes["T"].broker_datas[0].broker_addrs[0] == "broker-a.example:10911"


def test_a_broker_without_a_master_is_shown_as_a_slave() -> None:
    port = ClassicPort()
    port.brokers.add_topic("T", {"broker-a": 4})
    port.brokers.routes["T"].broker_datas[0].broker_addrs = {2: "a:1", 1: "b:1"}
    assert route_of(port).broker_datas[0].broker_addrs == {1: "10.0.0.1:8080"}


@pytest.mark.parametrize(
    ("endpoint", "address"),
    [(Endpoint("proxy.example", 9), "proxy.example:9"), (Endpoint("::1", 9), "[::1]:9")],
)
def test_an_advertised_address_stands_in_routes(endpoint: Endpoint, address: str) -> None:
    port = ClassicPort(endpoint)
    port.brokers.add_topic("T", {"broker-a": 4})
    assert route_of(port).broker_datas[0].broker_addrs == {0: address}


def test_older_clients_read_numbers_as_keys() -> None:
    port = ClassicPort()
    port.brokers.add_topic("T", {"broker-a": 4})
    request = classic_request(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T")
    request.version = 400
    assert b'{0:"10.0.0.1:8080"}' in port.ask(request).body
    request.ext_fields["acceptStandardJsonOnly"] = "true"
    assert b'{"0":"10.0.0.1:8080"}' in port.ask(request).body


def test_a_topic_that_nobody_has_is_looked_for_once_each_time() -> None:
    clock = Clock()
    names, network = NameServerInMemory(clock), MemoryNetwork(clock)
    network.serve("10.0.0.2:9876", names.handlers)
    config = ProxyConfig(namesrv_addr="10.0.0.2:9876")
    brokers = ClusterBrokers(clock, config, network.client)
    routes = ClassicRoutes(brokers, ClassicClients(brokers, NO_PORTS), NO_PORTS, None)

    def look() -> RemotingCommand:
        request = classic_request(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T")
        answer = Deferred.fromCoroutine(routes.route(request, FakePeer()))
        return cast(RemotingCommand, result_of(clock, answer))

    for times in (1, 2):
        with refused(ResponseCode.TOPIC_NOT_EXIST):
            look()
        assert names.asked == ["T"] * times
    # Made in the second for which others are told that it is not there.
    names.register("10.0.0.3:10911", "broker-a", "T", 4)
    assert look().code == ResponseCode.SUCCESS
    assert names.asked == ["T"] * 3
    assert look().code == ResponseCode.SUCCESS
    assert names.asked == ["T"] * 3
