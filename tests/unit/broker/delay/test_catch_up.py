"""What a master has delivered of the delay levels, and what its successor makes of that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from rocketmq_tw.broker.assembly.truncation import LogCut
from rocketmq_tw.broker.delay import catch_up
from rocketmq_tw.broker.delay.part import Delay
from rocketmq_tw.broker.replicas.part import COPY_SECONDS
from rocketmq_tw.broker.role.state import Role, RoleState
from rocketmq_tw.wire.bodies.queues import DelayOffsetTable
from tests.support.broker import BrokerInMemory, ok
from tests.support.sim.group import ElectedGroup

MASTER, SLAVE = RoleState(Role.MASTER, 0), RoleState(Role.SLAVE, 1)


def delayed(broker: BrokerInMemory, body: bytes, level: int, **properties: str) -> None:
    """Sends a message that waits; like a client, it names its unique id."""
    ok(broker.send(body, properties={"DELAY": str(level), "UNIQ_KEY": body.decode(), **properties}))


def group_of_two(**keys: Any) -> tuple[ElectedGroup, int, int]:
    """The numbers of the master and of its slave, which is in sync."""
    levels = {"message_delay_level": "1s 2s 30s"}
    group = ElectedGroup(all_ack_in_sync_state_set=True, **levels, **keys)
    group.controllers.leader()
    group.start(1)
    group.start(2)
    group.run_until(lambda: len(group.in_sync()) == 2)
    (master,) = group.masters()
    return group, master, 3 - master


def succeed(group: ElectedGroup, master: int, slave: int) -> None:
    """The master is killed, and all that waits is delivered by the other one."""
    group.kill(master)
    group.run_until(lambda: group.masters() == [slave])
    group.run(60)


@pytest.mark.parametrize("shift", [0.0, 1.3, 2.6, 3.9])
def test_nothing_is_delivered_twice(shift: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catch_up, "STEP_RECORDS", 3)
    group, master, slave = group_of_two(mapped_file_size_commit_log=4096)
    group.run(shift)
    sent = 0
    for _ in range(int(3 * COPY_SECONDS / 0.25)):
        for level in (1, 2, 3):
            delayed(group.brokers[master], b"%d" % sent, level)
            sent += 1
        group.run(0.25)
    succeed(group, master, slave)
    assert Counter(group.bodies(slave)) == {b"%d" % number: 1 for number in range(sent)}


def test_copies_that_say_the_same_are_counted() -> None:
    """An application sends what it has consumed once more, properties and all."""
    group, master, slave = group_of_two()
    group.run(COPY_SECONDS)
    for _ in range(3):
        delayed(group.brokers[master], b"again", 1)
        group.run(0.4)
    # The first one is delivered by now, the others wait.
    group.run_until(lambda: group.bodies(slave) == [b"again"])
    succeed(group, master, slave)
    assert group.bodies(slave) == [b"again"] * 3


def test_who_says_that_it_waited_makes_nobody_else_come_early_or_not_at_all() -> None:
    """A message may say anything in its properties but where it is."""
    group, master, slave = group_of_two()
    group.run(COPY_SECONDS)
    delayed(group.brokers[master], b"waits", 3)
    said = {"REAL_TOPIC": "Topic", "REAL_QID": "0", "UNIQ_KEY": "waits"}
    ok(group.brokers[master].send(b"claims", properties=said))
    group.run(1)
    succeed(group, master, slave)
    assert group.bodies(slave) == [b"claims", b"waits"]


def test_a_message_without_an_id_comes_twice_rather_than_never() -> None:
    group, master, slave = group_of_two()
    group.run(COPY_SECONDS)
    ok(group.brokers[master].send(b"nameless", properties={"DELAY": "1"}))
    group.run_until(lambda: group.bodies(slave) == [b"nameless"])
    succeed(group, master, slave)
    assert set(group.bodies(slave)) == {b"nameless"}


def test_the_offsets_are_those_of_a_master_that_was_never_replaced() -> None:
    group, master, slave = group_of_two()
    for number in range(8):
        delayed(group.brokers[master], b"%d" % number, 1)
        group.run(1)
    succeed(group, master, slave)
    assert group.brokers[slave].broker[Delay].offsets.get(1) == 8


def test_a_role_that_ends_meanwhile_delivers_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = BrokerInMemory(message_delay_level="1s 2s 30s")
    delayed(broker, b"waits", 1)
    broker.become(SLAVE)
    offsets = broker.broker[Delay].offsets
    offsets.follow(offsets.table(), broker.store.end_offset)
    went_on = []

    def steps(_: object) -> Iterator[None]:
        yield
        broker.broker.change_role(SLAVE)
        yield
        went_on.append(True)

    with monkeypatch.context() as patch:
        patch.setattr(catch_up.CatchUp, "steps", steps)
        broker.become(MASTER)
        broker.clock.advance(10)
    assert not went_on and broker.broker.role.role is Role.SLAVE
    assert broker.consume() == []
    broker.become(MASTER)
    broker.clock.advance(1)
    assert [message.body for message in broker.consume()] == [b"waits"]


def test_no_step_is_made_once_the_role_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log may be cut by then, and the offsets be another master's."""
    broker = BrokerInMemory(message_delay_level="1s 2s 30s")
    broker.become(SLAVE)
    offsets = broker.broker[Delay].offsets
    offsets.follow(offsets.table(), broker.store.end_offset)
    went_on = []

    def steps(_: object) -> Iterator[None]:
        yield
        went_on.append(True)

    monkeypatch.setattr(catch_up.CatchUp, "steps", steps)
    broker.broker.change_role(MASTER)
    assert broker.broker.role.role is Role.MASTER
    broker.broker.change_role(SLAVE)
    broker.clock.advance(10)
    assert not went_on


def test_a_look_at_the_log_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catch_up, "MOST_RECORDS", catch_up.STEP_RECORDS)
    broker = BrokerInMemory(message_delay_level="1s 2s 30s")
    begin = broker.store.end_offset
    offsets = broker.broker[Delay].offsets
    delayed(broker, b"early", 1)
    broker.clock.advance(2)
    for _ in range(catch_up.STEP_RECORDS):
        ok(broker.send(b"plain"))
    delayed(broker, b"late", 1)
    broker.clock.advance(2)
    broker.become(SLAVE)
    offsets.follow(DelayOffsetTable(offset_table={1: 0}), begin)
    broker.become(MASTER)
    broker.clock.advance(5)
    came = Counter(message.body for message in broker.consume())
    assert (came[b"early"], came[b"late"]) == (1, 2)


def test_where_the_log_is_cut_nothing_is_looked_for_behind_that() -> None:
    group, master, slave = group_of_two()
    delayed(group.brokers[master], b"waits", 3)
    group.run(2 * COPY_SECONDS)
    broker = group.brokers[slave]
    offsets = broker.broker[Delay].offsets
    assert offsets.followed_at == broker.store.end_offset
    levels = broker.broker[Delay].levels
    for _ in offsets.rewind(broker.store, levels, LogCut(broker.store, 100)):
        pass
    assert offsets.followed_at == 100
    for _ in offsets.rewind(broker.store, levels, LogCut(broker.store, 200)):
        pass
    assert offsets.followed_at == 100


def test_what_another_slave_has_counted_is_not_counted_once_more() -> None:
    """It acted: what it delivered stands in no log here."""
    broker = BrokerInMemory(message_delay_level="1s 2s 30s")
    offsets = broker.broker[Delay].offsets
    begin = broker.store.end_offset
    delayed(broker, b"same", 1)
    broker.clock.advance(2)
    for body in (b"elsewhere", b"same"):
        delayed(broker, body, 1)
    broker.become(SLAVE)
    offsets.follow(DelayOffsetTable(offset_table={1: 0}), begin)
    offsets.take_back(DelayOffsetTable(offset_table={1: 2}), broker.store.end_offset)
    broker.become(MASTER)
    broker.clock.advance(5)
    assert [message.body for message in broker.consume()] == [b"same", b"same"]


def test_what_was_delivered_while_the_offsets_were_told_counts_once() -> None:
    """Behind the place, and in front of the offsets."""
    broker = BrokerInMemory(message_delay_level="1s 2s 30s")
    offsets = broker.broker[Delay].offsets
    begin = broker.store.end_offset
    for number in range(3):
        delayed(broker, b"%d" % number, 1)
    broker.clock.advance(2)
    told = offsets.table()
    # The last one and this one say the same of themselves.
    delayed(broker, b"2", 1)
    delayed(broker, b"3", 1)
    broker.become(SLAVE)
    offsets.follow(told, begin)
    broker.become(MASTER)
    broker.clock.advance(5)
    assert Counter(message.body for message in broker.consume()) == Counter(
        [b"0", b"1", b"2", b"2", b"3"]
    )
    delayed(broker, b"4", 1)
    broker.clock.advance(2)
    told = offsets.table()
    delayed(broker, b"5", 1)
    broker.clock.advance(2)
    broker.become(SLAVE)
    offsets.follow(told, begin)
    broker.become(MASTER)
    broker.clock.advance(5)
    assert len(broker.consume()) == 7, "the fourth is in front, the fifth behind: neither again"
