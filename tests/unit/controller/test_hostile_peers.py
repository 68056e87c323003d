"""Any peer that reaches a controller's port may ask for anything: there is an end to what that
costs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from rocketmq_tw.controller import decider, elections, notifications
from rocketmq_tw.controller.core.decisions import Decision
from rocketmq_tw.controller.core.election import CandidateStanding
from rocketmq_tw.controller.core.live_brokers import MAX_STRANGERS, LiveBrokers, ReplicaKey
from rocketmq_tw.controller.notifications import RoleNotifier
from rocketmq_tw.wire.bodies.controller import ElectMasterResponseBody
from rocketmq_tw.wire.bodies.route import BrokerMemberGroup
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.controller import ElectMasterResponseHeader
from tests.support.sim.controllers import CLUSTER, PEERS, AskingBroker, Controllers
from tests.unit.controller.conftest import group_of_three

Make = Callable[..., Controllers]


def masters(controllers: Controllers, count: int) -> list[AskingBroker]:
    """The masters of so many groups of one broker each."""
    found = [AskingBroker(controllers, 1, f"g{number}") for number in range(count)]
    for broker in found:
        broker.come_up()
        controllers.result(broker.client.elect_master(CLUSTER, broker.name, 1))
    return found


def test_an_election_that_cannot_begin_is_not_tried_in_a_loop(
    make_controllers: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As somebody may set it over the wire.
    controllers = make_controllers(elect_master_max_retry_count=2**31 - 1)
    (master,) = masters(controllers, 1)
    asked = 0

    def busy(name: str, make: Any) -> Deferred[Decision]:
        nonlocal asked
        asked += 1
        assert asked < 100, "it tries for ever"
        raise RequestError(ResponseCode.SYSTEM_BUSY, "too many requests wait for a decision")

    monkeypatch.setattr(controllers.leader().decider, "elect", busy)
    master.die()
    assert asked == 1


def test_many_groups_without_a_master_are_looked_after_a_few_at_a_time(
    controllers: Controllers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elections, "MAX_AT_ONCE", 2)
    dying = masters(controllers, 5)
    waiting: list[Deferred[Decision]] = []

    def decide(name: str, make: Any) -> Deferred[Decision]:
        waiting.append(Deferred())
        return waiting[-1]

    monkeypatch.setattr(controllers.leader().decider, "elect", decide)
    for master in dying:
        master.die()
    assert len(waiting) == 2
    for number in range(5):
        waiting[number].callback(Decision(code=ResponseCode.CONTROLLER_ELECT_MASTER_FAILED))
    assert len(waiting) == 5


def test_one_stranger_too_many_costs_no_look_at_all_the_others() -> None:
    looks, now = 0, 0

    def is_known(key: ReplicaKey) -> bool:
        nonlocal looks
        looks += 1
        return False

    live: LiveBrokers[str] = LiveBrokers(lambda: now, is_known)
    for number in range(MAX_STRANGERS):
        assert live.heartbeat(ReplicaKey("C", f"g{number}", 1), "peer", CandidateStanding(), 9)
    looks = 0
    for number in range(100):
        key = ReplicaKey("C", f"x{number}", 1)
        assert not live.heartbeat(key, "peer", CandidateStanding(), 9)
    assert looks <= MAX_STRANGERS + 200


class SilentClient:
    """Connections that are never there."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.given_up = 0

    def send_oneway(self, address: str, command: RemotingCommand) -> Deferred[None]:
        self.asked.append(address)
        return Deferred(self._give_up)

    def _give_up(self, _: object) -> None:
        self.given_up += 1


def test_a_group_of_thousands_is_not_told_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    class Alive:
        def standing(self, *_: object) -> CandidateStanding:
            return CandidateStanding()

    monkeypatch.setattr(notifications, "MAX_ON_THEIR_WAY", 10)
    client = SilentClient()
    notifier = RoleNotifier(client, Alive())  # type: ignore[arg-type]
    for name in ("one", "two"):
        addresses = {number: f"{name}:{number}" for number in range(1, 9)}
        group = BrokerMemberGroup(cluster="C", broker_name=name, broker_addrs=addresses)
        body = ElectMasterResponseBody(sync_state_set=[1], broker_member_group=group)
        header = ElectMasterResponseHeader(master_broker_id=1, master_epoch=1)
        notifier.elected(Decision(header=header, body=body))
        # The same ones again take no further room.
        notifier.elected(Decision(header=header, body=body))
    assert len(set(client.asked)) == 10
    # Of each one only the newest news waits.
    assert len(client.asked) - client.given_up == 10


def test_decisions_that_anybody_asks_for_hold_up_no_election(
    controllers: Controllers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An election that met too many of them was tried again five seconds later, and met the
    next."""
    three = group_of_three(controllers)
    monkeypatch.setattr(decider, "MAX_WAITING", 2)
    turn = controllers.take_turn("other")
    stranger = AskingBroker(controllers, 9, "other")
    answers: list[Any] = []
    for _ in range(3):
        stranger.client.elect_master(CLUSTER, "other", 9).addBoth(answers.append)
    controllers.run(0.1)
    (refused,) = answers
    assert refused.value.code == ResponseCode.SYSTEM_BUSY
    three[0].die()
    group = controllers.leader().machine.state.group("g")
    assert group is not None
    controllers.run_until(lambda: group.sync.master == 2, 2.0)
    turn.callback(None)


def test_nobody_waits_behind_all_that_another_host_asks_about_its_group(
    controllers: Controllers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand decisions on a group, one after the other, and its next master waited for all."""
    monkeypatch.setattr(decider, "MAX_OF_A_HOST", 100)
    three = group_of_three(controllers)
    leader = controllers.leader()
    decided: list[str] = []
    decide = leader.decider._decide

    async def noted(make: Any) -> Decision:
        decision = await decide(make)
        decided.append(str(decision.code))
        return decision

    monkeypatch.setattr(leader.decider, "_decide", noted)
    turn = controllers.take_turn("g")
    stranger = controllers.network.client("10.66.0.1")
    refused: list[RemotingCommand] = []
    for _ in range(120):
        command = RemotingCommand.request(RequestCode.CONTROLLER_ELECT_MASTER)
        command.ext_fields = {"clusterName": CLUSTER, "brokerName": "g", "brokerId": "9"}
        asking = stranger.request(PEERS[controllers.leader_id()], command, 9)
        asking.addCallbacks(
            lambda answer: answer.code == ResponseCode.SYSTEM_BUSY and refused.append(answer),
            lambda _: None,
        )
    controllers.run(0.1)
    assert len(refused) == 20
    three[0].die()
    registering = three[1].client.register_broker(CLUSTER, "g", 2, three[1].address)
    controllers.run(0.1)
    turn.callback(None)
    controllers.result(registering)
    assert leader.machine.state.sync_states["g"].master == 2
    # The election and what the next master asks, with one of the stranger's between them.
    assert decided.count("0") == 2 and decided[:4].count("0") == 2


def test_reads_that_wait_have_an_end(
    controllers: Controllers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decider, "MAX_WAITING", 2)
    controllers.leader()
    broker = AskingBroker(controllers, 1)
    controllers.result(broker.client.find_leader())
    answers: list[Any] = []
    for _ in range(5):
        broker.client.next_broker_id(CLUSTER, "g").addBoth(answers.append)
    controllers.run_until(lambda: len(answers) == 5)
    refused = [one for one in answers if not isinstance(one, int)]
    assert {one.value.code for one in refused} == {ResponseCode.SYSTEM_BUSY} and len(refused) == 3
    assert controllers.result(broker.client.next_broker_id(CLUSTER, "g")) == 1


@pytest.mark.parametrize(
    "code", [RequestCode.CLEAN_BROKER_DATA, RequestCode.CONTROLLER_GET_REPLICA_INFO]
)
def test_a_field_beyond_any_need_is_refused_and_not_repeated(
    controllers: Controllers, code: int
) -> None:
    controllers.leader()
    long = "1;" * 10_000
    answer = controllers.ask(
        controllers.leader_id(), code, brokerName=long, brokerControllerIdsToClean=long
    )
    assert answer.code == ResponseCode.CONTROLLER_INVALID_REQUEST
    assert answer.remark and len(answer.remark) < 200


def test_a_list_of_more_names_than_there_can_be_is_refused(controllers: Controllers) -> None:
    controllers.leader()
    answer = controllers.ask(
        controllers.leader_id(),
        RequestCode.CONTROLLER_GET_SYNC_STATE_DATA,
        b"[" + b'"a",' * 20_000 + b'"a"]',
    )
    assert answer.code == ResponseCode.SYSTEM_ERROR
