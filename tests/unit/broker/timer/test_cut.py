"""The log is cut: what goes back follows from the timer's own files, not from what clients say."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.testing import MemoryReactorClock

from rocketmq_tw.broker.timer.part import Timer
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.message.properties import parse_properties
from tests.support.broker import BrokerInMemory
from tests.support.stores import START_MS
from tests.support.timers import Pair, bodies, cut, delivered, let, timed

#: Stock's mark of a message that it delivered without letting it wait.
NEVER = (1 << 63) - 1
SECONDS = [b"%d" % second for second in range(1, 9)]


def filled() -> tuple[BrokerInMemory, int]:
    """A broker that has delivered all but the last of its messages; where its third delivery stands
    in the log."""
    broker = BrokerInMemory(MemoryFiles(), clock=MemoryReactorClock())
    for body in SECONDS:
        timed(broker, body, TIMER_DELAY_SEC=int(body), UNIQ_KEY=f"u{body.decode()}")
    timed(broker, b"late", TIMER_DELAY_SEC=14)
    let(broker, 9, 0.1)
    assert bodies(broker) == SECONDS
    (unit,) = broker.store.queue_units("Topic", 0, 2, 1)
    return broker, unit.position


def claims(out: object, enqueue: object, **others: object) -> dict[str, Any]:
    """Properties of a message that says it was delivered by a timer."""
    return {
        "TIMER_OUT_MS": out,
        "TIMER_ENQUEUE_MS": enqueue,
        "TIMER_DEQUEUE_MS": START_MS + 5000,
        "REAL_TOPIC": "Topic",
        "REAL_QID": "0",
        **others,
    }


@pytest.mark.parametrize(
    "properties",
    [
        claims(1, 1),
        claims(-5, -(1 << 62)),
        claims(NEVER, NEVER - 1),
        claims(START_MS, START_MS - 77),
        claims("abc", "def"),
        claims(START_MS, START_MS, UNIQ_KEY="u1"),
        claims(START_MS, NEVER, UNIQ_KEY="u1"),
        claims(START_MS - 86_400_000, NEVER, UNIQ_KEY="u1"),
        claims(1, 1, REAL_TOPIC="rmq_sys_wheel_timer"),
    ],
)
def test_what_clients_claim_moves_nothing(properties: dict[str, Any]) -> None:
    """A message behind the cut that says it was delivered, as one that an application copied."""
    broker, end = filled()
    timed(broker, b"claims", queue_id=1, **properties)
    cut(broker, end)
    let(broker, 8, 0.1)
    assert bodies(broker) == [*SECONDS, b"late"]


def test_a_copy_of_a_delivery_in_another_topic_moves_nothing() -> None:
    """As the retry of a message that a consumer gave back."""
    broker, end = filled()
    first = delivered(broker)[0]
    properties = parse_properties(first.properties)
    broker.send(first.body, topic="Other", properties=properties)
    cut(broker, end)
    let(broker, 8, 0.1)
    assert bodies(broker) == [*SECONDS, b"late"]


def test_new_messages_in_the_places_of_others_wait_like_any() -> None:
    """A slot was open at the stop; the entries in it stand before those that are cut off."""
    files, clock = MemoryFiles(), MemoryReactorClock()
    broker = BrokerInMemory(files, clock=clock)
    timed(broker, b"stays", TIMER_DELAY_MS=800)
    end = broker.store.end_offset
    for number in range(3):
        timed(broker, b"goes %d" % number, TIMER_DELAY_SEC=2 + number)
    let(broker, 0.1)
    broker.stop()
    broker = BrokerInMemory(files, clock=clock)
    cut(broker, end)
    for number in range(3):
        timed(broker, b"new %d" % number, TIMER_DELAY_SEC=3)
    let(broker, 0.5)
    files = broker.files.kill()
    broker = BrokerInMemory(files, clock=MemoryReactorClock())
    let(broker, 6)
    assert bodies(broker) == [b"stays", b"new 0", b"new 1", b"new 2"]


def test_a_roll_that_is_cut_off_comes_again() -> None:
    broker = BrokerInMemory(MemoryFiles(), clock=MemoryReactorClock(), timer_roll_window_slot=8)
    timed(broker, b"rolls", TIMER_DELAY_SEC=20, UNIQ_KEY="u")
    let(broker, 2, 0.1)
    end = broker.store.end_offset
    let(broker, 8, 0.1)
    assert broker.store.end_offset > end, "it has rolled"
    cut(broker, end)
    let(broker, 20, 0.1)
    assert bodies(broker) == [b"rolls"]


def test_a_roll_whose_slot_was_open_at_a_stop_and_that_is_cut_off_comes_again() -> None:
    files, clock = MemoryFiles(), MemoryReactorClock()
    settings: dict[str, Any] = {"timer_roll_window_slot": 8}
    broker = BrokerInMemory(files, clock=clock, **settings)
    timed(broker, b"rolls", TIMER_DELAY_SEC=20, UNIQ_KEY="u")
    let(broker, 8.5, 0.1)
    assert broker.broker[Timer].books.slot is not None, "its slot is open"
    broker.stop()
    end = broker.store.end_offset
    broker = BrokerInMemory(files, clock=clock, **settings)
    let(broker, 2, 0.1)
    assert broker.store.end_offset > end, "it has rolled"
    cut(broker, end)
    let(broker, 20, 0.1)
    assert bodies(broker) == [b"rolls"]


def test_what_a_slave_never_let_in_is_delivered_by_it() -> None:
    """It heard of its master when that had delivered the message; then its delivery is cut off."""
    pair = Pair()
    timed(pair.master, b"before", TIMER_DELAY_MS=200, UNIQ_KEY="u0")
    let(pair.master, 0.5)
    timed(pair.master, b"short", TIMER_DELAY_MS=700, UNIQ_KEY="u1")
    let(pair.master, 0.2)
    end = pair.master.store.end_offset
    let(pair.master, 2)
    pair.copy()
    assert bodies(pair.slave) == [b"before", b"short"]
    slave = pair.take_over()
    cut(slave, end)
    let(slave, 3)
    assert bodies(slave) == [b"before", b"short"]


def test_what_is_in_no_queue_yet_is_delivered_by_a_slave() -> None:
    """It heard of its master when that had delivered the message; the delivery is cut off before
    the slave has either in a queue."""
    pair = Pair()
    timed(pair.master, b"before", TIMER_DELAY_MS=200, UNIQ_KEY="u0")
    let(pair.master, 0.5)
    pair.copy()
    pair.slave.store.dispatch_limit = pair.slave.store.dispatched_offset
    timed(pair.master, b"short", TIMER_DELAY_MS=700, UNIQ_KEY="u1")
    let(pair.master, 0.2)
    end = pair.master.store.end_offset
    let(pair.master, 2)
    pair.copy()
    cut(pair.slave, end)
    pair.slave.store.dispatch_limit = None
    slave = pair.take_over()
    let(slave, 3)
    assert bodies(slave) == [b"before", b"short"]
