"""Whole brokers and controllers in memory: who is master, and what a group keeps."""

from __future__ import annotations

from rocketmq_tw.broker.replicas.part import Replicas
from rocketmq_tw.broker.role.state import Role
from rocketmq_tw.wire.bodies.base import decode_body
from rocketmq_tw.wire.bodies.controller import EpochEntryBody, EpochEntryCache
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.group_state import GroupState, SyncStateSet
from tests.support.broker import BrokerInMemory
from tests.support.sim.group import NAME, ElectedGroup


def three(**keys: object) -> ElectedGroup:
    group = ElectedGroup(**keys)
    group.controllers.leader()
    group.start(1)
    group.run_until(lambda: group.masters() == [1])
    for number in (2, 3):
        group.start(number)
        group.run_until(lambda number=number: group.role(number) is Role.SLAVE)
    group.run_until(lambda: group.in_sync() == {1, 2, 3})
    return group


def test_the_first_one_is_master_and_the_others_join_it() -> None:
    group = three()
    assert [group.broker_id(number) for number in (1, 2, 3)] == [1, 2, 3]
    assert group.brokers[1].broker.role.state.broker_id == 0
    assert group.brokers[2].broker.role.state.broker_id == 2


def test_a_killed_masters_messages_are_all_at_the_next_one() -> None:
    group = three(all_ack_in_sync_state_set=True)
    bodies = [b"%d" % number for number in range(20)]
    for body in bodies:
        group.send(1, body)
    group.run_until(lambda: group.acknowledged == bodies)
    group.kill(1)
    began = group.clock.seconds()
    group.run_until(lambda: group.masters())
    assert group.clock.seconds() - began < 5
    group.run(1)
    (successor,) = group.masters()
    assert group.bodies(successor) == bodies
    group.start(1)
    group.run_until(lambda: group.in_sync() == {1, 2, 3})
    assert group.role(1) is Role.SLAVE


def test_a_learner_asks_for_no_election() -> None:
    group = ElectedGroup()
    group.controllers.leader()
    group.start(1, async_learner=True)
    group.run(5)
    assert group.role(1) is Role.ISOLATED and group.routed() is None
    group.start(2)
    group.run_until(lambda: group.masters() == [2])
    group.run_until(lambda: group.role(1) is Role.SLAVE)
    group.send(2, b"m")
    group.run_until(lambda: group.bodies(1) == [b"m"])
    group.run(10)
    assert group.in_sync() == {2}
    group.kill(2)
    group.run(10)
    assert group.masters() == []


def test_a_copy_of_a_store_has_no_role_while_the_original_lives() -> None:
    group = three(all_ack_in_sync_state_set=True)
    group.start(4, group.processes[2].files.kill())
    group.run(5)
    assert group.role(4) is Role.ISOLATED
    assert group.in_sync() == {1, 2, 3}
    group.kill(1)
    group.run_until(lambda: group.masters())
    group.run(10)
    assert len(group.masters()) == 1
    # Nobody else has the id any more.
    group.kill(2)
    group.run_until(lambda: group.role(4) in (Role.MASTER, Role.SLAVE))


def test_a_former_master_that_comes_back_is_no_master_at_name_servers() -> None:
    group = three()
    group.run_until(lambda: group.routed() == "10.0.0.1:10911")
    group.processes[1].pause()
    group.run_until(lambda: len(group.masters()) == 2)
    (successor,) = set(group.masters()) - {1}
    routed = f"10.0.0.{successor}:10911"
    group.run_until(lambda: group.routed() == routed)
    # A registration as the master falls due meanwhile.
    group.run(group.brokers[1].config.register_name_server_period / 1000)
    group.processes[1].go_on()
    for _ in range(100):
        group.run(0.05)
        assert group.routed() == routed
    assert group.role(1) is Role.SLAVE
    # It has its own number again, as the new master had.
    (other,) = {2, 3} - {successor}
    expected = {0: routed, 1: "10.0.0.1:10911", other: f"10.0.0.{other}:10911"}
    group.run_until(lambda: group.name_server.table.members("C", NAME).broker_addrs == expected)


def test_a_master_that_is_elected_again_tells_name_servers_so() -> None:
    group = three()
    group.run_until(lambda: group.routed() == "10.0.0.1:10911")

    def version() -> int:
        told = group.name_server.table.data_version("C", "10.0.0.1:10911")
        return told.state_version if told else 0

    broker = group.brokers[1].broker
    assert version() == broker.role.state.epoch == 1
    switching = broker[Replicas].switching
    in_sync = SyncStateSet(frozenset({1, 2, 3}), 9)
    switching.renew(GroupState(1, "10.0.0.1:10911", 2, in_sync))
    group.run(1)
    assert version() == 2


def epochs_of(broker: BrokerInMemory) -> EpochEntryCache:
    answer = broker.request(RemotingCommand.request(RequestCode.GET_BROKER_EPOCH_CACHE))
    assert answer is not None and answer.code == ResponseCode.SUCCESS
    return decode_body(EpochEntryCache, answer.body)


def test_a_broker_tells_of_the_epochs_of_its_log() -> None:
    group = three(all_ack_in_sync_state_set=True)
    for body in (b"first", b"second"):
        master = group.master()
        (number,) = group.masters()
        group.send(number, body)
        group.run_until(lambda body=body: body in group.acknowledged)
        end = master.store.end_offset
        if body == b"first":
            begin, first_epoch = end, epochs_of(master).epoch_list[0].epoch
            group.kill(number)
            group.run_until(group.masters)
    group.run(5)
    for one in group.brokers.values():
        told = epochs_of(one)
        assert (told.cluster_name, told.broker_name) == ("C", "broker-a")
        assert told.broker_id == one.broker.role.state.broker_id
        assert told.max_offset == end
        (former, last) = told.epoch_list
        assert former == EpochEntryBody(epoch=first_epoch, start_offset=0, end_offset=begin)
        assert last == EpochEntryBody(epoch=first_epoch + 1, start_offset=begin)


def test_what_slaves_lack_is_not_acknowledged_and_in_the_last_epoch_all_the_same() -> None:
    group = three(all_ack_in_sync_state_set=True)
    master = group.brokers[1]
    for slave in (2, 3):
        group.processes[slave].pause()
    group.send(1, b"tail")
    group.run(0.5)
    assert group.acknowledged == []
    switching = master.broker[Replicas].switching
    assert switching.progress.confirmed < master.store.end_offset
    assert epochs_of(master).max_offset == master.store.end_offset


def test_only_brokers_with_a_controller_have_epochs() -> None:
    broker = BrokerInMemory()
    answer = broker.request(RemotingCommand.request(RequestCode.GET_BROKER_EPOCH_CACHE))
    assert answer is not None and answer.code == ResponseCode.SYSTEM_ERROR
    assert "enableControllerMode" in (answer.remark or "")
