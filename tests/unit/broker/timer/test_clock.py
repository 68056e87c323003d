"""Somebody sets the clock: nothing is lost, what is
sent then comes in time, and only a slot that was at hand comes twice."""

from __future__ import annotations

import pytest
from twisted.internet.testing import MemoryReactorClock

from rocketmq_tw.broker.timer.part import Timer
from rocketmq_tw.broker.timer.rewind import empty_slots
from rocketmq_tw.store.timer.wheel import Slot
from tests.support.broker import BrokerInMemory
from tests.support.stores import START_MS
from tests.support.timers import Pair, bodies, cut, delivered, let, timed

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


@pytest.fixture
def broker() -> BrokerInMemory:
    return BrokerInMemory()


def hours_later(broker: BrokerInMemory, hours: float) -> None:
    """By the true time, in steps that are long."""
    let(broker, hours * 3600, 20)


def started_off(broker: BrokerInMemory, off_ms: int) -> BrokerInMemory:
    """The stopped broker, started a little later by a clock that goes wrong by that much."""
    clock = MemoryReactorClock()
    clock.advance(broker.clock.seconds() + 5 + off_ms / 1000)
    return BrokerInMemory(broker.files, clock=clock)


def started_again(broker: BrokerInMemory, end: str) -> BrokerInMemory:
    """The broker after a stop or a kill."""
    files = broker.files
    if end == "kill":
        files = files.kill()
    else:
        broker.stop()
    if end == "no wheel":
        files.remove(f"{broker.store.paths.root}/timerwheel")
    clock = MemoryReactorClock()
    clock.advance(broker.clock.seconds())
    return BrokerInMemory(files, clock=clock)


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


@pytest.mark.parametrize(
    ("back_ms", "precision_ms"),
    [(13 * DAY_MS, 1000), (15 * DAY_MS, 1000), (30 * DAY_MS, 1000), (36 * HOUR_MS, 100)],
)
def test_a_round_back_and_right_again(back_ms: int, precision_ms: int) -> None:
    """The wheel has the times of one round only; those of others are waited for all the same."""
    broker = BrokerInMemory(timer_precision_ms=precision_ms)
    timed(broker, b"soon", TIMER_DELAY_SEC=60)
    timed(broker, b"hour", TIMER_DELAY_SEC=3600)
    let(broker, 2, 0.1)
    broker.shift_ms = -back_ms
    timed(broker, b"new", TIMER_DELAY_SEC=5)
    let(broker, 15 * 60, 5)
    assert bodies(broker) == [b"new"]
    broker.shift_ms = 0
    let(broker, 30, 0.5)
    assert bodies(broker) == [b"new", b"soon"]
    hours_later(broker, 0.8)
    assert bodies(broker) == [b"new", b"soon", b"hour"]
    assert broker.broker[Timer].books.waiting == 0


def test_a_start_long_before_and_right_again() -> None:
    """A clock that begins with the year 2000, until the time comes from the network."""
    broker = BrokerInMemory()
    timed(broker, b"soon", TIMER_DELAY_SEC=60)
    timed(broker, b"hour", TIMER_DELAY_SEC=3600)
    let(broker, 2, 0.1)
    broker.stop()
    again = started_off(broker, -23 * 365 * DAY_MS)
    let(again, 3, 0.1)
    timed(again, b"new", TIMER_DELAY_SEC=5)
    let(again, 60, 5)
    assert bodies(again) == [b"new"]
    again.shift_ms = 23 * 365 * DAY_MS
    let(again, 30, 0.5)
    assert bodies(again) == [b"new", b"soon"]
    hours_later(again, 1)
    assert bodies(again) == [b"new", b"soon", b"hour"]


@pytest.mark.parametrize("ahead_ms", [14 * DAY_MS, 28 * DAY_MS])
@pytest.mark.parametrize("end", [None, "stop", "kill", "no wheel"])
def test_rounds_ahead_and_back_again(ahead_ms: int, end: str | None) -> None:
    """What has the same place of the wheel in another round does not displace what is sent."""
    broker = BrokerInMemory()
    broker.shift_ms = ahead_ms
    for number in range(30):
        timed(broker, b"ahead %d" % number, TIMER_DELAY_SEC=600 + number)
    let(broker, 3, 0.1)
    broker.shift_ms = 0
    let(broker, 5, 0.1)
    wanted = [b"%d" % number for number in range(30)]
    for number in range(30):
        timed(broker, wanted[number], TIMER_DELAY_SEC=592 + number)
    let(broker, 2, 0.1)
    if end is not None:
        broker = started_again(broker, end)
    let(broker, 640, 1)
    assert bodies(broker) == wanted
    last = delivered(broker)[-1].store_timestamp
    assert 0 <= last - (START_MS + 8_000 + 621_000) <= 1_000
    broker.shift_ms = ahead_ms
    let(broker, 60, 1)
    ahead = [b"ahead %d" % number for number in range(30)]
    assert sorted(bodies(broker)[30:]) == sorted(ahead)
    assert broker.broker[Timer].books.waiting == 0
    assert broker.broker[Timer].books.counts.of("Topic") == 0


def test_what_is_for_the_place_of_something_late(broker: BrokerInMemory) -> None:
    """The clock is set ahead by a round: a message for the next round of a slot that is late by
    that comes before the slot is delivered."""
    timed(broker, b"late", TIMER_DELAY_SEC=600)
    let(broker, 2, 0.1)
    broker.shift_ms = 14 * DAY_MS
    timed(broker, b"new", TIMER_DELAY_SEC=598)
    let(broker, 60, 0.1)
    assert bodies(broker) == [b"late"]
    let(broker, 600, 1)
    assert bodies(broker) == [b"late", b"new"]


@pytest.mark.parametrize("days", [6, 8, 30])
def test_a_start_after_many_days(days: int) -> None:
    """What has come to its time meanwhile is delivered, however long that was."""
    broker = BrokerInMemory()
    for minutes in (10, 600):
        timed(broker, b"%d" % minutes, TIMER_DELAY_SEC=60 * minutes)
    let(broker, 2, 0.1)
    broker.stop()
    again = started_off(broker, days * DAY_MS)
    let(again, 5, 0.1)
    assert bodies(again) == [b"10", b"600"]


def test_what_was_that_late_and_is_cut_off_comes_again() -> None:
    broker = BrokerInMemory()
    for minutes in (10, 600):
        timed(broker, b"%d" % minutes, TIMER_DELAY_SEC=60 * minutes)
    let(broker, 2, 0.1)
    broker.stop()
    again = started_off(broker, 0)
    let(again, 1, 0.1)
    end = again.store.end_offset
    again.shift_ms = 8 * DAY_MS
    let(again, 12, 0.1)
    assert bodies(again) == [b"10", b"600"]
    cut(again, end)
    let(again, 12, 0.1)
    assert bodies(again) == [b"10", b"600"]


@pytest.mark.parametrize("days", [6, 8, 8000])
def test_what_a_clock_that_was_behind_delivered_and_is_cut_off_comes_again(
    broker: BrokerInMemory, days: int
) -> None:
    broker.shift_ms = -days * DAY_MS
    for number in range(3):
        timed(broker, b"%d" % number, TIMER_DELAY_SEC=5 + number)
    let(broker, 2, 0.1)
    end = broker.store.end_offset
    let(broker, 10, 0.1)
    assert bodies(broker) == [b"0", b"1", b"2"]
    broker.shift_ms = 0
    let(broker, 12, 0.1)
    cut(broker, end)
    let(broker, 12, 0.1)
    assert bodies(broker) == [b"0", b"1", b"2"]


@pytest.mark.parametrize("ahead_ms", [0, 300_000, HOUR_MS, 30 * DAY_MS])
def test_a_slave_goes_back_with_its_master(ahead_ms: int) -> None:
    """What the master delivered too early, or since, does not come again from the slave."""
    pair = Pair()
    timed(pair.master, b"early", TIMER_DELAY_SEC=200)
    let(pair.master, 2, 0.1)
    pair.copy()
    pair.master.shift_ms = pair.slave.shift_ms = ahead_ms
    for _ in range(3):
        let(pair.master, 5, 0.1)
        pair.copy()
    pair.master.shift_ms = pair.slave.shift_ms = 0
    let(pair.master, 1, 0.1)
    timed(pair.master, b"now", TIMER_DELAY_SEC=5)
    for _ in range(3):
        let(pair.master, 3, 0.1)
        pair.copy()
    books = pair.slave.broker[Timer].books
    assert books.master_queue_offset == 2
    assert abs(books.read_ms - pair.master.now_ms()) <= 2_000
    slave = pair.take_over()
    timed(slave, b"new", TIMER_DELAY_SEC=2)
    let(slave, 240, 0.5)
    assert sorted(bodies(slave)) == [b"early", b"new", b"now"]
    assert books.waiting == 0


def test_slots_that_came_too_early_are_emptied_bit_by_bit(broker: BrokerInMemory) -> None:
    books = broker.broker[Timer].books
    for seconds in range(5_000):
        books.files.wheel.put(START_MS + seconds * 1000, Slot(0, 0, 1))
    books.go_to(START_MS + 4_000_000)
    steps = list(empty_slots(books, START_MS))
    assert len(steps) >= 4
    assert books.read_ms == START_MS
    waiting = dict(books.files.wheel.waiting(START_MS))
    assert sorted(waiting) == [START_MS + seconds * 1000 for seconds in range(4_000, 5_000)]
