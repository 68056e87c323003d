"""Disks that refuse, keys that stop the timer, and very many messages."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.testing import MemoryReactorClock

from rocketmq_tw.broker.timer.part import Timer
from rocketmq_tw.broker.timer.slots import DueSlot
from rocketmq_tw.files.faulty import Fault, FaultyFiles
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.store.timer.unit import DEFAULT, NOWHERE, TimerUnit
from rocketmq_tw.store.timer.wheel import Slot
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError
from tests.support.broker import BrokerInMemory
from tests.support.stores import START_MS
from tests.support.timers import bodies, let, timed


def test_a_delivery_that_is_refused_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = BrokerInMemory()
    for number in range(5):
        timed(broker, b"%d" % number, TIMER_DELAY_SEC=1)
    let(broker, 0.5)
    append = broker.commit.append

    def refuse(*arguments: Any, **options: Any) -> None:
        raise RequestError(ResponseCode.SERVICE_NOT_AVAILABLE, "no")

    monkeypatch.setattr(broker.commit, "append", refuse)
    let(broker, 10, 0.05)
    monkeypatch.setattr(broker.commit, "append", append)
    let(broker, 2, 0.05)
    assert sorted(bodies(broker)) == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("path", ["timerlog", "timerwheel", "timercheck"])
def test_files_that_cannot_be_written_for_a_while(path: str) -> None:
    memory = MemoryFiles()
    files = FaultyFiles(memory)
    broker = BrokerInMemory(files)
    let(broker, 2, 0.1)
    files.faults += [Fault("pwrite", path) for _ in range(4)]
    for second in (1, 10, 20):
        timed(broker, b"%d" % second, TIMER_DELAY_SEC=second)
    let(broker, 12, 0.1)
    files.faults.clear()
    let(broker, 3, 0.1)
    clock = MemoryReactorClock()
    clock.advance(broker.clock.seconds())
    again = BrokerInMemory(memory.kill(), clock=clock)
    let(again, 10, 0.1)
    assert sorted(bodies(again)) == [b"1", b"10", b"20"]


def test_keys_that_stop_it() -> None:
    broker = BrokerInMemory(timer_stop_dequeue=True)
    timed(broker, b"one", TIMER_DELAY_SEC=1)
    let(broker, 15, 0.1)
    assert bodies(broker) == []
    assert broker.broker[Timer].files.number(START_MS) == 1
    broker = BrokerInMemory(timer_stop_enqueue=True)
    timed(broker, b"one", TIMER_DELAY_SEC=1)
    let(broker, 5, 0.1)
    assert broker.broker[Timer].runtime_info()["timerOffsetBehind"] == "1"


def test_a_million_that_wait_cost_a_tick_nothing() -> None:
    """A look at the time reads a few slots, whatever waits."""
    broker = BrokerInMemory()
    part = broker.broker[Timer]
    wheel = part.files.wheel
    for second in range(60, 260_000):
        wheel.put(START_MS + second * 1000, Slot(0, 0, 4))
    looked: list[int] = []
    get, following = wheel.get, wheel.next_time

    def counted(since: int, until: int) -> int | None:
        found = following(since, until)
        looked.append(((found or until) - since) // 1000)
        return found

    wheel.get = lambda time_ms: looked.append(1) or get(time_ms)
    wheel.next_time = counted
    timed(broker, b"one", TIMER_DELAY_SEC=1)
    let(broker, 3)
    assert bodies(broker) == [b"one"]
    assert sum(looked) < 3_000


def test_a_slot_with_very_many_is_delivered_bit_by_bit() -> None:
    """Entries are read in a thread; each turn of the reactor delivers 256."""
    broker = BrokerInMemory()
    part = broker.broker[Timer]
    timed(broker, b"one", TIMER_DELAY_SEC=5)
    (unit,) = broker.store.queue_units("rmq_sys_wheel_timer", 0, 0, 1)
    for _ in range(2_000):
        part.files.add(
            TimerUnit(NOWHERE, DEFAULT, START_MS, START_MS + 4999, unit.position, unit.size, 0)
        )
    delivery = part.delivery
    deliver, sizes = delivery._deliver, []

    def counted(slot: DueSlot, positions: list[int]) -> None:
        sizes.append(len(positions))
        deliver(slot, positions)

    delivery._deliver = counted
    let(broker, 7, 0.1)
    assert len(bodies(broker)) == sum(sizes) == 2_001
    assert max(sizes) <= 256


def test_a_slot_waits_for_no_more_than_what_was_sent_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where messages come all the time, something is always behind."""
    broker = BrokerInMemory()
    queue = broker.broker[Timer].queue
    monkeypatch.setattr(type(queue), "is_behind", property(lambda self: True))
    for second in range(1, 5):
        timed(broker, b"%d" % second, TIMER_DELAY_SEC=second)
    let(broker, 5)
    assert bodies(broker) == [b"1", b"2", b"3", b"4"]
