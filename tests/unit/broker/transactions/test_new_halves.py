"""Half messages that are in no queue yet: what is kept of them in memory has a limit, and those
beyond it are dealt with as all others."""

from __future__ import annotations

import pytest

from rocketmq_tw.broker.transactions import new_halves
from tests.support.broker import BrokerInMemory, ok
from tests.support.traced_memory import traced_memory
from tests.support.transactions import begin, bodies, connect, end, let, questions

BODY_BYTES = 2_000


def waiting(broker: BrokerInMemory) -> int:
    """How many half messages the broker says are undecided."""
    figures = [m for m in broker.broker.metrics() if m.name == "rocketmq_half_messages"]
    return int(sum(figure.value for figure in figures))


@pytest.fixture(params=[0, 5_000])
def _little_room(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """None of the messages, or some of them, have room."""
    monkeypatch.setattr(new_halves, "_MOST_KEPT_BYTES", request.param)


@pytest.mark.usefixtures("_little_room")
def test_those_that_have_no_room_are_counted_and_decided() -> None:
    broker = BrokerInMemory()
    broker.store.dispatch_limit = broker.store.dispatched_offset
    sent = [begin(broker, b"%d" % number) for number in range(10)]
    broker.store.dispatch_limit = None
    broker.dispatcher.dispatch()
    let(broker, 1)
    assert waiting(broker) == 10
    for each in sent[:7]:
        ok(end(broker, each))
    let(broker, 1)
    assert waiting(broker) == 3
    assert sorted(bodies(broker)) == [b"%d" % number for number in range(7)]


@pytest.mark.usefixtures("_little_room")
def test_those_that_have_no_room_are_asked_about() -> None:
    broker = BrokerInMemory()
    producer = connect(broker)
    for number in range(10):
        begin(broker, b"%d" % number)
    let(broker, 5)
    assert questions(producer) == []
    let(broker, 40, step=0.5)
    assert {asked.msg_id for asked in questions(producer)} == {f"ID-{n}" for n in range(10)}
    assert waiting(broker) == 10


def test_many_that_are_in_no_queue_yet_take_bounded_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken = []
    for most in (1 << 30, 5 * BODY_BYTES):
        monkeypatch.setattr(new_halves, "_MOST_KEPT_BYTES", most)
        broker = BrokerInMemory()
        broker.store.dispatch_limit = broker.store.dispatched_offset
        with traced_memory() as traced:
            for number in range(100):
                begin(broker, b"%2d" % number * (BODY_BYTES // 2), UNIQ_KEY=f"ID-{number}")
            taken.append(traced.held)
    assert taken[1] < taken[0] - 90 * BODY_BYTES
