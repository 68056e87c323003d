"""Brokers whose disk fails: before they are elected, while they become master, and after that."""

from __future__ import annotations

import errno
from itertools import pairwise

import pytest
from twisted.logger import LogLevel, capturedLogs, formatEvent

from rocketmq_tw.broker.replicas.part import Replicas
from rocketmq_tw.broker.role.state import Role
from rocketmq_tw.files.faulty import Fault
from rocketmq_tw.wire import permissions
from rocketmq_tw.wire.codes import ResponseCode
from tests.support.broker import BrokerInMemory
from tests.support.sim.group import ElectedGroup

EPOCHS = "epochFileCheckpoint"
#: Seconds within which a group goes on that has a healthy replica in sync.
SOON = 30.0


def in_sync(count: int, **keys: object) -> ElectedGroup:
    """A group whose first broker is the master and which is in sync."""
    group = ElectedGroup(all_ack_in_sync_state_set=True, **keys)
    group.controllers.leader()
    for number in range(1, count + 1):
        group.start(number)
        group.run_until(lambda number=number: group.role(number) is not Role.ISOLATED)
    group.run_until(lambda: len(group.in_sync()) == count)
    assert group.masters() == [1]
    group.send(1, b"kept")
    group.run_until(lambda: group.acknowledged == [b"kept"])
    return group


def fail(group: ElectedGroup, number: int, *faults: Fault) -> None:
    group.processes[number].disk.faults += faults


def well_again(group: ElectedGroup, number: int) -> None:
    group.processes[number].disk.faults.clear()


def leader_of(group: ElectedGroup) -> int | None:
    """Whom the controllers take for the master, by number."""
    leader = group.controllers.leader()
    assert leader is not None
    found = leader.machine.state.group("broker-a")
    assert found is not None
    ids = {group.broker_id(number): number for number in group.processes}
    return ids.get(found.sync.master or -1)


def figure(broker: BrokerInMemory, name: str) -> float:
    (found,) = (metric for metric in broker.broker.metrics() if metric.name == name)
    return float(found.value)


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EMFILE])
@pytest.mark.parametrize("operation", ["create", "rename"])
def test_who_cannot_enter_the_role_leaves_it_to_another_one(error: int, operation: str) -> None:
    group = in_sync(3)
    fail(group, 2, Fault(operation, EPOCHS, error))
    group.kill(1)
    group.run_until(lambda: group.masters() == [3], SOON)
    assert figure(group.brokers[2], "rocketmq_broker_failed_elections_total") == 1
    group.run_until(lambda: group.role(2) is Role.SLAVE, SOON)
    assert group.bodies(3) == [b"kept"]


def test_the_only_one_left_tries_to_enter_its_role_with_growing_pauses() -> None:
    group = in_sync(2)
    fault = Fault("create", EPOCHS, errno.ENOSPC)
    fail(group, 2, fault)
    group.kill(1)
    tries = []
    while len(tries) < 4:
        before = fault.hits
        group.run_until(lambda before=before: fault.hits > before, 200)
        tries.append(group.clock.seconds())
        assert figure(group.brokers[2], "rocketmq_broker_stands_for_election") == 0
    pauses = [later - former for former, later in pairwise(tries)]
    assert pauses == sorted(pauses) and pauses[-1] > 3 * pauses[0]
    assert leader_of(group) is None
    well_again(group, 2)
    group.run_until(lambda: group.masters() == [2], 200)
    assert group.bodies(2) == [b"kept"]


def test_a_master_that_cannot_begin_its_next_epoch_leaves_it_to_another_one() -> None:
    group = in_sync(2)
    fail(group, 1, Fault("create", EPOCHS, errno.ENOSPC))
    group.brokers[1].broker[Replicas].switching.controller.renounce()
    group.run_until(lambda: group.masters() == [2], SOON)


DISK_FAULTS = [
    Fault("fsync", "commitlog", errno.EIO),
    Fault("pwrite", "commitlog", errno.EIO),
    Fault("pwrite", "commitlog", errno.ENOSPC),
    Fault("pwrite", "consumequeue", errno.EIO),
    Fault("create", "consumequeue", errno.EMFILE),
    Fault("create", "", errno.EROFS),
]


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
@pytest.mark.parametrize("fault", DISK_FAULTS, ids=lambda fault: f"{fault.operation} {fault.path}")
def test_a_master_whose_disk_fails_is_none_any_more(fault: Fault, flush: str) -> None:
    group = in_sync(2, flush_disk_type=flush, flush_consume_queue_thorough_interval=2000)
    fault = Fault(fault.operation, fault.path, fault.error)
    fail(group, 1, fault)
    if fault.path == "consumequeue" and fault.operation == "create":
        group.master().add_topic("Another")
        group.master().request(group.master().send_request(b"another", topic="Another"))
    with capturedLogs() as logs:
        group.send(1, b"lost")
        group.run_until(lambda: leader_of(group) == 2, SOON)
    said = [formatEvent(event) for event in logs if event["log_level"] is LogLevel.error]
    assert [text for text in said if text.startswith("this broker cannot store messages: ")]
    assert [text for text in said if text.startswith("this broker gives up being the master: ")]
    group.run_until(lambda: group.masters() == [2], SOON)
    group.run_until(lambda: group.routed() == group.brokers[2].address, SOON)
    assert figure(group.brokers[1], "rocketmq_broker_stands_for_election") == 0
    group.send(2, b"goes on")
    group.run_until(lambda: b"goes on" in group.acknowledged, SOON)
    assert group.bodies(2)[0] == b"kept" and b"goes on" in group.bodies(2)
    well_again(group, 1)
    group.kill(1)
    group.start(1)
    group.run_until(lambda: group.in_sync() == {1, 2}, SOON)
    assert figure(group.brokers[1], "rocketmq_broker_stands_for_election") == 1


def test_a_master_that_nobody_sends_to_notices_that_it_cannot_write() -> None:
    group = in_sync(2)
    fail(group, 1, Fault("pwrite", "probe", errno.EIO))
    group.run_until(lambda: group.masters() == [2], SOON)


def test_a_master_without_a_successor_still_serves_readers() -> None:
    group = in_sync(1)
    fail(group, 1, Fault("pwrite", "commitlog", errno.ENOSPC))
    group.send(1, b"lost")

    def permission() -> int:
        (queues,) = group.name_server.table.queues.of_topic("Topic").values()
        return queues.perm

    group.run_until(lambda: permission() == permissions.READ, SOON)
    assert leader_of(group) == 1
    assert group.bodies(1) == [b"kept"]
    well_again(group, 1)
    group.run(1)
    group.send(1, b"goes on")
    group.run_until(lambda: b"goes on" in group.acknowledged, SOON)


def test_a_master_alone_in_sync_leads_until_a_slave_has_its_log() -> None:
    """The controllers would elect nobody, and put nobody in sync."""
    group = in_sync(2)
    group.kill(2)
    group.run_until(lambda: group.in_sync() == {1}, SOON)
    group.send(1, b"alone")
    group.run_until(lambda: b"alone" in group.acknowledged, SOON)
    fail(group, 1, Fault("pwrite", "commitlog", errno.ENOSPC))
    group.send(1, b"lost")
    group.run(5)
    group.start(2)
    group.run_until(lambda: group.masters() == [2], 3 * SOON)
    assert group.bodies(2)[:2] == [b"kept", b"alone"]


UNREADY = [
    Fault("create", "", errno.EROFS),
    Fault("pwrite", "probe", errno.ENOSPC),
    Fault("open", "commitlog", errno.EROFS),
]


@pytest.mark.parametrize("fault", UNREADY, ids=lambda fault: f"{fault.operation} {fault.path}")
def test_who_could_not_lead_is_not_elected(fault: Fault) -> None:
    group = in_sync(3)
    fail(group, 2, Fault(fault.operation, fault.path, fault.error))
    group.run(12)
    leaders = set()
    group.kill(1)

    def is_led() -> bool:
        leaders.add(leader_of(group))
        return group.masters() == [3]

    group.run_until(is_led, SOON)
    assert 2 not in leaders
    assert figure(group.brokers[2], "rocketmq_broker_failed_elections_total") == 0


def test_too_few_descriptors_are_noticed_before_an_election() -> None:
    group = in_sync(3)
    disk = group.processes[2].disk
    disk.descriptors = disk.open_files + 4
    group.run(12)
    group.kill(1)
    group.run_until(lambda: group.masters() == [3], SOON)
    assert figure(group.brokers[2], "rocketmq_broker_failed_elections_total") == 0
    disk.descriptors = None
    group.run_until(lambda: len(group.in_sync()) == 2)
    group.kill(3)
    group.run_until(lambda: group.masters() == [2], SOON)


def fill(group: ElectedGroup, number: int) -> None:
    """Its disk is fuller than diskSpaceWarningLevelRatio from now on."""
    group.processes[number].files.capacity = 4096


def refused(group: ElectedGroup, number: int) -> None:
    broker = group.brokers[number]
    answer = broker.request(broker.send_request(b"refused"))
    assert answer is not None
    assert (answer.code, "the disk is nearly full" in str(answer.remark)) == (
        ResponseCode.SERVICE_NOT_AVAILABLE,
        True,
    )


def test_a_disk_that_is_too_full_is_noticed_at_the_start() -> None:
    group = ElectedGroup()
    group.controllers.leader()
    group.start(1)
    fill(group, 1)
    group.kill(1)
    broker = group.start(1)
    assert figure(broker, "rocketmq_broker_stands_for_election") == 0


def led_by_a_full_one() -> ElectedGroup:
    """Two members whose disks filled up, and that were started again: one of them leads."""
    group = in_sync(2)
    for number in (1, 2):
        fill(group, number)
        group.kill(number)
    for number in (1, 2):
        group.start(number)
    group.run_until(group.masters, SOON)
    return group


def test_a_group_of_full_disks_has_a_master_after_a_restart() -> None:
    group = led_by_a_full_one()
    (master,) = group.masters()
    group.run(30)
    assert group.masters() == [master]
    assert leader_of(group) == master
    assert group.bodies(master) == [b"kept"]
    refused(group, master)
    assert group.routed() == group.brokers[master].address
    (queues,) = group.name_server.table.queues.of_topic("Topic").values()
    assert queues.perm == permissions.READ


def test_a_full_master_makes_room_for_who_has_room() -> None:
    """It was elected while all were full; then somebody frees room, elsewhere."""
    group = led_by_a_full_one()
    (full,) = group.masters()
    group.run(20)
    other = 3 - full
    group.processes[other].files.capacity = 1 << 40
    group.run_until(lambda: group.masters() == [other], 2 * SOON)
    group.send(other, b"goes on")
    group.run_until(lambda: b"goes on" in group.acknowledged, SOON)
    epoch = group.brokers[other].broker.role.state.epoch
    group.run(60)
    assert group.masters() == [other] == [leader_of(group)]
    assert group.brokers[other].broker.role.state.epoch == epoch
    assert group.bodies(other) == [b"kept", b"goes on"]


def test_a_full_disk_that_has_room_again_takes_messages_again() -> None:
    group = in_sync(1)
    fill(group, 1)
    group.kill(1)
    group.start(1)
    group.run_until(lambda: group.masters() == [1], SOON)
    group.processes[1].files.capacity = 1 << 40
    group.run(15)
    assert group.masters() == [1] == [leader_of(group)]
    group.send(1, b"goes on")
    group.run_until(lambda: b"goes on" in group.acknowledged, SOON)
    (queues,) = group.name_server.table.queues.of_topic("Topic").values()
    assert queues.perm == permissions.READ | permissions.WRITE


def test_who_has_room_is_elected_before_who_has_none() -> None:
    group = in_sync(3)
    fill(group, 2)
    group.run(12)
    group.kill(1)
    group.run_until(lambda: group.masters() == [3], SOON)
    group.run(30)
    assert group.masters() == [3]
    assert figure(group.brokers[2], "rocketmq_broker_stands_for_election") == 0


def test_a_master_whose_disk_fills_leaves_it_to_who_has_room_and_to_nobody_else() -> None:
    group = in_sync(2)
    fill(group, 1)
    group.run_until(lambda: group.masters() == [2], SOON)
    fill(group, 2)
    # The two do not pass it to and fro.
    group.run(30)
    leader, epoch = leader_of(group), group.master().broker.role.state.epoch
    assert group.masters() == [leader]
    group.run(120)
    assert (leader_of(group), group.master().broker.role.state.epoch) == (leader, epoch)
    assert group.bodies(leader or 0) == [b"kept"]


@pytest.mark.parametrize("fault", UNREADY, ids=lambda fault: f"{fault.operation} {fault.path}")
def test_a_full_disk_that_fails_besides_does_not_stand(fault: Fault) -> None:
    group = in_sync(1)
    fill(group, 1)
    group.kill(1)
    group.start(1)
    fail(group, 1, Fault(fault.operation, fault.path, fault.error))
    group.run(60)
    assert group.masters() == []
    well_again(group, 1)
    group.run_until(lambda: group.masters() == [1], SOON)
