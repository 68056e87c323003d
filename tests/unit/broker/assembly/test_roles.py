"""Brokers of one process whose roles change while clients send and read."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred, fail
from twisted.internet.error import CannotListenError
from twisted.internet.task import deferLater
from twisted.internet.testing import MemoryReactorClock

from rocketmq_tw.broker.assembly.host import Host
from rocketmq_tw.broker.assembly.part import Part
from rocketmq_tw.broker.broker import PARTS
from rocketmq_tw.broker.cluster.part import Cluster
from rocketmq_tw.broker.pop.part import Pop
from rocketmq_tw.broker.replicas.part import Replicas
from rocketmq_tw.broker.role.state import Role, RoleState
from rocketmq_tw.config.namesrv import NamesrvConfig
from rocketmq_tw.config.net import NettyServerConfig
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.namesrv.namesrv import NameServer
from rocketmq_tw.net.server import RemotingServer
from rocketmq_tw.store.errors import NotWritableError
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from tests.support.broker import BrokerInMemory, fired, ok
from tests.support.network import FakePeer, MemoryNetwork
from tests.support.noted_sends import TURN, NotedSends, bodies_of, log_of
from tests.support.pops import Popper, pass_time

NAMES, FIRST, SECOND = "10.0.0.1:9876", "10.0.0.2:10911", "10.0.0.3:10911"
MASTER, SYNC_MASTER = RoleState(Role.MASTER, 0), RoleState(Role.MASTER, 0, synchronous=True)
SLAVE = RoleState(Role.SLAVE, 1)


class Pair(NotedSends):
    """Two brokers of one name in one process: one server, one client, one pool for both."""

    def __init__(self, **store: Any) -> None:
        clock = MemoryReactorClock()
        self.network = MemoryNetwork(clock)
        super().__init__(clock, self.network.client("10.0.0.9"))
        config = NamesrvConfig(kv_config_path="/kv.json", config_store_path="/ns.properties")
        self.names = NameServer(self.clock, MemoryFiles(), config)
        self.network.serve(NAMES, self.names.handlers)
        self.server = RemotingServer(self.clock, NettyServerConfig(bind_address="127.0.0.1"))
        self.first = self.broker(FIRST, broker_role="ASYNC_MASTER", **store)
        self.first.add_topic("Topic", read_queue_nums=4, write_queue_nums=4)
        self.second = self.broker(SECOND, broker_role="SLAVE", **store)
        self.settle(6)

    def broker(self, address: str, **store: Any) -> BrokerInMemory:
        return BrokerInMemory(
            clock=self.clock,
            network=self.network,
            address=address,
            server=self.server,
            client=self.client,
            broker={"namesrv_addr": NAMES, "slave_read_enable": True},
            **store,
        )

    def load(self, *brokers: BrokerInMemory, seconds: float = 1.0) -> None:
        """Sends to each broker while time goes on."""
        for _ in range(round(seconds / TURN)):
            for broker in brokers:
                self.send_to(broker, 3)
            self.clock.advance(TURN)

    def change(self, broker: BrokerInMemory, state: RoleState) -> None:
        """Changes the role in the middle of sends to both."""
        self.send_to(self.first, 5)
        self.send_to(self.second, 5)
        broker.become(state)
        self.load(self.first, self.second, seconds=0.5)

    def swap(self, master: BrokerInMemory, slave: BrokerInMemory, state: RoleState) -> None:
        """The slave becomes the master and the other way round."""
        self.change(master, SLAVE)
        # What the former master still had to give.
        self.settle(2)
        self.change(slave, state)
        self.settle(8)


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
@pytest.mark.parametrize("state", [MASTER, SYNC_MASTER])
def test_master_slave_master_under_load(flush: str, state: RoleState) -> None:
    pair = Pair(flush_disk_type=flush)
    first, second = pair.first, pair.second
    pair.load(first)
    pair.swap(first, second, state)
    assert (first.broker.role.role, second.broker.role.role) == (Role.SLAVE, Role.MASTER)
    assert second.broker[Replicas].master is not None and first.broker[Replicas].slave is not None
    half = len(pair.acknowledged)
    pair.load(first, second)
    pair.settle(4)
    assert len(pair.acknowledged) > half, "the new master takes messages"
    assert first.broker[Replicas].slave.client.linked
    pair.swap(second, first, state)
    pair.load(first, second)
    pair.settle(4)
    assert log_of(first) == log_of(second)
    stored = bodies_of(first)
    assert sorted(stored) == sorted(bodies_of(second))
    assert len(stored) == len(set(stored)), "nothing twice"
    assert pair.acknowledged <= set(stored), "nothing acknowledged is lost"
    assert pair.refused, "who was no master refused"


def test_what_is_delayed_goes_on_with_the_new_master() -> None:
    pair = Pair()
    pair.first.send(b"late", properties={"DELAY": "2"})
    pair.settle(2)
    pair.swap(pair.first, pair.second, MASTER)
    pair.settle(8)
    assert bodies_of(pair.second).count(b"late") == 1 == bodies_of(pair.first).count(b"late")


def test_a_held_read_is_answered_when_the_role_changes() -> None:
    pair = Pair()
    peer = FakePeer()
    assert pair.first.request(pair.first.pull_request(0, suspend_ms=20_000), peer) is None
    pair.first.become(SLAVE)
    assert len(peer.replies) == 1


def test_a_slave_with_part_of_a_record_becomes_a_master() -> None:
    pair = Pair()
    pair.load(pair.first)
    pair.settle()
    pair.first.stop()
    record = log_of(pair.second)[:200]
    end = pair.second.store.end_offset
    pair.second.commit.append_raw(end, record[:99])
    pair.second.become(MASTER)
    assert pair.second.store.end_offset == end, "the rest of it never comes"
    before = len(bodies_of(pair.second))
    pair.load(pair.second)
    pair.settle()
    assert len(bodies_of(pair.second)) > before
    assert pair.acknowledged <= set(bodies_of(pair.second))


def test_one_of_two_stops_and_the_other_goes_on() -> None:
    pair = Pair()
    pair.load(pair.first)
    pair.second.stop()
    pair.load(pair.first)
    pair.settle()
    pair.first.stop()
    assert pair.refused == 0
    # Neither has closed what both were given.
    again = pair.broker(FIRST, broker_role="ASYNC_MASTER")
    pair.load(again)
    assert pair.refused == 0


def test_brokers_of_one_process_share_nothing_else() -> None:
    pair = Pair()
    other = pair.broker("10.0.0.4:10911", broker_role="ASYNC_MASTER")
    other.add_topic("Own")
    assert pair.first.topics.get("Own") is None
    code = RequestCode.GET_ALL_TOPIC_CONFIG
    assert pair.first.handlers[code] != other.handlers[code]
    pair.load(other)
    assert bodies_of(pair.first) == []


def test_a_role_that_may_not_follow_changes_nothing() -> None:
    pair = Pair()
    with pytest.raises(ValueError, match="a broker that is master cannot be acting master"):
        pair.first.become(RoleState(Role.ACTING_MASTER, 1))
    assert pair.first.broker.role.state == MASTER
    pair.load(pair.first)
    assert not pair.refused


def test_an_acting_master_stays_a_slave_of_the_master_that_comes_back() -> None:
    """From slave to acting master and back nothing of the slave ends: its link to the master, its
    registration, and its log, which stays the master's to the byte."""
    pair, acting = Pair(timer_wheel_enable=True), RoleState(Role.ACTING_MASTER, 1)
    pair.load(pair.first)
    link = pair.second.broker[Replicas].slave
    for _ in range(2):
        pair.second.become(acting)
        assert pair.second.broker.role.role is Role.ACTING_MASTER
        pair.load(pair.first, pair.second)
        assert pair.second.broker[Replicas].slave is link and link.client.linked
        pair.second.become(SLAVE)
        assert pair.second.broker.role.role is Role.SLAVE
        pair.load(pair.first)
        assert pair.second.broker[Replicas].slave is link and link.client.linked
    pair.settle(4)
    assert pair.refused > 0, "an acting master takes no messages"
    assert log_of(pair.first) == log_of(pair.second)
    # And it can be made the master, or be stopped, as any slave.
    pair.second.become(acting)
    pair.swap(pair.first, pair.second, MASTER)
    assert pair.second.broker[Replicas].master is not None
    pair.first.become(acting)
    pair.first.stop()


def test_a_part_that_cannot_act_leaves_the_broker_a_slave(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Pair()
    monkeypatch.setattr(Pop, "enter", lambda self, state: fail(OSError("no room")))
    with pytest.raises(OSError, match="no room"):
        pair.second.become(RoleState(Role.ACTING_MASTER, 1))
    assert pair.second.broker.role.state == SLAVE
    pair.load(pair.first)
    pair.settle(4)
    assert log_of(pair.first) == log_of(pair.second)


def test_an_isolated_broker_stores_nothing_and_is_not_registered() -> None:
    pair = Pair()
    pair.first.become(RoleState(Role.ISOLATED, 0))
    pair.send_to(pair.first)
    pair.settle()
    assert pair.refused == 1
    pair.first.become(MASTER)
    pair.load(pair.first)
    assert pair.refused == 1


def test_a_broker_is_not_ready_before_it_has_a_role() -> None:
    broker = BrokerInMemory()
    assert broker.broker.not_ready() == ""
    broker.become(RoleState(Role.ISOLATED, 0))
    assert broker.broker.not_ready() == "the broker has no role yet"
    broker.become(MASTER)
    assert broker.broker.not_ready() == ""


class LateToEnter(Part):
    """Takes its time to enter a role, as a part does that writes a file for that."""

    seconds = 0.0

    def __init__(self, host: Host, replicas: Replicas, pop: Pop) -> None:
        self._host = host

    def enter(self, state: RoleState) -> Deferred[None]:
        return deferLater(self._host.reactor, self.seconds)


@pytest.mark.parametrize("timer", [False, True])
def test_nothing_is_appended_before_every_part_is_in_its_role(
    monkeypatch: pytest.MonkeyPatch, timer: bool
) -> None:
    broker = BrokerInMemory(kinds=[*PARTS, LateToEnter], timer_wheel_enable=timer)
    broker.add_topic("Topic", read_queue_nums=1, write_queue_nums=1)
    popper, special = Popper(broker), {b"delayed": {"DELAY": "3"}}
    if timer:
        special[b"timed"] = {"TIMER_DELAY_SEC": "10"}
    ok(broker.send(b"popped"))
    assert popper.bodies(invisible_time=10_000) == [b"popped"]
    for body, properties in special.items():
        ok(broker.send(body, properties=properties))
    broker.become(RoleState(Role.ISOLATED, 0))
    pass_time(broker, 20)
    monkeypatch.setattr(LateToEnter, "seconds", 5.0)
    changed, end = broker.broker.change_role(MASTER), broker.store.end_offset
    while not changed.called:
        assert broker.store.end_offset == end
        broker.clock.advance(0.1)
    pass_time(broker, 10)
    assert {message.body for message in broker.consume()} == {b"popped", *special}
    assert popper.bodies() != []


def test_a_part_leaves_before_those_that_it_uses() -> None:
    served: list[bool] = []

    class Ending(Part):
        def __init__(self, replicas: Replicas, pop: Pop) -> None:
            self._replicas = replicas

        def leave(self, state: RoleState) -> None:
            served.append(self._replicas.master is not None)

    broker = BrokerInMemory(kinds=[*PARTS, Ending])
    broker.become(RoleState(Role.ISOLATED, 0))
    assert served == [True]


def test_a_broker_is_seen_once_every_part_is_in_its_role(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Pair()
    broker = BrokerInMemory(
        kinds=[*PARTS, LateToEnter],
        clock=pair.clock,
        network=pair.network,
        address="10.0.0.4:10911",
        broker={"broker_name": "late", "namesrv_addr": NAMES},
        broker_role="SLAVE",
    )
    pair.settle()

    def seen() -> dict[int, str]:
        return pair.names.table.members(broker.config.broker_cluster_name, "late").broker_addrs

    assert seen() == {1: broker.address}
    monkeypatch.setattr(LateToEnter, "seconds", 5.0)
    changed = broker.broker.change_role(MASTER)
    while not changed.called:
        # As where its period is over, or a topic is made.
        broker.broker[Cluster].membership.register()
        broker.clock.advance(0.1)
        assert changed.called or seen() == {1: broker.address}
    pair.settle()
    assert seen() == {0: broker.address}


def test_a_role_that_cannot_be_taken_up_leaves_the_broker_isolated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pair = Pair()
    pair.load(pair.first)
    pair.swap(pair.first, pair.second, MASTER)

    def taken(*_: object, **__: object) -> None:
        raise CannotListenError("127.0.0.1", 10912, OSError(98, "Address already in use"))

    with monkeypatch.context() as patch:
        patch.setattr(pair.clock, "listenTCP", taken)
        with pytest.raises(OSError, match="haListenPort"):
            pair.first.become(MASTER)
    assert pair.first.broker.role.role is Role.ISOLATED
    refused = pair.refused
    pair.send_to(pair.first)
    pair.settle()
    assert pair.refused == refused + 1
    pair.first.become(SLAVE)
    pair.load(pair.second)
    pair.settle(4)
    assert log_of(pair.first) == log_of(pair.second)


@pytest.mark.parametrize("role", [MASTER, SLAVE, RoleState(Role.ISOLATED, 0)])
def test_a_role_whose_messages_cannot_be_made_durable_is_followed_by_none(
    monkeypatch: pytest.MonkeyPatch, role: RoleState
) -> None:
    pair = Pair()
    pair.load(pair.first)

    def fails() -> int:
        raise NotWritableError("the disk is broken")

    with monkeypatch.context() as patch:
        patch.setattr(pair.first.store, "fsync", fails)
        pair.send_to(pair.first)
        with pytest.raises(NotWritableError):
            pair.first.become(role)
        assert pair.first.broker.role.role is Role.ISOLATED
        # Nor does one follow who was nothing in between.
        with pytest.raises(NotWritableError):
            pair.first.become(MASTER)
        assert pair.first.broker.role.role is Role.ISOLATED
    pair.first.become(MASTER)
    pair.load(pair.first)
    assert pair.acknowledged <= set(bodies_of(pair.first))


def test_changes_that_are_asked_for_at_once_come_one_after_the_other() -> None:
    pair = Pair()
    pair.load(pair.first)
    changes = [pair.first.broker.change_role(state) for state in (SLAVE, MASTER, SLAVE, MASTER)]
    stopped = pair.first.broker.change_role(SLAVE)
    pair.settle(20)
    assert all(change.called for change in (*changes, stopped))
    assert pair.first.broker.role.role is Role.SLAVE
    pair.first.become(MASTER)
    assert pair.acknowledged <= set(bodies_of(pair.first))
    # A change that waits when the broker stops is not begun any more.
    late = pair.first.broker.change_role(SLAVE)
    pair.first.stop()
    assert late.called


def test_the_configuration_shows_the_role_of_now() -> None:
    pair = Pair()

    def shown(broker: BrokerInMemory) -> list[str]:
        text = broker.ask(RequestCode.GET_BROKER_CONFIG).body.decode()
        return [line for line in text.split() if line.startswith(("brokerRole=", "brokerId="))]

    assert shown(pair.first) == ["brokerId=0", "brokerRole=ASYNC_MASTER"]
    pair.swap(pair.first, pair.second, SYNC_MASTER)
    assert shown(pair.first) == ["brokerId=1", "brokerRole=SLAVE"]
    assert shown(pair.second) == ["brokerId=0", "brokerRole=SYNC_MASTER"]


def test_what_a_sync_master_stored_in_its_last_turn_waited_for_a_slave() -> None:
    pair = Pair()
    pair.second.stop()
    alone = pair.first
    alone.become(SYNC_MASTER)
    peer = FakePeer()
    alone.handlers[RequestCode.SEND_MESSAGE_V2](alone.send_request(b"last"), peer)
    alone.become(SLAVE)
    assert [reply.code for reply in peer.replies] == [ResponseCode.SLAVE_NOT_AVAILABLE]


def test_a_master_gives_its_slaves_what_its_disk_has_last() -> None:
    """With SYNC_FLUSH slaves get what is durable, and that comes while the role ends."""
    pair = Pair(flush_disk_type="SYNC_FLUSH")
    first, threads, peer = pair.first, pair.first.threads, FakePeer()
    first.become(SYNC_MASTER)
    pair.settle(8)
    threads.eager = False
    first.handlers[RequestCode.SEND_MESSAGE_V2](first.send_request(b"last"), peer)
    pair.clock.advance(0)

    def catch_up() -> None:
        threads.eager = True
        threads.run()

    pair.clock.callLater(0.1, catch_up)
    changed = first.broker.change_role(SLAVE)
    pair.settle(2)
    fired(changed)
    assert [reply.code for reply in peer.replies] == [ResponseCode.SUCCESS]
    assert bodies_of(pair.second) == [b"last"]


def test_a_broker_that_is_not_started_has_no_role_to_change() -> None:
    broker = BrokerInMemory(started=False)
    with pytest.raises(ValueError, match="not started"):
        fired(broker.broker.change_role(MASTER))
    broker.start()
    assert broker.broker.role.role is Role.MASTER
