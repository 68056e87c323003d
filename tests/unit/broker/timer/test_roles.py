"""Masters and slaves: only a master delivers, and the next master goes on where it was."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from rocketmq_tw.broker.role.state import Role, RoleState
from rocketmq_tw.broker.timer.part import Timer
from rocketmq_tw.message.names import TIMER_TOPIC
from tests.support.broker import BrokerInMemory
from tests.support.stores import START_MS
from tests.support.timers import Pair, bodies, cut, delivered, let, stop_delivering, timed


def test_a_slave_fills_its_wheel_and_delivers_nothing() -> None:
    pair = Pair()
    timed(pair.master, b"one", TIMER_DELAY_SEC=5)
    pair.copy()
    part = pair.slave.broker[Timer]
    assert part.books.files.number(START_MS + 4000) == 1
    let(pair.slave, 4)
    stop_delivering(pair.master)
    let(pair.slave, 10)
    assert bodies(pair.slave) == []


def test_a_slave_goes_no_further_than_its_master() -> None:
    pair = Pair()
    timed(pair.master, b"one", TIMER_DELAY_SEC=5)
    pair.copy()
    part = pair.slave.broker[Timer]
    part.books.master_queue_offset = 1
    timed(pair.master, b"two", TIMER_DELAY_SEC=5)
    store = pair.master.store
    data = store.read_log(pair.slave.store.written_offset, 1 << 16)
    pair.slave.commit.append_raw(pair.slave.store.written_offset, data)
    let(pair.slave, 0.1)
    assert part.books.files.number(START_MS + 4000) == 1


def test_who_takes_over_delivers_the_rest_once() -> None:
    pair = Pair()
    for second in range(1, 9):
        timed(pair.master, b"%d" % second, TIMER_DELAY_SEC=second)
    let(pair.master, 4.2)
    pair.copy()
    assert bodies(pair.slave) == [b"1", b"2", b"3", b"4"]
    slave = pair.take_over()
    let(slave, 8)
    assert sorted(bodies(slave)) == [b"%d" % second for second in range(1, 9)]


def test_what_the_master_had_not_told_yet_is_delivered() -> None:
    pair = Pair()
    timed(pair.master, b"told", TIMER_DELAY_SEC=3)
    pair.copy()
    let(pair.master, 1.5)
    timed(pair.master, b"not told", TIMER_DELAY_SEC=2)
    timed(pair.master, b"soon", TIMER_DELAY_MS=100)
    store, to = pair.master.store, pair.slave.store
    pair.slave.commit.append_raw(to.written_offset, store.read_log(to.written_offset, 1 << 16))
    slave = pair.take_over()
    let(slave, 6)
    assert sorted(bodies(slave)) == [b"not told", b"soon", b"told"]


def test_a_master_that_comes_back_delivers_what_the_other_one_left() -> None:
    """Isolated for a while, with a slot delivered in part: nothing comes twice."""
    broker = BrokerInMemory()
    for number in range(10):
        timed(broker, b"%d" % number, TIMER_DELIVER_MS=START_MS + 5050 + number * 100)
    let(broker, 5.5)
    broker.become(RoleState(Role.ISOLATED, 0))
    let(broker, 2)
    assert len(bodies(broker)) == 5
    broker.become(RoleState(Role.MASTER, 0))
    let(broker, 2)
    assert bodies(broker) == [b"%d" % number for number in range(10)]
    broker.stop()


def test_who_takes_over_as_a_master_is_back_from_a_stop_inside_a_slot() -> None:
    pair = Pair()
    timed(pair.master, b"left", TIMER_DELIVER_MS=START_MS + 5700, UNIQ_KEY="left")
    for number in range(3):
        timed(pair.master, b"%d" % number, TIMER_DELIVER_MS=START_MS + 20_000, UNIQ_KEY=f"{number}")
    pair.copy()
    let(pair.slave, 5.3, 0.05)
    pair.copy()
    pair.master.stop()
    pair.master = BrokerInMemory(pair.master.files, clock=pair.clock)
    let(pair.slave, 0.1, 0.05)
    pair.copy()
    slave = pair.take_over()
    let(slave, 30, 0.05)
    assert bodies(slave) == [b"left", b"0", b"1", b"2"]


@pytest.mark.parametrize("seed", range(8))
def test_whoever_takes_over_whenever_and_is_cut_loses_nothing(seed: int) -> None:
    dice = random.Random(seed)
    pair = Pair()
    dues: dict[bytes, int] = {}
    for _ in range(dice.randrange(5, 25)):
        what = dice.randrange(20)
        if what < 10:
            for _ in range(dice.randrange(1, 6)):
                body, delay = b"%d" % len(dues), dice.choice([5, 120, 700, 1500, 2500, 4000])
                dues[body] = pair.master.now_ms() + delay
                timed(pair.master, body, TIMER_DELAY_MS=delay, UNIQ_KEY=body.decode())
        elif what < 14:
            pair.copy_log()
        elif what < 17:
            pair.copy()
        else:
            let(pair.master, dice.choice([0.1, 0.5, 1, 2.3]), 0.05)
    pair.copy_log()
    slave = pair.take_over()
    places = [head.physical_offset for head in slave.store.records(0)]
    if places and dice.random() < 0.7:
        cut(slave, dice.choice(places[len(places) // 2 :]))
    there = {message.body for message in delivered(slave, TIMER_TOPIC)}
    let(slave, 6, 0.05)
    messages = delivered(slave)
    assert there <= {message.body for message in messages}
    assert all(message.store_timestamp >= dues[message.body] for message in messages)
    # The one before delivered it; then a slot was at hand twice.
    assert max(Counter(message.body for message in messages).values(), default=0) <= 3
