"""How far a group has consumed, and what a fail-over under controllers makes of it."""

from __future__ import annotations

import pytest

from rocketmq_tw.broker.replicas.part import COPY_SECONDS
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import RemotingCommand
from tests.support.broker import ok
from tests.support.sim.group import ElectedGroup


def consumed(count: int = 10) -> tuple[ElectedGroup, int, int]:
    """Two brokers that know that `G` has consumed all; the numbers of the master and the slave."""
    group = ElectedGroup(all_ack_in_sync_state_set=True)
    group.controllers.leader()
    group.start(1)
    group.start(2)
    group.run_until(lambda: len(group.in_sync()) == 2)
    (master,) = group.masters()
    slave = 3 - master
    for number in range(count):
        group.send(master, b"%d" % number)
    group.run(1)
    commit(group, master, count)
    group.run_until(lambda: offset(group, slave) == count)
    # It is in the slave's file too.
    group.run(10)
    return group, master, slave


def commit(group: ElectedGroup, number: int, value: int) -> None:
    group.brokers[number].offsets.commit("G", "Topic", 0, value)


def offset(group: ElectedGroup, number: int) -> int:
    return group.brokers[number].offsets.query("G", "Topic", 0)


def make_anew(group: ElectedGroup, master: int) -> None:
    deletion = RemotingCommand.request(RequestCode.DELETE_TOPIC_IN_BROKER)
    deletion.ext_fields = {"topic": "Topic"}
    ok(group.brokers[master].request(deletion))
    group.run(5)
    for number in range(3):
        group.send(master, b"new %d" % number)
    group.run(1)


@pytest.mark.parametrize("anew", [False, True], ids=["reset", "topic made anew"])
@pytest.mark.parametrize("committed", [2, None])
def test_what_went_back_while_the_slave_was_down_holds_after_a_fail_over(
    anew: bool, committed: int | None
) -> None:
    group, master, slave = consumed()
    group.kill(slave)
    group.run(5)
    if anew:
        make_anew(group, master)
    elif committed is None:
        for _ in group.brokers[master].offsets.remove_group("G"):
            pass
    if committed is not None:
        commit(group, master, committed)
    group.start(slave)
    group.run_until(lambda: len(group.in_sync()) == 2)
    expected = -1 if committed is None else committed
    group.run_until(lambda: offset(group, slave) == expected)
    group.kill(master)
    group.run_until(lambda: group.masters() == [slave])
    assert offset(group, slave) == expected


def test_a_former_master_takes_over_what_went_back_since() -> None:
    group, master, slave = consumed()
    group.kill(master)
    group.run_until(lambda: group.masters() == [slave])
    commit(group, slave, 2)
    group.start(master)
    group.run_until(lambda: len(group.in_sync()) == 2)
    group.run_until(lambda: offset(group, master) == 2)


#: Of the period in which slaves copy.
SHIFTS = [0, 1, 2, 3, 4]


def silent_master(seconds: int) -> tuple[ElectedGroup, int, int]:
    """A group whose master is paused, with the numbers of its successor and of the slave."""
    group = ElectedGroup(all_ack_in_sync_state_set=True)
    group.controllers.leader()
    for number in (1, 2, 3):
        group.start(number)
    group.run_until(lambda: len(group.in_sync()) == 3)
    (former,) = group.masters()
    group.run(10 + seconds)
    group.processes[former].pause()
    group.run_until(lambda: len(group.masters()) == 2)
    (master,) = set(group.masters()) - {former}
    (slave,) = {1, 2, 3} - {former, master}
    return group, master, slave


@pytest.mark.parametrize("seconds", SHIFTS)
def test_nobody_waits_for_the_tables_of_a_master_that_is_silent(seconds: int) -> None:
    group, master, slave = silent_master(seconds)
    commit(group, master, 1)
    group.run(COPY_SECONDS + 1)
    assert offset(group, slave) == 1


@pytest.mark.parametrize("seconds", SHIFTS)
def test_nor_does_a_stop(seconds: int) -> None:
    group, *others = silent_master(seconds)
    stopping = [group.brokers[number].broker.stop() for number in others]
    group.run(1)
    assert all(stopped.called for stopped in stopping)
