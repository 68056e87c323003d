"""A master whose disk fails, in a group whose slaves stand in for it, and in one without them."""

from __future__ import annotations

import errno
from unittest.mock import Mock

import pytest
from twisted.internet.defer import Deferred, fail, succeed

from rocketmq_tw.broker.acting.stepping_down import SteppingDown
from rocketmq_tw.broker.role.holder import RoleChanges, RoleHolder
from rocketmq_tw.broker.role.state import Role, RoleState
from rocketmq_tw.files.faulty import Fault
from rocketmq_tw.wire import permissions
from rocketmq_tw.wire.bodies.route import MASTER_ID
from tests.support.broker import fired
from tests.support.sim.acting import ActingCluster

#: Seconds for which something must fail, and within which a slave acts or the master is back.
SOON = 30.0


def send(cluster: ActingCluster, body: bytes) -> list[bytes]:
    """Sends to the master; the list has the body once it is told SEND_OK."""
    told: list[bytes] = []
    cluster.processes["a", 0].send(body, lambda body, _: told.append(body))
    return told


def permission(cluster: ActingCluster) -> int:
    (queues,) = cluster.route("Topic").queue_datas
    return queues.perm


@pytest.mark.parametrize(
    "fault",
    [Fault("fsync", "commitlog", errno.EIO), Fault("create", "", errno.EROFS)],
    ids=lambda fault: fault.operation,
)
def test_a_master_that_cannot_write_lets_a_slave_act_until_it_is_restarted(fault: Fault) -> None:
    cluster = ActingCluster()
    cluster.start_group("a")
    cluster.processes["a", 0].disk.faults = [fault]
    send(cluster, b"lost")
    cluster.run_until(lambda: cluster.acts("a", 1), SOON)
    assert cluster.role("a", 0) is Role.ISOLATED
    assert MASTER_ID not in cluster.members("a")
    cluster.run(10)
    assert cluster.acts("a", 1)
    cluster.kill("a", 0)
    cluster.start("a", 0)
    cluster.run_until(lambda: cluster.follows("a", 1) and not cluster.acts("a", 1), SOON)
    told = send(cluster, b"goes on")
    cluster.run_until(lambda: told, SOON)


def test_a_master_that_can_write_again_takes_its_role_again() -> None:
    cluster = ActingCluster()
    cluster.start_group("a")
    disk = cluster.processes["a", 0].disk
    disk.faults = [Fault("create", "", errno.ENOSPC)]
    cluster.run_until(lambda: cluster.acts("a", 1), SOON)
    disk.faults.clear()
    cluster.run_until(lambda: cluster.role("a", 0) is Role.MASTER, SOON)
    cluster.run_until(lambda: cluster.role("a", 1) is Role.SLAVE, SOON)
    assert cluster.members("a").keys() == {0, 1}


def test_a_master_whose_return_fails_tries_again() -> None:
    """Where a part cannot enter the role, as with no descriptor left for a port."""
    role, changes, health = RoleHolder(RoleState(Role.MASTER, MASTER_ID)), RoleChanges(), Mock()
    membership = Mock()
    membership.group.ask.return_value = succeed({"name server": {0: "here", 1: "there"}})
    refusals = [OSError(errno.EMFILE, "no descriptor is left")] * 2

    def change(state: RoleState) -> Deferred[None]:
        if state.role is Role.MASTER and refusals:
            return fail(refusals.pop())
        role.change(state)
        return succeed(None)

    changes.change = change
    stepping_down = SteppingDown(role, changes, membership, health)
    stepping_down.adjust_role()
    assert role.role is Role.ISOLATED
    health.cannot_write = health.cannot_lead = ""
    for _ in range(2):
        with pytest.raises(OSError, match="no descriptor"):
            fired(stepping_down.adjust_role())
        assert role.role is Role.ISOLATED
    stepping_down.adjust_role()
    assert role.role is Role.MASTER
    stepping_down.adjust_role()
    assert role.role is Role.MASTER and not refusals


def test_a_master_whose_disk_is_full_serves_readers_once_no_slave_lives() -> None:
    cluster = ActingCluster()
    cluster.start_group("a")
    send(cluster, b"kept")
    cluster.run(2)
    cluster.processes["a", 0].files.capacity = 4096
    cluster.run_until(lambda: cluster.acts("a", 1), SOON)
    assert cluster.role("a", 0) is Role.ISOLATED
    cluster.kill("a", 1)
    cluster.run_until(lambda: cluster.role("a", 0) is Role.MASTER, 120)
    cluster.run(20)
    assert cluster.role("a", 0) is Role.MASTER
    assert permission(cluster) == permissions.READ
    assert [message.body for message in cluster.broker("a", 0).consume()] == [b"kept"]
    cluster.start("a", 1)
    cluster.run_until(lambda: cluster.acts("a", 1), SOON)


@pytest.mark.parametrize("acting", [True, False])
def test_a_master_for_which_nobody_acts_is_shown_without_write_permission(acting: bool) -> None:
    cluster = ActingCluster(settings={"enable_slave_acting_master": acting})
    master = cluster.start("a", 0)
    send(cluster, b"first")
    cluster.run(2)
    assert permission(cluster) == permissions.READ | permissions.WRITE
    disk = cluster.processes["a", 0].disk
    disk.faults = [Fault("pwrite", "commitlog", errno.ENOSPC)]
    send(cluster, b"lost")
    cluster.run_until(lambda: permission(cluster) == permissions.READ, SOON)
    assert cluster.role("a", 0) is Role.MASTER
    (figure,) = (
        metric for metric in master.broker.metrics() if metric.name == "rocketmq_storage_writable"
    )
    assert figure.value == 0
    disk.faults.clear()
    told = send(cluster, b"goes on")
    cluster.run_until(lambda: told and permission(cluster) == 6, SOON)


def test_a_master_whose_disk_failed_for_good_may_write_after_a_restart() -> None:
    cluster = ActingCluster(settings={"enable_slave_acting_master": False})
    cluster.start("a", 0)
    send(cluster, b"first")
    cluster.run(2)
    cluster.processes["a", 0].disk.faults = [Fault("fsync", "commitlog", errno.EIO)]
    send(cluster, b"may be lost")
    cluster.run_until(lambda: permission(cluster) == permissions.READ, SOON)
    cluster.processes["a", 0].disk.faults.clear()
    cluster.run(60)
    assert permission(cluster) == permissions.READ
    cluster.kill("a", 0)
    cluster.start("a", 0)
    cluster.run_until(lambda: permission(cluster) == 6, SOON)


@pytest.mark.parametrize("is_well_again", [False, True])
def test_a_slave_that_cannot_write_keeps_no_master_away(is_well_again: bool) -> None:
    """What it did counts; its log ends no later than the master's."""
    cluster = ActingCluster(total_replicas=2)
    master = cluster.start_group("a")
    master.add_topic("Topic")
    send(cluster, b"first")
    cluster.run(8)
    disk = cluster.processes["a", 1].disk
    disk.faults = [
        Fault("fsync", "", errno.EIO),
        Fault("create", "", errno.EROFS),
        Fault("pwrite", "", errno.EROFS),
    ]
    send(cluster, b"not copied")
    cluster.run(8)
    cluster.kill("a", 0)
    cluster.run_until(lambda: cluster.acts("a", 1))
    cluster.broker("a", 1).offsets.commit("G", "Topic", 0, 1)
    cluster.run(20)
    if is_well_again:
        disk.faults.clear()
    cluster.start("a", 0)
    cluster.run_until(lambda: cluster.role("a", 0) is Role.MASTER, 120)
    assert cluster.broker("a", 0).offsets.query("G", "Topic", 0) == 1
    cluster.run_until(lambda: not cluster.acts("a", 1), SOON)
    told = send(cluster, b"goes on")
    cluster.run_until(lambda: told, SOON)
