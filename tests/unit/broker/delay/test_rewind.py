"""The log is cut: what a level delivered behind that waits again."""

from __future__ import annotations

import pytest
from twisted.internet.testing import MemoryReactorClock

from rocketmq_tw.files.memory import MemoryFiles
from tests.support.broker import BrokerInMemory, ok
from tests.support.timers import bodies, cut_between, let

BODIES = [b"%d" % number for number in range(6)]


def waiting(level: str = "2") -> BrokerInMemory:
    broker = BrokerInMemory(MemoryFiles(), clock=MemoryReactorClock())
    for body in BODIES:
        ok(broker.send(body, properties={"DELAY": level}))
        let(broker, 1)
    return broker


def position(broker: BrokerInMemory, topic: str, queue_id: int, offset: int) -> int:
    (unit,) = broker.store.queue_units(topic, queue_id, offset, 1)
    return unit.position


def test_what_was_delivered_behind_the_cut_comes_again() -> None:
    broker = waiting()
    let(broker, 8)
    assert bodies(broker) == BODIES
    cut_between(broker, position(broker, "Topic", 0, 3))
    let(broker, 1)
    assert bodies(broker)[:3] == BODIES[:3]
    assert bodies(broker)[-3:] == BODIES[3:]
    assert len(bodies(broker)) <= len(BODIES) + 1, "one may come twice"


def test_what_was_delivered_late_comes_again() -> None:
    """A start after a long time delivers what was due long ago."""
    broker = waiting("5")
    broker.stop()
    broker.clock.advance(1000)
    again = BrokerInMemory(broker.files, clock=broker.clock)
    let(again, 1)
    assert bodies(again) == BODIES
    cut_between(again, position(again, "Topic", 0, 2))
    let(again, 1)
    assert bodies(again) == BODIES, "each once"


def test_what_waited_behind_the_cut_too_is_gone() -> None:
    broker = waiting("1")
    let(broker, 8)
    assert bodies(broker) == BODIES
    cut_between(broker, position(broker, "SCHEDULE_TOPIC_XXXX", 0, 3))
    let(broker, 1)
    ok(broker.send(b"new", properties={"DELAY": "1"}))
    let(broker, 2)
    came = bodies(broker)
    assert set(came) == {*BODIES[:3], b"new"} and came.count(b"new") == 1


@pytest.mark.parametrize("delay", ["x", "-1", "99", "2"])
def test_what_clients_claim_loses_nothing(delay: str) -> None:
    broker = waiting()
    let(broker, 8)
    end = position(broker, "Topic", 0, 4)
    claims = {"REAL_TOPIC": "Other", "REAL_QID": "0", "DELAY": delay}
    broker.send(b"claims", properties=claims, queue_id=1)
    cut_between(broker, end)
    let(broker, 8)
    assert set(bodies(broker)) == set(BODIES)
