"""Three controllers in memory: decisions through Raft; brokers and leaders that come and go."""

from collections.abc import Callable
from errno import ENOSPC
from itertools import pairwise
from typing import Any

import pytest
from twisted.internet.defer import Deferred, gatherResults
from twisted.logger import capturedLogs, formatEvent

from rocketmq_tw.client.controller import NoControllerError
from rocketmq_tw.client.errors import BrokerError
from rocketmq_tw.config.controller import ControllerConfig
from rocketmq_tw.controller import decider
from rocketmq_tw.controller.controller import Controller, node_config
from rocketmq_tw.controller.core.decisions import Decision
from rocketmq_tw.controller.core.events import ElectMaster
from rocketmq_tw.controller.core.requests import make_election
from rocketmq_tw.files.faulty import Fault
from rocketmq_tw.metrics.instruments import Distribution, Metric
from rocketmq_tw.raft.bodies import DLedgerRequestCode
from rocketmq_tw.raft.core.codes import RaftRole
from rocketmq_tw.raft.core.config import NodeConfig
from rocketmq_tw.structs import msgspec
from rocketmq_tw.wire.bodies.base import decode_body
from rocketmq_tw.wire.bodies.controller import SyncStateSetBody
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.group_state import SyncStateSet
from rocketmq_tw.wire.headers.controller import (
    ElectMasterRequestHeader,
    GetMetaDataResponseHeader,
    NotifyBrokerRoleChangedRequestHeader,
)
from tests.support.sim.controllers import GROUP, PEERS, AskingBroker, Controllers
from tests.unit.controller.conftest import group_of_three

Make = Callable[..., Controllers]

#: The requests that only a leader answers, with a body that is none of their mistakes.
FOR_THE_LEADER = {
    RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET: b'{"syncStateSet":[1],"syncStateSetEpoch":1}',
    RequestCode.CONTROLLER_ELECT_MASTER: b"",
    RequestCode.CONTROLLER_REGISTER_BROKER: b"",
    RequestCode.CONTROLLER_GET_REPLICA_INFO: b"",
    RequestCode.CONTROLLER_GET_SYNC_STATE_DATA: b'["g"]',
    RequestCode.CLEAN_BROKER_DATA: b"",
    RequestCode.CONTROLLER_GET_NEXT_BROKER_ID: b"",
    RequestCode.CONTROLLER_APPLY_BROKER_ID: b"",
}


def master_of(controllers: Controllers) -> tuple[int | None, int]:
    """The master and its epoch, as the leader has them."""
    group = controllers.leader().machine.state.group(GROUP)
    assert group is not None
    return group.sync.master, group.sync.master_epoch


def ask_for_second(controllers: Controllers, leader: str) -> RemotingCommand:
    """The answer to the request that broker 2 be elected."""
    return controllers.ask(
        leader,
        RequestCode.CONTROLLER_ELECT_MASTER,
        clusterName="C",
        brokerName=GROUP,
        brokerId=2,
        designateElect="true",
    )


def test_a_group_comes_up_and_all_controllers_agree(
    controllers: Controllers, three: list[AskingBroker]
) -> None:
    found = controllers.result(three[2].client.replica_info(GROUP))
    assert (found.master_id, found.master_address) == (1, three[0].address)
    assert found.master_epoch == 1
    assert found.in_sync == SyncStateSet(frozenset({1, 2, 3}), 2)
    assert controllers.result(three[2].client.next_broker_id("C", GROUP)) == 4
    controllers.run_until(controllers.same_state)
    data = controllers.result(three[0].client.sync_state_data([GROUP, "none"]))
    (info,) = data.replicas_info_table.values()
    assert [one.broker_id for one in info.in_sync_replicas if one.alive] == [1, 2, 3]


def test_only_the_leader_decides_and_everybody_knows_who_that_is(controllers: Controllers) -> None:
    leader = controllers.leader_id()
    controllers.run(3)
    for member in PEERS:
        answer = controllers.ask(member, RequestCode.CONTROLLER_GET_METADATA_INFO)
        said = answer.header(GetMetaDataResponseHeader)
        assert (said.controller_leader_id, said.controller_leader_address) == (
            leader,
            PEERS[leader],
        )
        assert said.is_leader == (member == leader)
        assert said.group == "controllers"
        assert said.peers == "n0:10.1.0.0:9878;n1:10.1.0.1:9878;n2:10.1.0.2:9878;"
        asked = controllers.ask(
            member, RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, brokerName="g", clusterName="C"
        )
        assert asked.code == (0 if member == leader else ResponseCode.CONTROLLER_NOT_LEADER)
    other = next(member for member in PEERS if member != leader)
    fields = {
        "clusterName": "C",
        "brokerName": "g",
        "brokerId": 1,
        "brokerAddress": "10.0.0.1:10911",
        "appliedBrokerId": 1,
        "registerCheckCode": "10.0.0.1:10911;1",
        "masterBrokerId": 1,
        "masterEpoch": 1,
        "isCleanLivingBroker": "true",
    }
    for code, body in FOR_THE_LEADER.items():
        asked = controllers.ask(other, code, body, **fields)
        assert asked.code == ResponseCode.CONTROLLER_NOT_LEADER, code
        assert leader in (asked.remark or "")


def test_a_master_that_loses_its_connection_is_replaced_at_once(
    controllers: Controllers, three: list[AskingBroker]
) -> None:
    one, two, third = three
    third.beat(epoch=1, offset=500)
    two.beat(epoch=1, offset=400)
    one.die()
    assert master_of(controllers) == (3, 2)
    for broker in (two, third):
        (told,) = broker.told
        header = told.header(NotifyBrokerRoleChangedRequestHeader)
        assert (header.master_broker_id, header.master_address) == (3, third.address)
        assert (header.master_epoch, header.sync_state_set_epoch) == (2, 3)
        members = decode_body(SyncStateSetBody, told.body)
        assert members == SyncStateSetBody(sync_state_set=[3], sync_state_set_epoch=3)
        assert told.is_oneway


def test_the_log_says_who_is_gone_and_what_is_decided(
    controllers: Controllers, three: list[AskingBroker]
) -> None:
    with capturedLogs() as logs:
        three[0].die()
        AskingBroker(controllers, 4).beat(offset=7)
    said = {formatEvent(event) or "" for event in logs}
    event = '{"brokerName":"g","eventType":"ELECT_MASTER_EVENT","newMasterBrokerId":2'
    assert any(line.startswith(f"decided: {event}") for line in said), said
    assert "broker 1 of g in C is without a connection" in said
    assert "broker 4 of g in C is alive: epoch 1, log end 7, priority 2147483647" in said


def test_a_slave_that_is_gone_changes_nothing(
    controllers: Controllers, three: list[AskingBroker]
) -> None:
    three[1].die()
    assert master_of(controllers) == (1, 1) and not three[0].told


def test_brokers_are_not_told_where_they_are_not_to_be(make_controllers: Make) -> None:
    controllers = make_controllers(notify_broker_role_changed=False)
    one, two, third = group_of_three(controllers)
    one.die()
    assert master_of(controllers) == (2, 2)
    assert two.told == third.told == []


@pytest.mark.parametrize("told", [True, False])
def test_an_election_that_is_asked_for_is_told_to_who_lives(
    make_controllers: Make, told: bool
) -> None:
    controllers = make_controllers(notify_broker_role_changed=told)
    one, two, third = group_of_three(controllers)
    third.lose_controllers()
    controllers.result(one.client.elect_master("C", GROUP, 2, designate=True))
    controllers.run(0.1)
    assert [len(broker.told) for broker in (one, two, third)] == [told, told, 0]
    # Nor is anybody told of an election that changes nothing.
    controllers.result(one.client.elect_master("C", GROUP, 2))
    controllers.run(0.1)
    assert [len(broker.told) for broker in (one, two, third)] == [told, told, 0]


def test_of_equal_logs_the_lowest_priority_leads(
    controllers: Controllers, three: list[AskingBroker]
) -> None:
    one, two, third = three
    two.beat(offset=500, priority=5)
    third.beat(offset=500, priority=4)
    one.die()
    assert master_of(controllers) == (3, 2)


def test_the_last_of_the_set_that_is_gone_is_waited_for(
    controllers: Controllers, three: list[AskingBroker]
) -> None:
    with capturedLogs() as logs:
        for broker in (three[2], three[1], three[0]):
            broker.die()
    said = " ".join(formatEvent(event) or "" for event in logs)
    assert "group g elects no master: nobody of the SyncStateSet of broker-set g is alive" in said
    assert master_of(controllers) == (None, 2)
    outsider = AskingBroker(controllers, 4)
    outsider.come_up()
    with pytest.raises(BrokerError) as refused:
        controllers.result(outsider.client.elect_master("C", GROUP, 4))
    assert refused.value.code == ResponseCode.CONTROLLER_ELECT_MASTER_FAILED
    back = AskingBroker(controllers, 2)
    back.come_up()
    elected = controllers.result(back.client.elect_master("C", GROUP, 2))
    assert elected.is_new and elected.group.master_id == 2
    assert elected.group.master_epoch == 3


def test_controllers_are_ready_while_they_have_a_leader(controllers: Controllers) -> None:
    def reasons() -> set[str]:
        return {one.not_ready() for one in controllers.running.values()}

    assert reasons() == {"the controllers have no leader"}
    controllers.run_until(lambda: reasons() == {""})
    first, second, _ = PEERS
    for member in (first, second):
        controllers.stop(member)
    controllers.run_until(lambda: reasons() == {"the controllers have no leader"})
    controllers.start(first)
    controllers.run_until(lambda: reasons() == {""})


def test_a_new_leader_goes_on_where_the_old_one_was_killed(
    controllers: Controllers, three: list[AskingBroker]
) -> None:
    old = controllers.leader_id()
    controllers.stop(old)
    # The master is gone while nobody decides.
    three[0].die()
    controllers.run_until(lambda: master_of(controllers)[0] == 2)
    assert master_of(controllers) == (2, 2)
    found = controllers.result(three[1].client.replica_info(GROUP))
    assert (found.master_id, found.master_epoch) == (2, 2)
    controllers.start(old)
    controllers.run_until(controllers.same_state)


def test_controllers_that_start_again_have_all_they_had(
    controllers: Controllers, three: list[AskingBroker]
) -> None:
    controllers.run_until(controllers.same_state)
    before = controllers.leader().machine.state
    for member in PEERS:
        controllers.stop(member)
    for member in PEERS:
        controllers.start(member)
    assert controllers.leader().machine.state == before


def test_snapshots_take_the_place_of_a_long_log(make_controllers: Make) -> None:
    controllers = make_controllers(controller_snapshot_interval=50)
    one, *_ = group_of_three(controllers)
    for number in range(300):
        members = [1, 2] if number % 2 == 0 else [1, 2, 3]
        controllers.result(one.client.alter_sync_state_set(GROUP, 1, 1, members, number + 2))
    before = controllers.leader().machine.state
    leader = controllers.leader_id()
    assert controllers.leader().node.core.log.begin_index > 0
    controllers.stop(leader)
    controllers.start(leader)
    controllers.run_until(lambda: controllers.running[leader].machine.state == before)


def test_decisions_that_come_at_once_are_made_one_after_the_other(
    controllers: Controllers, three: list[AskingBroker]
) -> None:
    outcomes: list[Any] = []
    for broker in three:
        owner = f"a;{broker.broker_id}"
        broker.client.apply_broker_id("C", "new", 1, owner).addBoth(outcomes.append)
    controllers.run_until(lambda: len(outcomes) == 3)
    assert sum(outcome is None for outcome in outcomes) == 1
    # Who is elected is alone in the set, so nobody else can be designated after him.
    elections: list[Any] = []
    for broker in three[1:]:
        election = broker.client.elect_master("C", GROUP, broker.broker_id, designate=True)
        election.addBoth(elections.append)
    controllers.run_until(lambda: len(elections) == 2)
    assert elections[0].group.master_epoch == 2
    assert elections[1].value.code == ResponseCode.CONTROLLER_ELECT_MASTER_FAILED
    assert master_of(controllers) == (2, 2)


def test_who_waits_for_its_turn_hears_of_a_new_leader(
    controllers: Controllers, three: list[AskingBroker]
) -> None:
    leader = controllers.leader()
    waiting = controllers.take_turn(GROUP)
    header = ElectMasterRequestHeader(
        cluster_name="C", broker_name=GROUP, broker_id=2, designate_elect=True
    )
    asked = leader.decider.decide(GROUP, make_election(header, controllers.processes["n0"].config))
    # Another one has led in between, and what it decided is not here yet.
    for listener in leader.node.role_listeners:
        listener(RaftRole.FOLLOWER, leader.node.core.term)
    waiting.callback(None)
    with pytest.raises(RequestError) as refused:
        controllers.result(asked)
    assert refused.value.code == ResponseCode.CONTROLLER_NOT_LEADER
    group = leader.machine.state.group(GROUP)
    assert group is not None and group.sync.master == 1


def test_nobody_waits_for_a_decision_for_more_than_five_seconds(controllers: Controllers) -> None:
    leader = controllers.leader()
    controllers.take_turn(GROUP)
    header = ElectMasterRequestHeader(broker_name=GROUP)
    asked = leader.decider.decide(GROUP, make_election(header, controllers.processes["n0"].config))
    began = controllers.clock.seconds()
    with pytest.raises(RequestError, match="no decision within 5 s") as refused:
        controllers.result(asked)
    assert refused.value.code == ResponseCode.SYSTEM_ERROR
    assert controllers.clock.seconds() - began == pytest.approx(5, abs=0.1)


def test_without_a_majority_nothing_is_decided_and_nothing_changes(
    controllers: Controllers, three: list[AskingBroker]
) -> None:
    leader = controllers.leader_id()
    before = master_of(controllers)
    for member in PEERS:
        if member != leader:
            controllers.stop(member)
    assert ask_for_second(controllers, leader).code == ResponseCode.SYSTEM_ERROR
    looked = controllers.ask(leader, RequestCode.CONTROLLER_GET_REPLICA_INFO, brokerName=GROUP)
    assert looked.code in (ResponseCode.SYSTEM_ERROR, ResponseCode.CONTROLLER_NOT_LEADER)
    group = controllers.running[leader].machine.state.group(GROUP)
    assert group is not None and (group.sync.master, group.sync.master_epoch) == before
    # Its brokers hear in the end that there is nobody to ask.
    with pytest.raises(NoControllerError):
        controllers.result(three[0].client.replica_info(GROUP))


@pytest.mark.parametrize(
    ("code", "fields"),
    [
        (
            RequestCode.CONTROLLER_REGISTER_BROKER,
            {"brokerId": 1, "brokerAddress": "10.0.0.1:10911"},
        ),
        (RequestCode.CONTROLLER_ELECT_MASTER, {"brokerId": 2}),
    ],
)
def test_without_a_majority_nobody_hears_that_all_is_as_it_was(
    controllers: Controllers, three: list[AskingBroker], code: int, fields: dict[str, object]
) -> None:
    """Another one may lead, and have decided otherwise."""
    leader, asked_for = controllers.leader_id(), {"clusterName": "C", "brokerName": GROUP}
    known = controllers.ask(leader, code, **asked_for, **fields)
    assert known.code in (ResponseCode.SUCCESS, ResponseCode.CONTROLLER_MASTER_STILL_EXIST)
    for member in PEERS:
        if member != leader:
            controllers.stop(member)
    asked = controllers.ask(leader, code, **asked_for, **fields)
    assert asked.code in (ResponseCode.SYSTEM_ERROR, ResponseCode.CONTROLLER_NOT_LEADER)


def test_decisions_on_one_group_are_made_in_turn_those_on_others_meanwhile(
    controllers: Controllers, three: list[AskingBroker]
) -> None:
    leader = controllers.leader()
    decided: list[str] = []

    def decide(name: str) -> Deferred[Decision]:
        def make(*_: object) -> Decision:
            decided.append(name)
            return Decision(events=(ElectMaster(broker_name=name, new_master_elected=False),))

        return leader.decider.decide(name, make)

    waiting = [decide(name) for name in ("g", "h", "g", "i", "h")]
    assert decided == ["g", "h", "i"]
    controllers.result(gatherResults(waiting))
    assert sorted(decided[3:]) == ["g", "h"]


def test_a_decision_that_was_given_up_counts_before_the_next_one(
    controllers: Controllers, three: list[AskingBroker]
) -> None:
    leader = controllers.leader_id()
    others = [member for member in PEERS if member != leader]
    for member in others:
        controllers.cut(member)
    assert ask_for_second(controllers, leader).code == ResponseCode.SYSTEM_ERROR
    for member in others:
        controllers.mend(member)
    third = AskingBroker(controllers, 3)
    third.beat()
    with pytest.raises(BrokerError) as refused:
        controllers.result(third.client.elect_master("C", GROUP, 3, designate=True))
    # Only the second is in the set of the election that was answered with an error.
    assert refused.value.code == ResponseCode.CONTROLLER_ELECT_MASTER_FAILED
    assert master_of(controllers) == (2, 2)
    controllers.run_until(controllers.same_state)


@pytest.mark.parametrize("key", ["is_process_read_event", "process_read_event"])
def test_a_read_may_be_an_entry_of_its_own(make_controllers: Make, key: str) -> None:
    for config, entries in (({}, 0), ({key: True}, 1)):
        controllers = make_controllers(**config)
        broker = AskingBroker(controllers, 1)
        broker.come_up()
        log = controllers.leader().node.core.log
        before = log.end_index
        controllers.result(broker.client.replica_info(GROUP))
        assert log.end_index == before + entries


def test_requests_that_wait_have_an_end(
    controllers: Controllers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decider, "MAX_WAITING", 2)
    leader = controllers.leader()
    client = controllers.network.client("10.9.9.9")
    broker = AskingBroker(controllers, 1)
    controllers.result(broker.client.find_leader())
    answers: list[Any] = []
    for number in range(5):
        application = broker.client.apply_broker_id("C", f"g{number}", 1, "a;b")
        application.addBoth(answers.append)
    controllers.run_until(lambda: len(answers) == 5)
    refused = [one for one in answers if one is not None]
    assert len(refused) == 3
    assert {one.value.code for one in refused} == {ResponseCode.SYSTEM_BUSY}
    assert len(leader.machine.state.replica_tables) == 2
    client.close()


def test_the_configuration_is_shown_changed_and_kept(controllers: Controllers) -> None:
    text = controllers.ask("n0", RequestCode.GET_CONTROLLER_CONFIG).body.decode()
    assert "scanInactiveMasterInterval=5000\n" in text and "controllerDLegerSelfId=n0\n" in text
    assert "controllerStorePath" not in text
    controllers.asker = "127.0.0.1"
    changed = controllers.ask(
        "n0", RequestCode.UPDATE_CONTROLLER_CONFIG, b"enableElectUncleanMaster=true\n"
    )
    assert changed.code == 0 and controllers.processes["n0"].config.enable_elect_unclean_master
    kept = controllers.processes["n0"].disk.read("/conf/controller.conf")
    assert kept == b"enableElectUncleanMaster=true\n"
    for text in (
        "configStorePath=/tmp/x",
        "configBlackList=",
        "rocketmqHome=/",
        "controllerDLegerPeers=n0-127.0.0.1:9",
        "controllerStorePath=/tmp",
    ):
        refused = controllers.ask("n0", RequestCode.UPDATE_CONTROLLER_CONFIG, text.encode())
        assert refused.code == ResponseCode.NO_PERMISSION, text


@pytest.mark.parametrize(
    ("code", "body", "fields", "expected"),
    [
        (RequestCode.BROKER_HEARTBEAT, b"", {}, ResponseCode.CONTROLLER_INVALID_REQUEST),
        (
            RequestCode.BROKER_HEARTBEAT,
            b"",
            {"brokerId": 1, "clusterName": "C" * 300, "brokerName": "g", "brokerAddr": "a"},
            ResponseCode.CONTROLLER_INVALID_REQUEST,
        ),
        (
            RequestCode.BROKER_HEARTBEAT,
            b"",
            {"brokerId": "x"},
            ResponseCode.CONTROLLER_INVALID_REQUEST,
        ),
        (RequestCode.CONTROLLER_GET_REPLICA_INFO, b"", {}, ResponseCode.SYSTEM_ERROR),
        (
            RequestCode.CONTROLLER_GET_REPLICA_INFO,
            b"",
            {"brokerName": "nobody"},
            ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST,
        ),
        (
            RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET,
            b"{",
            {"brokerName": "g", "masterEpoch": 1},
            ResponseCode.SYSTEM_ERROR,
        ),
        (
            RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET,
            b'{"syncStateSet":[1,2],"syncStateSetEpoch":2}',
            {"brokerName": "g", "masterBrokerId": 1, "masterEpoch": 0},
            ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH,
        ),
        (
            RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET,
            b'{"syncStateSet":[1,2],"syncStateSetEpoch":1}',
            {"brokerName": "g", "masterBrokerId": 1, "masterEpoch": 1},
            ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH,
        ),
        (
            RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET,
            b'{"syncStateSet":[1,2],"syncStateSetEpoch":3}',
            {"brokerName": "g", "masterBrokerId": 1, "masterEpoch": 1},
            ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH,
        ),
        (
            RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET,
            b'{"syncStateSet":[1,2],"syncStateSetEpoch":2}',
            {"brokerName": "g", "masterBrokerId": 1, "masterEpoch": 2},
            ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH,
        ),
        (RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, b"[1,", {}, ResponseCode.SYSTEM_ERROR),
        (
            RequestCode.CONTROLLER_APPLY_BROKER_ID,
            b"",
            {
                "clusterName": "C",
                "brokerName": "g",
                "appliedBrokerId": 1,
                "registerCheckCode": "wrong",
            },
            ResponseCode.CONTROLLER_BROKER_ID_INVALID,
        ),
    ],
)
def test_bad_input_is_refused_logged_and_changes_nothing(
    controllers: Controllers,
    three: list[AskingBroker],
    code: int,
    body: bytes,
    fields: dict[str, object],
    expected: int,
) -> None:
    leader = controllers.leader()
    before, entries = repr(leader.machine.state), leader.node.core.log.end_index
    with capturedLogs() as logs:
        answer = controllers.ask(controllers.leader_id(), code, body, **fields)
    assert answer.code == expected and answer.remark
    said = [formatEvent(event) or "" for event in logs]
    assert any(f"request {int(code)} of 10.9.9.9" in line for line in said), said
    assert repr(leader.machine.state) == before
    assert leader.node.core.log.end_index == entries


@pytest.mark.parametrize("code", [DLedgerRequestCode.APPEND, DLedgerRequestCode.GET])
def test_nobody_but_a_member_writes_or_reads_the_log(controllers: Controllers, code: int) -> None:
    answer = controllers.ask(controllers.leader_id(), code, b"{}")
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


def test_an_entry_that_is_no_event_is_passed_over(
    controllers: Controllers, three: list[AskingBroker]
) -> None:
    leader = controllers.leader()
    before = repr(leader.machine.state)
    with capturedLogs() as logs:
        controllers.result(leader.node.propose([b"\x00\x09junk"])[0])
        controllers.run(3)
    assert "passed over" in " ".join(formatEvent(event) or "" for event in logs)
    assert repr(leader.machine.state) == before and controllers.same_state()
    three[0].die()
    assert master_of(controllers) == (2, 2)


def test_a_controller_whose_disk_fails_decides_nothing_more_and_can_be_stopped(
    controllers: Controllers, three: list[AskingBroker]
) -> None:
    failed = controllers.leader_id()
    reasons: list[object] = []
    controllers.running[failed].node.when_failed.addErrback(reasons.append)
    controllers.processes[failed].disk.faults.append(Fault("fsync", error=ENOSPC))
    answer = controllers.ask(
        failed,
        RequestCode.CONTROLLER_APPLY_BROKER_ID,
        clusterName="C",
        brokerName="new",
        appliedBrokerId=1,
        registerCheckCode="a;b",
    )
    assert answer.code != ResponseCode.SUCCESS and reasons
    later = controllers.ask(failed, RequestCode.CONTROLLER_GET_REPLICA_INFO, brokerName=GROUP)
    assert later.code == ResponseCode.CONTROLLER_NOT_LEADER
    controllers.stop(failed)
    # The others go on.
    assert controllers.result(three[0].client.replica_info(GROUP)).master_id == 1


@pytest.mark.parametrize("moved", ["/s", "/s/data"])
def test_a_controller_whose_files_are_moved_ends_though_it_stores_nothing(
    moved: str, controllers: Controllers, three: list[AskingBroker]
) -> None:
    failed = controllers.leader_id()
    reasons: list[Any] = []
    controllers.running[failed].node.when_failed.addErrback(reasons.append)
    controllers.run(3)
    assert not reasons
    controllers.processes[failed].files.rename(moved, "/moved")
    controllers.run(3)
    assert [str(reason.value) for reason in reasons] == [
        f"{moved} was removed, moved or replaced while it was in use: put back what was there, or"
        " restart"
    ]
    controllers.run(10)
    # The others go on.
    assert controllers.result(three[0].client.replica_info(GROUP)).master_id == 1


def test_a_long_log_is_applied_in_pieces(
    controllers: Controllers, three: list[AskingBroker], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = three[0].client
    for number in range(60):
        members = [1, 2] if number % 2 == 0 else [1, 2, 3]
        controllers.result(client.alter_sync_state_set(GROUP, 1, 1, members, number + 2))
    controllers.run_until(controllers.same_state)
    member = controllers.leader_id()
    controllers.stop(member)

    def in_small_pieces(config: ControllerConfig) -> NodeConfig:
        whole = node_config(config)
        raft = msgspec.structs.replace(whole.raft, max_apply_bytes=1000)
        return msgspec.structs.replace(whole, raft=raft)

    monkeypatch.setattr("rocketmq_tw.controller.controller.node_config", in_small_pieces)
    controllers.start(member)
    core = controllers.running[member].node.core
    applied = [-1]

    def somebody_else() -> None:
        """Wants each turn of the reactor while entries are applied, and some in between."""
        moved = core.applied_index > applied[-1]
        applied.append(core.applied_index)
        controllers.clock.callLater(0 if moved else 2e-6, somebody_else)

    somebody_else()
    controllers.run_until(lambda: core.applied_index >= 60)
    assert max(after - before for before, after in pairwise(applied)) <= 20


def test_a_controller_measures_itself_its_brokers_and_its_requests(
    controllers: Controllers, three: list[AskingBroker]
) -> None:
    leader = controllers.leader()
    figures = list(leader.metrics())
    (role,) = [figure for figure in figures if figure.name == "role"]
    assert role.value == 3 and role.labels["peer_id"] == controllers.leader_id()
    (alive,) = [figure for figure in figures if figure.name == "active_broker_num"]
    assert (alive.value, alive.labels["cluster"], alive.labels["broker_set"]) == (3, "C", "g")
    requests = {
        figure.labels["request_code"] for figure in figures if "request_code" in figure.labels
    }
    assert {"controller_elect_master", "broker_heartbeat"} <= requests


def figures_of(controller: Controller, name: str) -> dict[tuple[str, ...], Metric]:
    """What a controller tells under a name, by the labels that are not the controller's own."""
    own = ("address", "group", "peer_id")
    return {
        tuple(text for label, text in each.labels.items() if label not in own): each
        for each in controller.metrics()
        if each.name == name
    }


def test_monitoring_has_stocks_figures_of_a_controller(
    controllers: Controllers, three: list[AskingBroker]
) -> None:
    leader, member = controllers.leader(), controllers.leader_id()
    elected = figures_of(leader, "election_total")
    assert {key: each.value for key, each in elected.items()} == {
        ("C", "g", "new_master_elected"): 1
    }
    asked = figures_of(leader, "request_total")
    elect = asked["CONTROLLER_ELECT_MASTER", "success"]
    assert elect.value == 1 and ("CONTROLLER_BROKER_HEARTBEAT", "success") in asked
    assert set(elect.labels) == {
        "address",
        "group",
        "peer_id",
        "request_type",
        "request_handle_status",
    }
    assert elect.labels["address"] == PEERS[member]
    took = figures_of(leader, "request_latency")[("CONTROLLER_ELECT_MASTER",)]
    assert isinstance(took.value, Distribution) and sum(took.value.counts) == 1
    appended = figures_of(leader, "dledger_op_total")["append", "success"]
    latency = figures_of(leader, "dledger_op_latency")["append", "success"]
    assert isinstance(latency.value, Distribution)
    # Three ids, the election and the SyncStateSet; a registration with nothing new is none.
    assert appended.value == sum(latency.value.counts) == 5
    assert {"dledger_operation", "dLedger_operation_status"} <= set(latency.labels)
    usage = figures_of(leader, "dledger_disk_usage")[()]
    assert usage.unit == "bytes" and usage.value == 8 * 1024 + 32 * 1024

    # One that keeps its master, a refusal that answers, and a request that makes no sense.
    code = RequestCode.CONTROLLER_ELECT_MASTER
    controllers.ask(member, code, clusterName="C", brokerName="g", brokerId=1)
    controllers.ask(member, code, clusterName="C", brokerName="none", brokerId=1)
    controllers.ask(member, code, brokerName="g", brokerId="x")
    assert figures_of(leader, "election_total")["C", "g", "keep_current_master"].value == 1
    asked = figures_of(leader, "request_total")
    assert asked["CONTROLLER_ELECT_MASTER", "success"].value == 3
    assert asked["CONTROLLER_ELECT_MASTER", "failed"].value == 1


def test_a_groups_elections_end_with_it(
    controllers: Controllers, three: list[AskingBroker]
) -> None:
    leader = controllers.leader()
    assert figures_of(leader, "election_total")
    answer = controllers.ask(
        controllers.leader_id(),
        RequestCode.CLEAN_BROKER_DATA,
        clusterName="C",
        brokerName="g",
        isCleanLivingBroker="true",
    )
    assert answer.code == ResponseCode.SUCCESS
    assert figures_of(leader, "election_total") == {}


def test_what_runs_out_of_time_counts_as_that(
    controllers: Controllers, three: list[AskingBroker]
) -> None:
    leader, member = controllers.leader(), controllers.leader_id()
    controllers.take_turn("g")
    code = RequestCode.CONTROLLER_ELECT_MASTER
    answer = controllers.ask(member, code, clusterName="C", brokerName="g", brokerId=1)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    asked = figures_of(leader, "request_total")
    assert asked["CONTROLLER_ELECT_MASTER", "timeout"].value == 1
    took = figures_of(leader, "request_latency")[("CONTROLLER_ELECT_MASTER",)]
    assert isinstance(took.value, Distribution) and sum(took.value.counts) == 1


def test_an_append_that_a_majority_does_not_take_in_time_counts_as_that(
    controllers: Controllers, three: list[AskingBroker]
) -> None:
    leader, member = controllers.leader(), controllers.leader_id()
    for other in set(PEERS) - {member}:
        controllers.stop(other)
    command = RequestCode.CONTROLLER_APPLY_BROKER_ID
    of_broker = {"clusterName": "C", "brokerName": "h", "appliedBrokerId": 1}
    answer = controllers.ask(member, command, **of_broker, registerCheckCode="10.0.0.9:10911;1")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert figures_of(leader, "dledger_op_total")["append", "timeout"].value == 1
    asked = figures_of(leader, "request_total")
    assert asked["CONTROLLER_APPLY_BROKER_ID", "timeout"].value == 1
