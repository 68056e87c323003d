"""What a master that controllers elected does of itself, before and after it is elected again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rocketmq_tw.broker.replicas.part import Replicas
from rocketmq_tw.wire.group_state import GroupState, SyncStateSet
from tests.support.broker import BrokerInMemory, ok
from tests.support.pops import Popper
from tests.support.sim.group import ElectedGroup
from tests.support.transactions import begin, connect, questions


def let_wait(broker: BrokerInMemory, properties: dict[str, str]) -> Callable[[], bool]:
    ok(broker.send(b"later", properties=properties))
    return lambda: b"later" in [message.body for message in broker.consume()]


def delayed(broker: BrokerInMemory) -> Callable[[], bool]:
    return let_wait(broker, {"DELAY": "3"})


def timed(broker: BrokerInMemory) -> Callable[[], bool]:
    return let_wait(broker, {"TIMER_DELAY_SEC": "10"})


def popped(broker: BrokerInMemory) -> Callable[[], bool]:
    popper = Popper(broker)
    ok(broker.send(b"popped"))
    assert b"popped" in popper.bodies(invisible_time=10_000)
    return lambda: b"popped" in popper.bodies()


def undecided(broker: BrokerInMemory) -> Callable[[], bool]:
    producer = connect(broker)
    begin(broker)
    return lambda: bool(questions(producer))


@pytest.mark.parametrize("again", [False, True], ids=["elected", "elected again"])
@pytest.mark.parametrize("begun", [delayed, timed, popped, undecided])
def test_what_waits_comes_in_time(begun: Callable, again: bool) -> None:
    group = ElectedGroup(
        broker={"transaction_time_out": 6000, "transaction_check_interval": 1000},
    )
    group.controllers.leader()
    group.start(1)
    broker = group.master()
    if again:
        again_elected = GroupState(1, "10.0.0.1:10911", 9, SyncStateSet(frozenset({1}), 9))
        broker.broker[Replicas].switching.renew(again_elected)
    # The confirmed offset moves with each message.
    ok(broker.send(b"first"))
    comes = begun(broker)
    ok(broker.send(b"last"))
    group.run(5)
    assert not comes()
    group.run_until(comes, 30)
