"""The log is cut: what was popped, and is dealt with behind that only, is popped again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.broker import BrokerInMemory, ok
from tests.support.pops import Popper, pass_time
from tests.support.timers import cut_between


def popping(*bodies: bytes) -> tuple[BrokerInMemory, Popper]:
    broker = BrokerInMemory()
    broker.add_topic("Topic", read_queue_nums=1, write_queue_nums=1)
    for body in bodies:
        ok(broker.send(body, properties={"UNIQ_KEY": body.decode()}))
    return broker, Popper(broker, invisible_time=5_000)


def ignored(popper: Popper) -> None:
    popper.pop()


def acknowledged(popper: Popper) -> None:
    popper.ack(*popper.pop())


def hidden(popper: Popper) -> None:
    """Its check point for the later time is cut off, and that the former one is done with it."""
    for message in popper.pop():
        popper.hide(message, 20_000)


def seen(broker: BrokerInMemory, popper: Popper, seconds: int = 20) -> list[bytes]:
    """All that is popped in a time, each acknowledged."""
    found = []
    for _ in range(seconds):
        messages = popper.pop()
        popper.ack(*messages)
        found += [message.body for message in messages]
        pass_time(broker, 1)
    return found


@pytest.mark.parametrize("late", [1, 300])
@pytest.mark.parametrize("then", [ignored, acknowledged, hidden])
def test_a_check_point_is_open_again(then: Callable[[Popper], None], late: int) -> None:
    broker, popper = popping(b"a", b"b")
    end = 0

    def until_popped(messages: list) -> list:
        nonlocal end
        end = broker.store.end_offset
        return messages

    pop = popper.pop
    popper.pop = lambda **fields: until_popped(pop(**fields))  # type: ignore[method-assign]
    then(popper)
    popper.pop = pop  # type: ignore[method-assign]
    broker.clock.advance(late)
    pass_time(broker, 10)
    assert broker.store.end_offset > end
    cut_between(broker, end)
    pass_time(broker, 10)
    assert sorted(set(seen(broker, popper))) == [b"a", b"b"]


def test_what_was_revived_again_behind_the_cut_comes_again() -> None:
    broker, popper = popping(b"a")
    popper.pop()
    pass_time(broker, 9)
    assert popper.bodies() == [b"a"], "its first revival"
    end = broker.store.end_offset
    pass_time(broker, 9)
    assert len(broker.consume("%RETRY%G_Topic")) == 2
    cut_between(broker, end)
    pass_time(broker, 10)
    assert b"a" in seen(broker, popper)


def test_what_was_popped_behind_the_cut_is_popped_again() -> None:
    broker, popper = popping(b"a", b"b")
    end = broker.store.end_offset
    assert popper.bodies() == [b"a", b"b"]
    pass_time(broker, 1)
    cut_between(broker, end)
    assert sorted(set(seen(broker, popper))) == [b"a", b"b"]


def test_what_was_acknowledged_in_front_of_the_cut_stays_so() -> None:
    broker, popper = popping(b"a", b"b", b"c")
    first, *_ = popper.pop()
    popper.ack(first)
    end = broker.store.end_offset
    pass_time(broker, 10)
    cut_between(broker, end)
    pass_time(broker, 10)
    assert sorted(seen(broker, popper)) == [b"b", b"c"]


def test_an_orderly_pop_of_what_was_in_no_queue_any_more_is_forgotten() -> None:
    """A broker that was killed has in its queues what its checkpoint says is confirmed, and in its
    file what was popped: acknowledged, that would pass over what takes those places."""
    broker, _ = popping(b"a")
    broker.clock.advance(1)
    confirmed = broker.store.dispatched_offset
    for body in (b"b", b"c"):
        ok(broker.send(body))
    popper = Popper(broker, order=True, invisible_time=50_000)
    popped = popper.pop()
    assert [message.body for message in popped] == [b"a", b"b", b"c"]
    (unit,) = broker.store.queue_units("Topic", 0, 2, 1)
    broker.stop()
    limited = BrokerInMemory(broker.files, started=False)
    limited.store.dispatch_limit = confirmed
    limited.start()
    assert limited.store.max_queue_offset("Topic", 0) == 1
    cut_between(limited, unit.position)
    limited.store.dispatch_limit = None
    limited.commit.confirmed()
    pass_time(limited, 1)
    again = Popper(limited, order=True, invisible_time=5_000)
    assert again.bodies() == [b"a", b"b"]


@pytest.mark.parametrize("back_ms", [30_000, 120_000, 3_600_000])
def test_the_clock_was_set_back_between_a_pop_and_its_revival(back_ms: int) -> None:
    """What the revive queue has of later is older by its clock."""
    broker = BrokerInMemory(broker={"revive_queue_num": 1})
    broker.add_topic("Topic", read_queue_nums=1, write_queue_nums=1)
    ok(broker.send(b"a", properties={"UNIQ_KEY": "a"}))
    popper = Popper(broker, invisible_time=5_000)
    assert popper.bodies() == [b"a"]
    pass_time(broker, 1)
    broker.shift_ms = -back_ms
    ok(broker.send(b"z", properties={"UNIQ_KEY": "z"}))
    popper.ack(*popper.pop())
    end = 0
    for _ in range(30):
        if broker.consume("%RETRY%G_Topic"):
            break
        end = broker.store.end_offset
        pass_time(broker, 1)
    assert len(broker.consume("%RETRY%G_Topic")) == 1
    pass_time(broker, 3)
    cut_between(broker, end)
    assert b"a" in seen(broker, popper, 20)
