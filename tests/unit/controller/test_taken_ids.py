"""A stranger takes the id of a broker that is in sync and down: it is not elected in its place."""

from __future__ import annotations

import pytest
from twisted.logger import capturedLogs, formatEvent

from rocketmq_tw.client.controller import ControllerClient
from rocketmq_tw.controller.core.election import WAIT_FOR_KNOWN_MS, CandidateStanding
from rocketmq_tw.controller.core.live_brokers import AT_HOME_MS, LiveBrokers, ReplicaKey
from rocketmq_tw.controller.core.state import SyncState
from rocketmq_tw.controller.decider import ControllerMachine
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.headers.namesrv import BrokerHeartbeatRequestHeader
from tests.support.sim.controllers import PEERS, AskingBroker, Controllers
from tests.unit.controller.conftest import group_of_three

STRANGER = "10.66.0.1"
HUGE = 10**15


class Process:
    """Speaks for a broker from some host: a stranger, or that broker once more."""

    def __init__(self, controllers: Controllers, host: str = STRANGER, broker_id: int = 2) -> None:
        self.controllers = controllers
        self.address = f"{host}:10911"
        self.broker_id = broker_id
        self.remoting = controllers.network.client(host)
        self.client = ControllerClient(
            controllers.clock, self.remoting, list(PEERS.values()), leader_timeout=30.0
        )

    def register(self) -> None:
        registering = self.client.register_broker("C", "g", self.broker_id, self.address)
        self.controllers.result(registering)

    def beat(self, *, offset: int = HUGE, address: str = "") -> None:
        self.client.heartbeat(
            BrokerHeartbeatRequestHeader(
                cluster_name="C",
                broker_name="g",
                broker_addr=address or self.address,
                broker_id=self.broker_id,
                epoch=9,
                max_offset=offset,
                heartbeat_timeout_mills=3_600_000,
            )
        )
        self.controllers.run(0.05)


@pytest.fixture
def stranger(controllers: Controllers) -> Process:
    return Process(controllers)


def sync(controllers: Controllers) -> SyncState:
    group = controllers.leader().machine.state.group("g")
    assert group is not None
    return group.sync


def elect(controllers: Controllers, asked: int) -> int:
    fields = {"clusterName": "C", "brokerName": "g", "brokerId": asked}
    member = controllers.leader_id()
    return controllers.ask(member, RequestCode.CONTROLLER_ELECT_MASTER, **fields).code


def test_another_member_is_elected_however_short_its_log(
    controllers: Controllers, three: list[AskingBroker], stranger: Process
) -> None:
    three[1].die()
    with capturedLogs() as logs:
        stranger.register()
    stranger.beat()
    texts = [formatEvent(event) for event in logs if event["log_level"].name == "error"]
    assert any(STRANGER in text and "10.0.0.2" in text for text in texts), texts
    three[0].die()
    controllers.run_until(lambda: sync(controllers).master == 3)


def test_the_master_is_waited_for_before_one_that_moved_is_elected(
    controllers: Controllers, three: list[AskingBroker], stranger: Process
) -> None:
    for broker in three[1:]:
        broker.die()
    stranger.register()
    stranger.beat()
    three[0].die()
    controllers.run_until(lambda: sync(controllers).master is None)
    assert elect(controllers, 2) == ResponseCode.CONTROLLER_ELECT_MASTER_FAILED
    Process(controllers, "10.0.0.1", 1).beat(offset=3)
    assert elect(controllers, 1) == 0
    assert sync(controllers).master == 1


def test_a_broker_that_moved_is_elected_where_nobody_comes_back(
    controllers: Controllers, three: list[AskingBroker], stranger: Process
) -> None:
    """As stock's brokers do, which have nothing to show for their id."""
    for broker in three[1:]:
        broker.die()
    stranger.register()
    stranger.beat(offset=5)
    three[0].die()
    controllers.run_until(lambda: sync(controllers).master is None)
    controllers.run(WAIT_FOR_KNOWN_MS / 1000 + 1)
    assert elect(controllers, 2) == 0
    assert sync(controllers).master == 2 and not sync(controllers).moved


def test_a_group_that_moved_as_a_whole_waits_for_nobody(
    controllers: Controllers, three: list[AskingBroker]
) -> None:
    turn = controllers.take_turn("g")
    for broker in three:
        broker.die()
    turn.callback(None)
    controllers.run_until(lambda: sync(controllers).master is None)
    moved = [Process(controllers, f"10.9.0.{number}", number) for number in (1, 2, 3)]
    for one in moved:
        one.register()
    for one in moved:
        one.beat(offset=one.broker_id)
    assert elect(controllers, 2) == 0
    assert sync(controllers).master == 3


def test_a_master_vouches_for_one_that_moved(
    controllers: Controllers, three: list[AskingBroker], stranger: Process
) -> None:
    three[1].die()
    stranger.register()
    stranger.beat()
    assert sync(controllers).moved == {2: three[1].address}
    machine = ControllerMachine()
    machine.load_snapshot(controllers.leader().machine.take_snapshot())
    assert machine.state == controllers.leader().machine.state
    client = three[0].client
    state = sync(controllers)
    for members in ([1, 3], [1, 2, 3]):
        epoch = sync(controllers).epoch
        alter = client.alter_sync_state_set("g", 1, state.master_epoch, members, epoch)
        controllers.result(alter)
        assert not sync(controllers).moved
    three[0].die()
    controllers.run_until(lambda: sync(controllers).master == 2)


def test_the_broker_gets_its_id_back(
    controllers: Controllers, three: list[AskingBroker], stranger: Process
) -> None:
    """It is started again at its host, while the stranger's heartbeats come."""
    three[1].die()
    stranger.register()
    stranger.beat()
    again = Process(controllers, "10.0.0.2")
    again.register()
    controllers.run_until(controllers.same_state)
    with capturedLogs() as logs:
        again.beat(offset=7)
    assert any(STRANGER in formatEvent(event) for event in logs)
    group = controllers.leader().machine.state.group("g")
    assert group is not None and not group.sync.moved
    assert group.table.address(2) == three[1].address
    for controller in controllers.running.values():
        standing = controller.live.standing("C", "g", 2)
        assert standing is not None and standing.max_offset == 7
    # What the stranger says counts no more, and no other host gets the id in this way.
    stranger.beat()
    assert controllers.leader().live.address("C", "g", 2) == three[1].address
    with pytest.raises(Exception, match="is alive at"):
        stranger.register()


@pytest.mark.parametrize("told", ["", "10.0.0.2:10911"])
def test_a_heartbeat_from_elsewhere_makes_no_master(
    controllers: Controllers, three: list[AskingBroker], stranger: Process, told: str
) -> None:
    """It kept the place of a broker that was down, with the longest log."""
    three[1].die()
    with capturedLogs() as logs:
        stranger.beat(address=told)
    assert any("elected only where nobody else" in formatEvent(event) for event in logs)
    three[0].die()
    controllers.run_until(lambda: sync(controllers).master == 3)


def test_a_stranger_does_not_keep_a_dead_master_alive(
    controllers: Controllers, three: list[AskingBroker]
) -> None:
    stranger = Process(controllers, broker_id=1)
    controllers.leader()
    turn = controllers.take_turn("g")
    three[0].die()
    stranger.beat()
    turn.callback(None)
    controllers.run_until(lambda: sync(controllers).master in (2, 3))


def test_a_broker_behind_another_address_is_known_by_that(
    controllers: Controllers, three: list[AskingBroker]
) -> None:
    """Its connections come from a network of their own: it is elected as all others."""
    behind = Process(controllers, "10.9.0.4", 4)
    controllers.result(behind.client.apply_broker_id("C", "g", 4, "code"))
    client = three[0].client
    for _ in range(3):
        behind.remoting.close()
        controllers.run(0.05)
        behind = Process(controllers, "10.9.0.4", 4)
        behind.address = "10.0.0.4:10911"
        behind.register()
        behind.beat(offset=9)
        assert not controllers.leader().live.speaks_from_elsewhere("C", "g", 4)
    state = sync(controllers)
    alter = client.alter_sync_state_set("g", 1, state.master_epoch, [1, 2, 3, 4], state.epoch)
    controllers.result(alter)
    three[0].die()
    controllers.run_until(lambda: sync(controllers).master == 4)


def test_a_broker_is_at_home_where_it_has_spoken_for_long() -> None:
    """Address translation may give it another address with each connection."""
    key, now = ReplicaKey("C", "g", 1), 0
    live: LiveBrokers[str] = LiveBrokers(lambda: now, lambda key: True, lambda key: "10.0.0.1:1")

    def beat(host: str) -> bool:
        live.heartbeat(key, host, CandidateStanding(), AT_HOME_MS * 2, host=host)
        return live.speaks_from_elsewhere(*key)

    assert not beat("10.9.0.1")
    live.lose("10.9.0.1")
    assert beat("10.9.0.2")
    now += AT_HOME_MS - 1
    assert beat("10.9.0.2")
    now += 1
    assert not beat("10.9.0.2")
    live.lose("10.9.0.2")
    assert not beat("10.9.0.2")
    live.lose("10.9.0.2")
    assert not beat("10.0.0.1"), "where it is registered"


def test_only_the_master_says_who_is_in_sync(
    controllers: Controllers, three: list[AskingBroker], stranger: Process
) -> None:
    """A stranger took one that has all messages out of the set, and had another one elected."""
    before = sync(controllers)
    with capturedLogs() as logs, pytest.raises(Exception, match=r"10\.0\.0\.1:10911") as refusal:
        controllers.result(
            stranger.client.alter_sync_state_set("g", 1, before.master_epoch, [1, 3], before.epoch)
        )
    assert refusal.value.code == ResponseCode.CONTROLLER_INVALID_MASTER
    assert any(STRANGER in formatEvent(event) for event in logs)
    assert sync(controllers).members == {1, 2, 3}
    # Nor before it is elected, by words that wait for their turn behind the election.
    turn = controllers.take_turn("g")
    three[0].die()
    early = stranger.client.alter_sync_state_set(
        "g", 2, before.master_epoch + 1, [2, 3], before.epoch + 1
    )
    early.addErrback(lambda failure: failure.value.code)
    controllers.run(0.1)
    turn.callback(None)
    assert controllers.result(early) == ResponseCode.CONTROLLER_INVALID_MASTER
    controllers.run_until(lambda: sync(controllers).master == 2)
    assert sync(controllers).members == {2}


def test_a_master_behind_another_address_says_who_is_in_sync(controllers: Controllers) -> None:
    """It is known by where its heartbeats come from, also over another connection."""
    controllers.leader()
    behind, again = Process(controllers, "10.9.0.1", 1), Process(controllers, "10.9.0.1", 1)
    behind.address = "10.0.0.1:10911"
    controllers.result(behind.client.apply_broker_id("C", "g", 1, "10.0.0.1:10911;1"))
    behind.register()
    behind.beat(offset=9)
    controllers.result(behind.client.elect_master("C", "g", 1))
    AskingBroker(controllers, 2).come_up()
    state = sync(controllers)
    alter = again.client.alter_sync_state_set("g", 1, state.master_epoch, [1, 2], state.epoch)
    controllers.result(alter)
    assert sync(controllers).members == {1, 2}


def test_where_only_the_cluster_is_heard_a_broker_that_moved_is_elected_as_all_others() -> None:
    """A pod has another address whenever it is started again."""
    controllers = Controllers(cluster_addresses="10.0.0.0/8")
    three = group_of_three(controllers)
    three[1].die()
    pod = Process(controllers, "10.7.0.9")
    with capturedLogs() as logs:
        pod.register()
        pod.beat(offset=9)
    texts = [formatEvent(event) for event in logs]
    assert any("10.7.0.9" in text and "10.0.0.2" in text for text in texts)
    assert not [event for event in logs if event["log_level"].name == "error"]
    assert sync(controllers).moved == {2: three[1].address}
    three[0].die()
    controllers.run_until(lambda: sync(controllers).master == 2)
    # Nor does it lose the role to one that never moved.
    controllers.run(30)
    assert sync(controllers).master == 2


def test_where_only_the_cluster_is_heard_nobody_waits_for_the_others() -> None:
    controllers = Controllers(cluster_addresses="10.0.0.0/8")
    three = group_of_three(controllers)
    for broker in three[1:]:
        broker.die()
    pod = Process(controllers, "10.7.0.9")
    pod.register()
    pod.beat()
    three[0].die()
    controllers.run_until(lambda: sync(controllers).master == 2, 2.0)
