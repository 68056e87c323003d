"""A connection at the HA port is a replica where a registered member of the group makes it."""

from __future__ import annotations

import socket
from struct import pack
from typing import Any

import pytest
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import Clock
from twisted.internet.testing import MemoryReactorClock
from twisted.logger import capturedLogs, formatEvent

from rocketmq_tw.broker.replicas.members import HostNames
from rocketmq_tw.broker.replicas.part import Replicas
from rocketmq_tw.config.net import NettyServerConfig
from rocketmq_tw.net.interfaces import AccessChecks
from rocketmq_tw.net.server import RemotingServer
from rocketmq_tw.replication.links.members import SlaveAddressCheck
from rocketmq_tw.wire.bodies.stats import HAConnectionInfo
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from tests.support.broker import BrokerInMemory
from tests.support.name_server import NameServerInMemory
from tests.support.network import FakePeer, MemoryNetwork

MASTER, NAMES = "10.0.0.1:10911", "10.0.9.1:9876"
SLAVE, OTHER, STRANGER = "10.0.0.2", "10.0.0.3", "10.66.0.1"
OK, NONE, TIMEOUT = (
    ResponseCode.SUCCESS,
    ResponseCode.SLAVE_NOT_AVAILABLE,
    ResponseCode.FLUSH_SLAVE_TIMEOUT,
)


class EagerSlave(Protocol):
    """Acknowledges all that it is sent, as a stock slave does."""

    def __init__(self) -> None:
        self.end = 0
        self._data = b""
        self.lost = False

    def connectionMade(self) -> None:
        self.report()

    def report(self) -> None:
        self.transport.write(pack(">q", self.end))  # type: ignore[union-attr]

    def dataReceived(self, data: bytes) -> None:
        self._data += data
        while len(self._data) >= 12:
            offset = int.from_bytes(self._data[:8], "big")
            size = int.from_bytes(self._data[8:12], "big")
            if len(self._data) < 12 + size:
                break
            self._data = self._data[12 + size :]
            self.end = max(self.end, offset + size)
        self.report()

    def connectionLost(self, *_: Any) -> None:
        self.lost = True


class World:
    """A SYNC_MASTER of the group broker-a, its name server, and who connects."""

    def __init__(
        self, *, names: bool = True, ha_addresses: str = "", old_names: bool = False, **store: Any
    ) -> None:
        self.clock = MemoryReactorClock()
        self.network = MemoryNetwork(self.clock)
        self.names = NameServerInMemory(self.clock)
        if old_names:
            # As 4.9's.
            del self.names.handlers[RequestCode.GET_BROKER_MEMBER_GROUP]
        self.network.serve(NAMES, self.names.handlers)
        config = NettyServerConfig(bind_address="10.0.0.1", listen_port=10911)
        access = AccessChecks(connections=[SlaveAddressCheck(ha_addresses)])
        self.master = BrokerInMemory(
            clock=self.clock,
            network=self.network,
            address=MASTER,
            server=RemotingServer(self.clock, config, access=access),
            broker={"namesrv_addr": NAMES if names else ""},
            broker_role="SYNC_MASTER",
            slave_timeout=1000,
            ha_addresses=ha_addresses,
            **store,
        )
        self.settle(1)

    def settle(self, seconds: float = 0.5) -> None:
        for _ in range(round(seconds / 0.1)):
            self.clock.advance(0.1)
            self.network.settle()

    def register(self, host: str, broker_id: int = 1, **fields: str) -> None:
        header = {
            "clusterName": "DefaultCluster",
            "brokerName": "broker-a",
            "brokerId": str(broker_id),
            "brokerAddr": f"{host}:10911",
            "haServerAddr": f"{host}:10912",
        }
        request = RemotingCommand(RequestCode.REGISTER_BROKER, ext_fields=header | fields)
        self.names.handlers[RequestCode.REGISTER_BROKER](request, FakePeer(f"{host}:5000"))

    def connect(self, host: str) -> EagerSlave:
        made: list[EagerSlave] = []
        ha = self.master.broker.addresses.ha
        connected = self.network.connect(host, ha, Factory.forProtocol(EagerSlave))
        connected.addCallback(made.append)
        self.settle()
        return made[0]

    def send(self) -> int:
        """The code of the answer to a message."""
        codes: list[int] = []
        client = self.network.client("10.0.0.9")
        request = self.master.send_request(b"x")
        client.request(MASTER, request, 5).addCallback(lambda answer: codes.append(answer.code))
        self.settle(2)
        client.close()
        return codes[0]

    def shown(self) -> dict[str, HAConnectionInfo]:
        links = self.master.broker[Replicas].master
        assert links is not None
        infos = links.runtime_info().ha_connection_info
        return {info.addr.partition(":")[0]: info for info in infos}


def lines_of(events: list[Any], host: str) -> list[str]:
    return [line for event in events if f"{host}:" in (line := formatEvent(event))]


@pytest.mark.parametrize("old_names", [False, True])
def test_no_send_waits_for_a_stranger(old_names: bool) -> None:
    world = World(old_names=old_names)
    with capturedLogs() as logs:
        world.connect(STRANGER)
    assert world.send() == NONE
    assert not world.shown()[STRANGER].in_sync
    lines = lines_of(logs, STRANGER)
    assert "opened" in lines[0] and "haAddresses" in lines[1] and len(lines) == 2, lines
    with capturedLogs() as logs:
        world.settle(150)
    assert len(lines_of(logs, STRANGER)) == 2, "it may be a slave that is missed"
    world.register(SLAVE)
    world.connect(SLAVE)
    assert world.send() == OK
    assert world.shown()[SLAVE].in_sync and not world.shown()[STRANGER].in_sync


def test_a_slave_counts_once_it_is_registered() -> None:
    world = World()
    slave = world.connect(SLAVE)
    assert world.send() == NONE
    world.register(SLAVE)
    with capturedLogs() as logs:
        world.settle(3)
    assert any("registered member" in line for line in lines_of(logs, SLAVE))
    assert world.send() == OK and not slave.lost


def test_a_stranger_is_not_the_second_copy_of_two() -> None:
    world = World(in_sync_replicas=3)
    world.register(SLAVE)
    world.connect(SLAVE)
    world.connect(STRANGER)
    world.connect(SLAVE)
    assert world.send() == NONE, "one slave is no two, with two links either"
    world.register(OTHER, 2)
    world.connect(OTHER)
    assert world.send() == OK


def test_without_name_servers_every_slave_counts() -> None:
    world = World(names=False)
    world.connect(STRANGER)
    assert world.send() == OK


def test_a_name_server_that_does_not_know_this_group_says_nothing_of_it() -> None:
    world = World()
    world.register(SLAVE)
    world.connect(SLAVE)
    del world.names.server.table._brokers["broker-a"]
    world.connect(SLAVE)
    world.settle(5)
    assert world.send() == OK, "it was started again, and will know them"


def test_a_slave_stays_one_while_the_name_servers_forget_it() -> None:
    world = World()
    world.register(SLAVE)
    slave = world.connect(SLAVE)
    table = world.names.server.table
    table.unregister("DefaultCluster", f"{SLAVE}:10911", "broker-a")
    world.connect(STRANGER)
    world.settle(5)
    assert world.send() == OK
    slave.transport.loseConnection()  # type: ignore[union-attr]
    world.settle()
    world.connect(SLAVE)
    assert world.send() == OK, "it is remembered for a while"


def test_members_that_are_down_are_no_room_for_strangers() -> None:
    world = World()
    world.register(SLAVE)
    world.connect(STRANGER)
    world.connect(STRANGER)
    assert world.send() == NONE


def test_a_slave_behind_another_address_counts_where_that_is_named() -> None:
    world = World(ha_addresses="10.77.0.0/16")
    world.register(SLAVE)
    world.connect("10.77.0.2")
    assert world.send() == OK
    with capturedLogs() as logs:
        assert world.connect(STRANGER).lost
    assert any("not in haAddresses" in line for line in lines_of(logs, STRANGER))


def test_strangers_do_not_take_the_places_of_slaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rocketmq_tw.replication.links.service.MAX_SLAVES", 3)
    world = World()
    world.register(SLAVE)
    strangers = [world.connect(STRANGER) for _ in range(3)]
    with capturedLogs():
        world.connect(SLAVE)
    assert world.send() == OK
    assert [stranger.lost for stranger in strangers] == [True, False, False]


def test_each_connection_is_in_the_log() -> None:
    world = World(names=False)
    with capturedLogs() as logs:
        world.connect(SLAVE).transport.loseConnection()  # type: ignore[union-attr]
        world.settle()
    assert [line.split()[-1] for line in lines_of(logs, SLAVE)] == ["opened", "ended"]


def test_a_stop_waits_for_no_stranger() -> None:
    world = World()
    stranger = world.connect(STRANGER)
    stranger.report = lambda: None  # type: ignore[method-assign]
    assert world.send() == NONE
    began = world.clock.seconds()
    world.master.stop()
    assert world.clock.seconds() - began < 2.0


def test_the_checks_refusal_names_no_more_than_the_key() -> None:
    check = SlaveAddressCheck("10.77.0.0/16")
    check(FakePeer("10.77.1.1:5"))
    with pytest.raises(RequestError, match=r"10\.66\.0\.1 is not in haAddresses"):
        check(FakePeer(f"{STRANGER}:5"))
    SlaveAddressCheck("")(FakePeer(f"{STRANGER}:5"))


def test_a_slave_on_the_masters_machine_may_come_by_loopback() -> None:
    world = World()
    world.register("10.0.0.1", brokerAddr="10.0.0.1:10921")
    world.connect("127.0.0.1")
    assert world.send() == OK


def test_a_slave_may_be_registered_by_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def look_up(host: str, *_: Any, **__: Any) -> list[Any]:
        assert host == "slave.example"
        return [(None, None, None, "", (SLAVE, 0))]

    world = World()
    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    world.register("slave.example")
    world.connect(SLAVE)
    assert world.send() == OK


def test_names_that_nobody_knows_keep_no_slave_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Anybody may register them, and each look-up may take ten seconds."""
    clock, asked = Clock(), list[str]()

    def look_up(name: str, *_: Any, **__: Any) -> list[Any]:
        asked.append(name)
        if name == "slave.example":
            return [(0, 0, 0, "", (SLAVE, 0))]
        clock.advance(10)
        raise OSError("it does not answer")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    names = HostNames(clock.seconds)
    strange = {f"host{number}.example" for number in range(20)}
    names.look_up(strange)
    assert len(asked) == 1
    rounds = 0
    while names.look_up({*strange, "slave.example"})["slave.example"] != {SLAVE}:
        rounds += 1
        assert rounds < 20
    while rounds < 25:
        rounds += 1
        found = names.look_up({*strange, "slave.example"})
        assert found["slave.example"] == {SLAVE} and not found["host3.example"]
    assert set(asked) == {*strange, "slave.example"}
    assert names.look_up(set()) == {}


def test_a_slave_counts_though_the_clock_was_set_back() -> None:
    world = World()
    world.settle(3)
    world.master.shift_ms = -3_600_000
    assert world.send() == NONE
    world.register(SLAVE)
    world.connect(SLAVE)
    world.settle(5)
    assert world.send() == OK
