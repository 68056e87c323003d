import zlib
from types import SimpleNamespace

import pytest
from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent

from rocketmq_tw.broker.assembly.host import Addresses
from rocketmq_tw.broker.cluster import registration
from rocketmq_tw.broker.cluster.membership import ClusterMembership
from rocketmq_tw.broker.cluster.name_server_links import Master
from rocketmq_tw.broker.role.health import Health
from rocketmq_tw.broker.role.state import Role, RoleState
from rocketmq_tw.broker.tables.topics.announcements import Announcements
from rocketmq_tw.broker.tables.topics.queue_mappings import QueueMappings
from rocketmq_tw.broker.tables.topics.table import TopicTable
from rocketmq_tw.broker.tables.versioned import TableContext
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.runtime.slices import all_steps
from rocketmq_tw.wire.bodies.base import DataVersion, decode_body, encode_body
from rocketmq_tw.wire.bodies.registration import RegisterBrokerBody, decode_registration
from rocketmq_tw.wire.bodies.route import TopicRouteData
from rocketmq_tw.wire.bodies.stats import KVTable
from rocketmq_tw.wire.bodies.topics import TopicConfig
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.namesrv import (
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
)
from tests.support.broker import Threads
from tests.support.network import MemoryNetwork
from tests.support.roles import a_master
from tests.support.state import MemoryStateFile

FIRST, SECOND = "10.0.0.1:9876", "10.0.0.2:9876"


class NameServer:
    """Records what it is sent."""

    def __init__(self) -> None:
        self.requests: list[RemotingCommand] = []
        self.master = RegisterBrokerResponseHeader()
        self.ordered: dict[str, str] = {}
        self.refuses = self.is_silent = False
        self.known: DataVersion | None = None

    def handlers(self):
        codes = (
            RequestCode.REGISTER_BROKER,
            RequestCode.UNREGISTER_BROKER,
            RequestCode.QUERY_DATA_VERSION,
            RequestCode.REGISTER_TOPIC_IN_NAMESRV,
            RequestCode.BROKER_HEARTBEAT,
        )
        return dict.fromkeys(codes, self.answer)

    def answer(self, request, peer):
        self.requests.append(request)
        if self.is_silent:
            return None
        if self.refuses:
            return request.response(ResponseCode.SYSTEM_ERROR, "no")
        if request.code == RequestCode.REGISTER_BROKER:
            return request.response(
                header=self.master, body=encode_body(KVTable(table=self.ordered))
            )
        if request.code == RequestCode.QUERY_DATA_VERSION:
            mine = decode_body(DataVersion, request.body)
            return request.response(
                header=QueryDataVersionResponseHeader(changed=mine != self.known),
                body=b"" if self.known is None else encode_body(self.known),
            )
        return request.response()

    def registrations(self) -> list[RegisterBrokerBody]:
        bodies = []
        for request in self.requests:
            if request.code == RequestCode.REGISTER_BROKER:
                header = request.header(RegisterBrokerRequestHeader)
                assert header.body_crc32 == zlib.crc32(request.body) & 0x7FFFFFFF
                bodies.append(decode_registration(request.body, compressed=header.compressed))
        self.requests.clear()
        return bodies


class World:
    def __init__(self, up: tuple[str, ...] = (FIRST, SECOND), **config: object) -> None:
        self.clock = Clock()
        self.threads = Threads()
        self.network = MemoryNetwork(self.clock)
        self.servers = {FIRST: NameServer(), SECOND: NameServer()}
        for address in up:
            self.network.serve(address, self.servers[address].handlers())
        self.config = BrokerConfig(
            broker_name="broker-a",
            broker_ip1="10.0.0.9",
            broker_ip2="10.0.0.9",
            **{"namesrv_addr": f"{FIRST}; {SECOND}"} | config,  # type: ignore[arg-type]
        )
        context = TableContext(self.config, a_master(), lambda: 1_000)
        self.topics = TopicTable(MemoryStateFile(), context)
        self.announcements = Announcements(self.clock)
        addresses = Addresses(self.config)
        addresses.port, addresses.ha_port = 10911, 10912
        host = SimpleNamespace(
            config=self.config,
            reactor=self.clock,
            client=self.network.client(),
            in_thread=self.threads,
            in_slices=all_steps,
        )
        tables = SimpleNamespace(
            topics=self.topics,
            mappings=QueueMappings("broker-a", MemoryStateFile(), lambda: 1_000),
            announcements=self.announcements,
        )
        self.role = a_master()
        self.health = Health()
        self.membership = ClusterMembership(host, addresses, tables, self.role, self.health)
        self.membership.begin()

    def settle(self, deferred) -> bool:
        """Lets everything arrive; whether `deferred` fired."""
        fired: list[object] = []
        deferred.addCallback(fired.append)
        for _ in range(10):
            self.network.settle()
        return bool(fired)


def registered() -> World:
    """The name servers have all topics."""
    world = World()
    assert world.settle(world.membership.register())
    for server in world.servers.values():
        server.requests.clear()
    return world


def names_of(body: RegisterBrokerBody) -> set[str]:
    return set(body.topic_config_serialize_wrapper.topic_config_table)


def test_everything_is_registered_with_all_name_servers() -> None:
    world = World()
    assert world.settle(world.membership.register())
    for server in world.servers.values():
        (request,) = server.requests
        header = request.header(RegisterBrokerRequestHeader)
        assert (header.broker_addr, header.ha_server_addr, header.broker_id) == (
            "10.0.0.9:10911",
            "10.0.0.9:10912",
            0,
        )
        (body,) = server.registrations()
        assert names_of(body) == set(world.topics.all())


def test_a_compressed_registration_says_so() -> None:
    world = World(compressed_register=True)
    world.settle(world.membership.register())
    (request,) = world.servers[FIRST].requests
    assert request.header(RegisterBrokerRequestHeader).compressed
    (body,) = world.servers[FIRST].registrations()
    assert names_of(body) == set(world.topics.all())


def test_a_new_topic_is_registered_at_once() -> None:
    world = registered()
    made = world.topics.create_on_send("T", "TBW102", "peer", 4, 0)
    world.network.settle()
    (body,) = world.servers[SECOND].registrations()
    table = body.topic_config_serialize_wrapper
    assert table.topic_config_table == {"T": made}
    assert table.data_version == world.topics.data_version


@pytest.mark.parametrize("again", [False, True])
def test_one_that_is_another_process_now_gets_everything_at_once(again: bool) -> None:
    """It would know the broker by what changed alone."""
    world = registered()
    world.network.stop(FIRST)
    world.network.settle()
    world.network.serve(FIRST, world.servers[FIRST].handlers())
    world.topics.create_on_send("T", "TBW102", "peer", 4, 0)
    if again:
        world.topics.create_on_send("U", "TBW102", "peer", 4, 0)
    for _ in range(5):
        world.network.settle()
    assert world.announcements.under_way("T") is None
    first, second = (world.servers[each].registrations() for each in (FIRST, SECOND))
    assert names_of(first[0]) >= set(world.topics.all()) - {"U"}
    assert "T" in names_of(first[0])
    assert names_of(second[0]) == {"T"}
    if again:
        assert "U" in names_of(first[-1]) and "U" in names_of(second[-1])
    world.topics.create_on_send("V", "TBW102", "peer", 4, 0)
    for _ in range(5):
        world.network.settle()
    (body,) = world.servers[FIRST].registrations()
    assert names_of(body) == {"V"}


def test_a_single_topic_is_registered_by_its_route_where_configured() -> None:
    world = World(enable_single_topic_register=True)
    world.topics.create_on_send("T", "TBW102", "peer", 4, 0)
    world.network.settle()
    (request,) = world.servers[FIRST].requests
    assert request.code == RequestCode.REGISTER_TOPIC_IN_NAMESRV
    (queue,) = decode_body(TopicRouteData, request.body).queue_datas
    assert (queue.broker_name, queue.write_queue_nums) == ("broker-a", 4)


def test_a_name_server_that_is_down_does_not_keep_the_others_from_knowing() -> None:
    world = World(up=(SECOND,))
    assert world.settle(world.membership.register())
    assert len(world.servers[SECOND].registrations()) == 1


def test_a_name_server_that_comes_back_gets_everything_in_a_new_version() -> None:
    world = World(up=(SECOND,))
    world.settle(world.membership.register())
    world.topics.create_on_send("T", "TBW102", "peer", 4, 0)
    world.network.settle()
    missed = world.topics.data_version
    world.network.serve(FIRST, world.servers[FIRST].handlers())
    world.clock.advance(30)
    world.settle(world.membership.register())
    bodies = world.servers[FIRST].registrations()
    assert "T" in names_of(bodies[-1])
    assert len(world.servers[SECOND].registrations()) == 3, "at first, T, and the one asked for"
    assert bodies[-1].topic_config_serialize_wrapper.data_version.counter > missed.counter


def test_without_force_only_what_a_name_server_does_not_know_is_sent() -> None:
    world = World(force_register=False)
    for server in world.servers.values():
        server.known = world.topics.data_version
    assert world.settle(world.membership.register())
    assert world.servers[FIRST].registrations() == []
    world.servers[SECOND].known = DataVersion(counter=99)
    assert world.settle(world.membership.register())
    assert len(world.servers[FIRST].registrations()) == 1


def test_a_name_server_that_cannot_say_its_version_gets_everything() -> None:
    world = World(force_register=False, up=(FIRST,))
    world.servers[FIRST].known = world.topics.data_version
    assert world.settle(world.membership.register())
    assert len(world.servers[FIRST].registrations()) == 1


def test_a_large_table_is_split_into_versions_of_their_own() -> None:
    world = World(enable_split_registration=True, split_registration_size=5)
    world.settle(world.membership.register())
    bodies = world.servers[FIRST].registrations()
    assert set().union(*map(names_of, bodies)) == set(world.topics.all())
    versions = [body.topic_config_serialize_wrapper.data_version.counter for body in bodies]
    assert versions == sorted(set(versions))
    assert all(len(names_of(body)) <= 5 for body in bodies)


def test_a_table_too_large_for_a_frame_is_split_without_being_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registration, "MAX_TOPICS_AT_ONCE", 5)
    world = World()
    with capturedLogs() as logs:
        world.settle(world.membership.register())
        world.settle(world.membership.register())
    bodies = world.servers[FIRST].registrations()
    assert set().union(*map(names_of, bodies)) == set(world.topics.all())
    versions = [body.topic_config_serialize_wrapper.data_version.counter for body in bodies]
    assert versions == sorted(versions)
    assert all(len(names_of(body)) <= 5 for body in bodies)
    (said,) = [text for log in logs if "at a time" in (text := formatEvent(log))]
    assert "deleteTopicWithBrokerRegistration" in said


def test_a_registration_is_made_in_a_thread() -> None:
    world = World()
    world.threads.eager = False
    registered = world.membership.register()
    assert not world.settle(registered) and not world.servers[FIRST].requests
    world.threads.run()
    assert world.settle(registered)
    (body,) = world.servers[FIRST].registrations()
    assert names_of(body) == set(world.topics.all())


def test_topics_that_are_made_together_are_registered_together() -> None:
    world = registered()
    world.threads.eager = False
    for number in range(100):
        world.topics.create_on_send(f"T{number}", "TBW102", "peer", 4, 0)
    assert world.announcements.under_way("T99") is not None
    for _ in range(3):
        world.threads.run()
        world.network.settle()
    bodies = world.servers[FIRST].registrations()
    assert len(bodies) == 2, "the first, and all that came while it was made"
    assert set().union(*map(names_of, bodies)) == {f"T{number}" for number in range(100)}
    versions = [body.topic_config_serialize_wrapper.data_version.counter for body in bodies]
    assert versions[0] < versions[1]
    assert all(world.announcements.under_way(f"T{number}") is None for number in range(100))


def test_what_is_being_made_when_the_broker_leaves_is_not_sent() -> None:
    world = World()
    world.threads.eager = False
    registered = world.membership.register()
    world.topics.create_on_send("T", "TBW102", "peer", 4, 0)
    world.settle(world.membership.leave())
    while world.threads.run():
        pass
    assert world.settle(registered)
    for server in world.servers.values():
        assert not server.requests
    assert world.announcements.under_way("T") is None


def test_a_broker_without_write_permission_registers_its_topics_so() -> None:
    world = World(broker_permission=4)
    world.settle(world.membership.register())
    (body,) = world.servers[FIRST].registrations()
    perms = {t.perm for t in body.topic_config_serialize_wrapper.topic_config_table.values()}
    assert perms == {0, 4}
    assert world.topics.all()["BenchmarkTest"].perm == 6


def test_the_master_and_ordered_topics_are_taken_from_the_answer() -> None:
    world = World(up=(FIRST,))
    world.topics.update(TopicConfig(topic_name="T"))
    server = world.servers[FIRST]
    server.master = RegisterBrokerResponseHeader(
        master_addr="10.0.0.8:10911", ha_server_addr="10.0.0.8:10912"
    )
    server.ordered = {"T": "broker-a:4"}
    heard: list[Master] = []
    world.membership.masters.add(heard.append)
    world.settle(world.membership.register())
    assert Master("10.0.0.8:10911", "10.0.0.8:10912") in heard
    assert world.topics.all()["T"].order


def test_a_refusing_name_server_fails_nothing() -> None:
    world = World()
    world.servers[FIRST].refuses = True
    assert world.settle(world.membership.register())


def test_a_broker_that_left_registers_no_more() -> None:
    world = World()
    assert world.settle(world.membership.register())
    assert world.settle(world.membership.leave())
    assert [request.code for request in world.servers[FIRST].requests] == [
        RequestCode.REGISTER_BROKER,
        RequestCode.UNREGISTER_BROKER,
    ]
    world.servers[FIRST].requests.clear()
    assert world.settle(world.membership.register())
    world.topics.create_on_send("T", "TBW102", "peer", 4, 0)
    world.network.settle()
    assert world.servers[FIRST].requests == []


def test_one_that_could_not_be_reached_is_asked_again_alone() -> None:
    world = World(up=(FIRST,))
    assert world.settle(world.membership.register())
    known = world.membership.when_registered(SECOND)
    assert world.settle(world.membership.when_registered(FIRST))
    world.servers[FIRST].requests.clear()
    assert world.settle(world.membership.retry())
    assert not world.servers[FIRST].requests
    world.network.serve(SECOND, world.servers[SECOND].handlers())
    assert not known.called
    world.clock.advance(3)
    assert world.settle(world.membership.retry())
    assert known.called
    (body, *_) = world.servers[SECOND].registrations()
    assert names_of(body) == set(world.topics.all())
    world.servers[SECOND].requests.clear()
    assert world.settle(world.membership.retry()), "all have been reached"
    assert not world.servers[SECOND].requests
    world.settle(world.membership.leave())
    world.network.stop(SECOND)
    world.servers[FIRST].requests.clear()
    assert world.settle(world.membership.retry())
    assert not world.servers[FIRST].requests


def test_a_role_that_is_over_is_registered_no_more() -> None:
    world = World()
    world.threads.eager = False
    registered = world.membership.register(force=True)
    world.role.change(RoleState(Role.ISOLATED, 0))
    world.topics.create_on_send("T", "TBW102", "peer", 4, 0)
    while world.threads.run():
        pass
    assert world.settle(registered) and world.settle(world.membership.register(force=True))
    assert world.settle(world.membership.retry())
    assert not world.servers[FIRST].requests
    assert world.announcements.under_way("T") is None
    world.threads.eager = True
    world.role.change(RoleState(Role.SLAVE, 1))
    assert world.settle(world.membership.register(force=True)), "the role is not entered yet"
    assert not world.servers[FIRST].requests
    world.membership.begin()
    assert world.settle(world.membership.register(force=True))
    (request,) = world.servers[FIRST].requests
    assert request.header(RegisterBrokerRequestHeader).broker_id == 1


def unregistered(world: World) -> list[str]:
    """The name servers that were told that the broker leaves."""
    world.settle(world.membership.leave())
    return [
        address
        for address, server in world.servers.items()
        if any(request.code == RequestCode.UNREGISTER_BROKER for request in server.requests)
    ]


def test_a_broker_that_never_registered_unregisters_nothing() -> None:
    """As where its port is taken: by a broker of its name, perhaps."""
    assert unregistered(World()) == []


def test_a_broker_that_was_refused_unregisters_nothing_there() -> None:
    world = World()
    world.servers[FIRST].refuses = True
    world.settle(world.membership.register())
    assert unregistered(world) == [SECOND]


def test_a_broker_that_may_be_registered_unregisters() -> None:
    """It is not known what became of the request where no answer came."""
    world = World()
    world.servers[FIRST].is_silent = True
    world.membership.register()
    for _ in range(10):
        world.network.settle()
    assert unregistered(world) == [FIRST, SECOND]


def test_a_broker_is_known_while_one_of_its_name_servers_answers() -> None:
    world = World()
    membership = world.membership
    assert membership.not_registered() == "no name server has taken its registration"
    world.settle(membership.register())
    assert membership.not_registered() == ""
    world.servers[FIRST].is_silent = world.servers[SECOND].is_silent = True
    for _ in range(3):
        membership.register()
        world.settle(membership.retry())
        world.clock.advance(30)
        assert membership.not_registered() == ""
    world.clock.advance(1)
    assert membership.not_registered() == "no name server has answered for 91 s"
    world.servers[SECOND].is_silent = False
    world.settle(membership.retry())
    assert membership.not_registered() == ""


def test_two_minutes_without_an_answer_are_too_long_for_any_period() -> None:
    world = World(register_name_server_period=60_000)
    world.settle(world.membership.register())
    world.clock.advance(120)
    assert world.membership.not_registered() == ""
    world.clock.advance(1)
    assert world.membership.not_registered() == "no name server has answered for 121 s"


def test_a_broker_that_took_its_registration_back_is_not_known() -> None:
    world = World()
    world.settle(world.membership.register())
    world.settle(world.membership.unregister())
    assert world.membership.not_registered() == "no name server has taken its registration"


def test_a_broker_without_name_servers_misses_none() -> None:
    world = World(namesrv_addr="")
    world.clock.advance(1000)
    assert world.membership.not_registered() == ""
