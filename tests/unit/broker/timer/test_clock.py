"""Somebody sets the clock: nothing is lost, what is
sent then comes in time, and only a slot that was at hand comes twice."""

from __future__ import annotations

import pytest
from twisted.internet.testing import MemoryReactorClock

from rocketmq_tw.broker.timer.part import Timer
from tests.support.broker import BrokerInMemory
from tests.support.stores import START_MS
from tests.support.timers import bodies, cut, delivered, let, timed

HOUR_MS = 3_600_000


@pytest.fixture
def broker() -> BrokerInMemory:
    return BrokerInMemory()


def hours_later(broker: BrokerInMemory, hours: float) -> None:
    """By the true time, in steps that are long."""
    let(broker, hours * 3600, 20)


@pytest.mark.parametrize("back_ms", [61_000, HOUR_MS, 5 * HOUR_MS])
def test_ahead_and_back_again(broker: BrokerInMemory, back_ms: int) -> None:
    timed(broker, b"soon", TIMER_DELAY_SEC=40)
    timed(broker, b"far", TIMER_DELAY_SEC=6 * 3600)
    let(broker, 2)
    broker.shift_ms = back_ms
    let(broker, 15, 0.1)
    assert bodies(broker) == [b"soon"], "its time is over, as the clock says"
    broker.shift_ms = 0
    for number in range(3):
        timed(broker, b"%d" % number, TIMER_DELAY_MS=2_500 + number)
    let(broker, 4)
    assert bodies(broker) == [b"soon", b"0", b"1", b"2"]
    late = delivered(broker)[1].store_timestamp - START_MS - 17_000 - 2_500
    assert 0 <= late <= 20
    hours_later(broker, 5.9)
    assert bodies(broker) == [b"soon", b"0", b"1", b"2"]
    hours_later(broker, 0.2)
    assert bodies(broker) == [b"soon", b"0", b"1", b"2", b"far"]


def test_what_came_too_early_does_not_come_again(broker: BrokerInMemory) -> None:
    for minute in range(1, 60):
        timed(broker, b"%d" % minute, TIMER_DELAY_SEC=60 * minute)
    let(broker, 2)
    broker.shift_ms = HOUR_MS
    let(broker, 15, 0.1)
    broker.shift_ms = 0
    timed(broker, b"new", TIMER_DELAY_SEC=600)
    hours_later(broker, 1.5)
    assert bodies(broker) == [b"%d" % minute for minute in range(1, 60)] + [b"new"]


def test_back_while_a_slot_is_delivered(broker: BrokerInMemory) -> None:
    """The slot is delivered again when its time comes once more."""
    for number in range(10):
        timed(broker, b"%d" % number, TIMER_DELIVER_MS=START_MS + 5050 + number * 100)
    let(broker, 5.5)
    assert len(bodies(broker)) == 5
    broker.shift_ms = -HOUR_MS
    let(broker, 0.5)
    timed(broker, b"new", TIMER_DELAY_SEC=3)
    let(broker, 15, 0.1)
    assert bodies(broker) == [b"0", b"1", b"2", b"3", b"4", b"new"]
    hours_later(broker, 1)
    all_of_it = [b"%d" % number for number in range(10)]
    assert bodies(broker) == [*all_of_it[:5], b"new", *all_of_it]


def test_what_came_too_early_and_is_cut_off_comes_again(broker: BrokerInMemory) -> None:
    for number in range(5):
        timed(broker, b"%d" % number, TIMER_DELAY_SEC=600 + number)
    let(broker, 2)
    end = broker.store.end_offset
    broker.shift_ms = HOUR_MS
    let(broker, 15, 0.1)
    assert len(bodies(broker)) == 5
    broker.shift_ms = 0
    timed(broker, b"new", TIMER_DELAY_SEC=2)
    let(broker, 3)
    cut(broker, end)
    assert bodies(broker) == []
    hours_later(broker, 0.5)
    assert sorted(bodies(broker)) == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_start_with_a_clock_that_is_right_again(end: str) -> None:
    broker = BrokerInMemory()
    broker.shift_ms = HOUR_MS
    timed(broker, b"early", TIMER_DELAY_SEC=2)
    timed(broker, b"far", TIMER_DELAY_SEC=3600)
    let(broker, 6)
    assert bodies(broker) == [b"early"]
    files = broker.files
    if end == "stop":
        broker.stop()
    else:
        files = files.kill()
    clock = MemoryReactorClock()
    clock.advance(10)
    again = BrokerInMemory(files, clock=clock)
    timed(again, b"new", TIMER_DELAY_SEC=5)
    let(again, 7)
    assert bodies(again) == [b"early", b"new"]
    hours_later(again, 2.1)
    assert bodies(again) == [b"early", b"new", b"far"]


def test_a_week_back_is_gone_through_bit_by_bit(
    broker: BrokerInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    let(broker, 1)
    books = broker.broker[Timer].books
    wheel = books.files.wheel
    ahead = 6 * 24 * 3600
    books.go_to(START_MS + ahead * 1000)
    looked: list[int] = []
    following = wheel.next_time

    def counted(since: int, until: int) -> int | None:
        looked.append((until - since) // 1000)
        return following(since, until)

    monkeypatch.setattr(wheel, "next_time", counted)
    timed(broker, b"new", TIMER_DELAY_SEC=5)
    let(broker, 7)
    assert bodies(broker) == [b"new"]
    assert sum(looked) >= ahead
