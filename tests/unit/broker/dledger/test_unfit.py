"""Members of a DLedger group whose disk fails: before they lead, while they begin to, and after."""

from __future__ import annotations

import errno

import pytest
from twisted.internet.defer import Deferred, fail

from rocketmq_tw.broker.dledger.part import DLedgerGroup
from rocketmq_tw.broker.role.state import Role, RoleState
from rocketmq_tw.files.faulty import Fault, FaultyFiles
from rocketmq_tw.files.memory import MemoryFiles
from tests.support.broker import BrokerInMemory
from tests.support.dledger_brokers import IDS, DLedgerBrokers


class Spoiled(DLedgerBrokers):
    """Its members' disks can be made to fail."""

    def __init__(self, **store: object) -> None:
        self.disks = {member: FaultyFiles(MemoryFiles()) for member in IDS}
        files: dict[str, object] = dict(self.disks)
        super().__init__(files, **store)  # type: ignore[arg-type]

    def name_of(self, broker: BrokerInMemory) -> str:
        (member,) = (name for name in IDS if self.brokers.get(name) is broker)
        return member

    def kill(self, member: str) -> None:
        """Its next life has a disk that is well."""
        inner = self.disks[member].inner
        assert isinstance(inner, MemoryFiles)
        self.files[member] = inner
        super().kill(member)

    def goes_on_without(self, former: str, seconds: int = 90) -> BrokerInMemory:
        """The next master, which takes a message."""
        for _ in range(seconds):
            self.run(1)
            others = [member for member in self.masters if member != former]
            if others:
                (member,) = others
                answers = self.ask_to_store(self.brokers[member], b"goes on")
                self.run(1)
                if answers and answers[0].code == 0:
                    return self.brokers[member]
        raise AssertionError("no other member leads")


FAULTS = [
    Fault("pwrite", "/data/", errno.EIO),
    Fault("fsync", "/data/", errno.EIO),
    Fault("pwrite", "/data/", errno.ENOSPC),
    Fault("pwrite", "consumequeue", errno.EIO),
    Fault("create", "", errno.EROFS),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.operation} {fault.path}")
def test_a_leader_whose_disk_fails_leads_no_more(fault: Fault) -> None:
    group = Spoiled(flush_consume_queue_thorough_interval=2000)
    group.send(b"kept")
    former = group.name_of(group.master())
    group.disks[former].faults = [Fault(fault.operation, fault.path, fault.error)]
    group.ask_to_store(group.brokers[former], b"perhaps")
    master = group.goes_on_without(former)
    assert group.brokers[former].broker.role.role is not Role.MASTER
    figures = {metric.name: metric.value for metric in group.brokers[former].broker.metrics()}
    assert figures["rocketmq_broker_stands_for_election"] == 0
    assert figures["rocketmq_storage_writable"] == 0
    bodies = [message.body for message in master.consume()]
    assert bodies[0] == b"kept" and b"goes on" in bodies


@pytest.mark.parametrize(
    "fault",
    [Fault("pwrite", "/data/", errno.ENOSPC), Fault("create", "/dledger-", errno.EMFILE)],
    ids=lambda fault: f"{fault.operation} {fault.error}",
)
def test_a_leader_that_found_no_room_is_a_member_again_once_there_is(fault: Fault) -> None:
    group = Spoiled(mapped_file_size_commit_log=8192, max_message_size=4096)
    group.send(b"kept")
    former = group.name_of(group.master())
    group.disks[former].faults = [Fault(fault.operation, fault.path, fault.error)]
    for _ in range(4):
        group.ask_to_store(group.brokers[former], bytes(3000))
    group.goes_on_without(former)
    assert group.node(group.brokers[former]).trouble
    group.disks[former].faults.clear()
    group.run(15)
    group.settle()
    figures = {metric.name: metric.value for metric in group.brokers[former].broker.metrics()}
    assert figures["rocketmq_broker_stands_for_election"] == 1
    assert figures["rocketmq_storage_writable"] == 1
    bodies = group.bodies()
    assert b"goes on" in bodies[former] and all(one == bodies[former] for one in bodies.values())
    # The group needs it now.
    group.kill(next(member for member in IDS if member not in (former, *group.masters)))
    group.send(b"with it")


def test_who_could_not_lead_is_not_elected() -> None:
    group = Spoiled()
    group.send(b"kept")
    former = group.name_of(group.master())
    unfit, fit = (member for member in IDS if member != former)
    group.disks[unfit].faults = [Fault("create", "probe", errno.ENOSPC)]
    group.run(15)
    group.kill(former)
    for _ in range(30):
        group.run(1)
        assert group.node(group.brokers[unfit]).is_leader is False
    assert group.masters == [fit]
    # It votes all the same, and leads once it could.
    group.disks[unfit].faults.clear()
    group.run(15)
    group.start(former)
    group.settle()
    group.kill(fit)
    assert group.name_of(group.master()) in (unfit, former)


def test_who_cannot_enter_the_role_leaves_it_to_another_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    group = Spoiled()
    group.send(b"kept")
    former = group.name_of(group.master())
    unfit: list[str] = []

    def spoil(member: str) -> None:
        role = group.brokers[member].broker[DLedgerGroup]._following
        assert role is not None
        change = role._change

        def refuse(state: RoleState) -> Deferred[None]:
            if state.role is Role.MASTER and (not unfit or unfit == [member]):
                unfit[:] = [member]
                return fail(OSError(errno.EMFILE, "too many open files"))
            return change(state)

        monkeypatch.setattr(role, "_change", refuse)

    for member in IDS:
        spoil(member)
    group.kill(former)
    master = group.goes_on_without(former)
    assert unfit and group.name_of(master) not in unfit
    (metric,) = (
        one
        for one in group.brokers[unfit[0]].broker.metrics()
        if one.name == "rocketmq_broker_failed_elections_total"
    )
    assert metric.value == 1


def test_a_group_of_full_disks_has_a_leader_after_a_restart() -> None:
    group = Spoiled()
    group.send(b"kept")
    group.settle()
    for member in IDS:
        inner = group.disks[member].inner
        assert isinstance(inner, MemoryFiles)
        inner.capacity = 4096
        group.kill(member)
    for member in IDS:
        group.start(member)
    master = group.master()
    group.run(30)
    assert group.master() is master
    assert [message.body for message in master.consume()] == [b"kept"]
    (answer,) = group.ask_to_store(master, b"refused")
    assert "the disk is nearly full" in str(answer.remark)
