"""What a proxy makes of name servers that do not know any more what they knew: one that starts
knows a broker again when that one registers, within 30 s."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock

from rocketmq_tw.client.errors import NoRouteError
from rocketmq_tw.client.name_servers import NameServers
from rocketmq_tw.config.proxy import ProxyConfig
from rocketmq_tw.proxy.cluster.brokers import ClusterBrokers
from rocketmq_tw.proxy.cluster.known_brokers import KnownBrokers
from rocketmq_tw.proxy.cluster.topic_routes import TopicRoutes
from rocketmq_tw.structs import msgspec
from rocketmq_tw.wire.bodies.base import encode_body
from rocketmq_tw.wire.bodies.route import BrokerData, ClusterInfo, QueueData, TopicRouteData
from rocketmq_tw.wire.command import RemotingCommand
from tests.support.name_server import NameServerInMemory
from tests.support.network import MemoryNetwork
from tests.support.proxy import answer_of
from tests.support.wait import result_of

#: Seconds within which brokers register again.
REGISTRATION = 30


class Names:
    """Name servers that know one topic and its broker, while `knows` says so."""

    def __init__(self) -> None:
        self.addresses = ["10.0.0.1:9876"]
        self.knows, self.is_down = True, False
        #: Questions that came.
        self.looks = self.routes = 0
        self.broker = BrokerData(
            cluster="c", broker_name="broker-a", broker_addrs={0: "10.0.0.2:10911"}
        )

    def ask(self, make: Callable[[], RemotingCommand]) -> Deferred[tuple[str, RemotingCommand]]:
        self.looks += 1
        if self.is_down:
            return fail(NoRouteError("no name server answers"))
        table = {"broker-a": self.broker} if self.knows else {}
        body = encode_body(ClusterInfo(broker_addr_table=table))
        return succeed((self.addresses[0], make().response(body=body)))

    def pass_over(self, address: str) -> None:
        """There is no other one."""

    def route(self, topic: str) -> Deferred[TopicRouteData | None]:
        self.routes += 1
        if self.is_down:
            return fail(NoRouteError("no name server answers"))
        if not self.knows:
            return succeed(None)
        queues = QueueData(broker_name="broker-a", read_queue_nums=4, write_queue_nums=4, perm=6)
        return succeed(TopicRouteData(queue_datas=[queues], broker_datas=[self.broker]))


class World:
    def __init__(self) -> None:
        self.clock = Clock()
        self.names: Any = Names()
        self.brokers = KnownBrokers(self.clock, self.names)
        self.routes = TopicRoutes(self.clock, ProxyConfig(), self.names)
        self.brokers.start()
        self.routes.start()
        assert self.has_route()

    def pass_time(self, seconds: int) -> None:
        self.clock.pump([1.0] * seconds)

    def has_route(self, *, refreshed: bool = False) -> bool:
        found: list[TopicRouteData | None] = []
        (self.routes.refresh if refreshed else self.routes.get)("T").addCallback(found.append)
        return found[0] is not None


def test_an_empty_name_server_takes_no_broker_away() -> None:
    world = World()
    world.names.knows = False
    world.pass_time(REGISTRATION + 10)
    assert list(world.brokers.names()) == ["broker-a"]
    assert world.brokers.address("broker-a") == "10.0.0.2:10911"
    world.names.knows = True
    world.pass_time(10)
    world.names.knows = False
    world.pass_time(REGISTRATION + 10)
    assert list(world.brokers.names()) == ["broker-a"]


def test_a_name_server_that_knows_brokers_is_asked_in_place_of_an_empty_one() -> None:
    """A proxy that starts finds them, and the routes, though it asks the empty one first."""
    clock, names = Clock(), NameServerInMemory(Clock())
    names.register("10.0.0.2:10911", "broker-a", "T", 4)
    network = MemoryNetwork(clock)
    network.serve("10.0.0.1:9876", NameServerInMemory(clock).handlers)
    network.serve("10.0.0.3:9876", names.handlers)
    asking = NameServers(network.client(), "10.0.0.1:9876;10.0.0.3:9876")
    brokers = KnownBrokers(clock, asking)
    brokers.start()
    clock.pump([0.1] * 10)
    assert list(brokers.names()) == ["broker-a"]
    assert result_of(clock, asking.route("T")) is not None
    brokers.stop()


def test_name_servers_that_were_down_for_long_take_nothing_away() -> None:
    world = World()
    world.names.is_down = True
    world.pass_time(200)
    world.names.knows, world.names.is_down = False, False
    world.pass_time(REGISTRATION)
    assert list(world.brokers.names()) == ["broker-a"]
    assert world.has_route(refreshed=True)


def test_a_broker_that_is_gone_for_long_is_forgotten() -> None:
    world = World()
    world.names.knows = False
    world.pass_time(180)
    assert list(world.brokers.names()) == []


def test_a_broker_that_moved_is_found_at_once() -> None:
    world = World()
    world.names.broker = BrokerData(
        cluster="c", broker_name="broker-a", broker_addrs={0: "10.0.0.7:10911"}
    )
    world.pass_time(6)
    assert world.brokers.address("broker-a") == "10.0.0.7:10911"


def test_a_topic_that_nobody_has_is_asked_for_once_a_second() -> None:
    clock, names = Clock(), Names()
    names.knows = False
    config = msgspec.structs.replace(ProxyConfig(), topic_route_service_cache_max_num=3)
    routes = TopicRoutes(clock, config, names)  # type: ignore[arg-type]
    routes.start()
    for _ in range(10):
        assert answer_of(routes.get("T")) is None
    assert names.routes == 1
    # A refresh asks whatever is remembered.
    assert answer_of(routes.refresh("T")) is None
    assert names.routes == 2
    clock.advance(1)
    assert answer_of(routes.get("T")) is None
    assert names.routes == 3
    names.knows = True
    assert answer_of(routes.get("T")) is None
    assert answer_of(routes.refresh("T")) is not None
    assert answer_of(routes.get("T")) is not None
    assert names.routes == 4
    names.knows = False
    for number in range(100):
        assert answer_of(routes.get(f"absent{number}")) is None
    answer_of(routes.get("long" * 1000))
    assert len(routes._absent) == 3
    assert max(map(len, routes._absent)) < 1000
    clock.advance(11)
    assert not routes._absent


def test_failures_have_name_servers_be_asked_now_and_then_only() -> None:
    world = World()
    for _ in range(100):
        world.brokers.refresh()
    assert world.names.looks == 1
    world.clock.advance(1)
    assert world.names.looks == 2
    world.clock.advance(1)
    assert world.names.looks == 2
    world.brokers.refresh()
    assert world.names.looks == 3
    world.brokers.refresh()
    world.brokers.stop()
    world.clock.advance(2)
    assert world.names.looks == 3


def test_an_empty_name_server_takes_no_route_away() -> None:
    world = World()
    world.names.knows = False
    # A send that failed has the route asked for anew.
    assert world.has_route(refreshed=True)
    assert world.has_route()
    world.pass_time(REGISTRATION + 10)
    assert world.has_route(refreshed=True)
    world.names.knows = True
    world.pass_time(40)
    world.names.knows = False
    world.pass_time(REGISTRATION + 10)
    assert world.has_route(refreshed=True)


def test_the_route_of_a_deleted_topic_is_forgotten_although_it_is_used() -> None:
    world = World()
    world.names.knows = False
    for _ in range(180):
        world.pass_time(1)
        world.has_route()
    assert not world.has_route()
    assert not world.has_route(refreshed=True)
    world.names.knows = True
    world.pass_time(1)
    assert world.has_route()


def test_who_is_a_broker_is_told_by_name_servers_that_know_some() -> None:
    clock, names = Clock(), Names()
    names.is_down = True
    brokers = KnownBrokers(clock, names)  # type: ignore[arg-type]
    brokers.start()
    assert not brokers.is_told
    # A route names the brokers of its topic alone.
    brokers.learn(TopicRouteData(broker_datas=[names.broker]))
    assert not brokers.is_told
    names.is_down, names.knows = False, False
    clock.pump([1.0] * 6)
    assert not brokers.is_told
    names.knows = True
    clock.pump([1.0] * 6)
    assert brokers.is_told
    names.is_down = True
    clock.pump([1.0] * 6)
    assert brokers.is_told


def test_a_proxy_is_ready_once_a_name_server_has_told_it_of_a_broker() -> None:
    clock = Clock()
    network = MemoryNetwork(clock)
    config = ProxyConfig(namesrv_addr="10.0.0.1:9876")
    brokers = ClusterBrokers(clock, config, network.client)
    brokers.start()
    clock.pump([1.0] * 10)
    assert brokers.not_ready() == "no name server has told it of a broker"
    names = NameServerInMemory(clock)
    network.serve("10.0.0.1:9876", names.handlers)
    clock.pump([1.0] * 10)
    assert brokers.not_ready() == "no name server has told it of a broker"
    names.register("10.0.0.2:10911", "broker-a", "T", 4)
    clock.pump([1.0] * 10)
    assert brokers.not_ready() == ""
    brokers.stop()
