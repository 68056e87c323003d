"""How often controllers look for brokers that are gone and for groups without their master, and how
often they try to elect."""

from collections.abc import Callable

import pytest
from twisted.internet.defer import Deferred, fail
from twisted.internet.task import Clock

from rocketmq_tw.controller.core.decisions import Decision
from rocketmq_tw.controller.core.live_brokers import LiveBrokers, ReplicaKey
from rocketmq_tw.controller.core.requests import Decide
from rocketmq_tw.controller.decider import DECISION_TIMEOUT
from rocketmq_tw.controller.liveness import BrokerLiveness
from rocketmq_tw.net.interfaces import IPeer
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.namesrv import BrokerHeartbeatRequestHeader
from tests.support.network import FakePeer
from tests.support.sim.controllers import CLUSTER, GROUP, AskingBroker, Controllers
from tests.unit.controller.conftest import group_of_three

Make = Callable[..., Controllers]


def master_of(controllers: Controllers) -> int | None:
    """The master, as the leader has it."""
    group = controllers.leader().machine.state.group(GROUP)
    assert group is not None
    return group.sync.master


@pytest.mark.parametrize("interval", [300, 5_000])
def test_a_silent_master_is_replaced_after_its_time_out(
    make_controllers: Make, interval: int
) -> None:
    controllers = make_controllers(
        scan_not_active_broker_interval=interval, scan_inactive_master_interval=10**8
    )
    one, two, _ = group_of_three(controllers)
    one.beat(timeout_ms=2000)
    began = controllers.clock.seconds()
    controllers.run_until(lambda: master_of(controllers) != 1)
    assert 2 < controllers.clock.seconds() - began <= 2 + interval / 1000 + 0.1
    assert master_of(controllers) == 2 and two.told


def test_a_silent_brokers_connection_is_closed_once_nobody_lives_on_it() -> None:
    clock, peer = Clock(), FakePeer()
    gone: list[int] = []
    live: LiveBrokers[IPeer] = LiveBrokers(lambda: int(clock.seconds() * 1000), lambda key: True)
    liveness = BrokerLiveness(clock, live, 1, lambda key: gone.append(key.broker_id))

    def beat(broker_id: int, timeout_ms: int) -> None:
        header = BrokerHeartbeatRequestHeader(
            cluster_name=CLUSTER,
            broker_name=GROUP,
            broker_addr="10.0.0.1:10911",
            broker_id=broker_id,
            heartbeat_timeout_mills=timeout_ms,
        )
        liveness.heartbeat(RemotingCommand.request(RequestCode.BROKER_HEARTBEAT, header), peer)

    beat(1, 2000)
    beat(2, 5000)
    clock.advance(3)
    liveness.scan()
    assert gone == [1] and peer.closed is None
    assert live.standing(*ReplicaKey(CLUSTER, GROUP, 2)) is not None
    clock.advance(3)
    liveness.scan()
    assert gone == [1, 2] and peer.closed


def test_another_host_cannot_say_that_a_broker_lives() -> None:
    clock, owner, stranger = Clock(), FakePeer("10.0.0.1:4000"), FakePeer("10.66.0.1:4000")
    gone: list[int] = []
    live: LiveBrokers[IPeer] = LiveBrokers(lambda: int(clock.seconds() * 1000), lambda key: True)
    liveness = BrokerLiveness(clock, live, 1, lambda key: gone.append(key.broker_id))
    header = BrokerHeartbeatRequestHeader(
        cluster_name=CLUSTER,
        broker_name=GROUP,
        broker_addr="10.0.0.1:10911",
        broker_id=1,
        heartbeat_timeout_mills=2000,
    )
    request = RemotingCommand.request(RequestCode.BROKER_HEARTBEAT, header)
    liveness.heartbeat(request, owner)
    for _ in range(5):
        clock.advance(0.5)
        liveness.heartbeat(request, stranger)
    liveness.scan()
    assert gone == [1]
    # Gone, it may come from wherever it has moved to.
    liveness.heartbeat(request, stranger)
    assert live.standing(*ReplicaKey(CLUSTER, GROUP, 1)) is not None


@pytest.mark.parametrize("seconds", [3, 3600])
def test_who_was_silent_while_nobody_listened_is_not_gone(
    make_controllers: Make, seconds: int
) -> None:
    """All controllers were paused, or their machines asleep."""
    controllers = make_controllers(scan_not_active_broker_interval=300)
    brokers = group_of_three(controllers)
    for broker in brokers:
        broker.beat(timeout_ms=2500)
    controllers.clock.jump(seconds)
    controllers.run(0.3)
    for broker in brokers:
        broker.beat(timeout_ms=2500)
    controllers.run(2)
    assert master_of(controllers) == 1
    assert not any(broker.told for broker in brokers)
    # Who stays silent is gone all the same.
    for broker in brokers[1:]:
        broker.beat(timeout_ms=60_000)
    controllers.run(1)
    assert master_of(controllers) in (2, 3)


@pytest.mark.parametrize("interval", [700, 9_000])
def test_a_master_that_nobody_ever_heard_of_is_replaced(
    make_controllers: Make, interval: int
) -> None:
    """No connection and no silence tells of it."""
    controllers = make_controllers(
        scan_inactive_master_interval=interval, enable_elect_unclean_master=True
    )
    began = controllers.clock.seconds()
    two = AskingBroker(controllers, 2)
    controllers.result(two.client.apply_broker_id(CLUSTER, GROUP, 1, "10.0.0.1:10911;1"))
    two.come_up()
    controllers.result(two.client.elect_master(CLUSTER, GROUP, 1))
    assert master_of(controllers) == 1
    controllers.run_until(lambda: master_of(controllers) == 2)
    late = (controllers.clock.seconds() - began) % (interval / 1000)
    assert late < 0.1, "it was not a scan that found it"


@pytest.mark.parametrize("tries", [1, 4])
def test_an_election_without_an_answer_is_tried_so_often(
    make_controllers: Make, monkeypatch: pytest.MonkeyPatch, tries: int
) -> None:
    controllers = make_controllers(
        elect_master_max_retry_count=tries, scan_inactive_master_interval=10**8
    )
    one, *_ = group_of_three(controllers)
    asked: list[Decide] = []

    def decide(name: str, make: Decide) -> Deferred[Decision]:
        asked.append(make)
        return fail(RequestError(ResponseCode.SYSTEM_ERROR, "no decision within 5 s"))

    monkeypatch.setattr(controllers.leader().decider, "elect", decide)
    one.die()
    controllers.run(20)
    assert len(asked) == tries


def test_an_election_without_a_decision_in_time_is_tried_again(make_controllers: Make) -> None:
    controllers = make_controllers(scan_inactive_master_interval=10**8)
    one, two, _ = group_of_three(controllers)
    turn = controllers.take_turn(GROUP)
    one.die()
    controllers.run(DECISION_TIMEOUT + 1)
    assert master_of(controllers) == 1
    turn.callback(None)
    controllers.run(1)
    assert master_of(controllers) == 2 and two.told
