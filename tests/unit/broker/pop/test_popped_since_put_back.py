"""After a kill, groups that were put back or removed, and topics made anew, are where they were."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.broker import BrokerInMemory
from tests.support.killed_pops import cloned, committed, killed, popping, reset, send
from tests.support.pops import drain, pass_time

PutsBack = Callable[[BrokerInMemory, int], None]


@pytest.mark.parametrize("put_back", [reset, committed, cloned])
@pytest.mark.parametrize("written", [True, False])
def test_who_was_put_back_stays_there(put_back: PutsBack, written: bool) -> None:
    broker, popper = popping()
    send(broker, "a", "b", "c")
    for _ in range(3):
        popper.ack(*popper.pop(max_msg_nums=1))
    put_back(broker, 2)
    if written:
        pass_time(broker, 6)
    broker.clock.advance(0)
    assert drain(killed(broker)) == [b"b", b"c"]


@pytest.mark.parametrize("put_back", [reset, committed, cloned])
def test_who_was_put_back_in_front_of_what_is_written(put_back: PutsBack) -> None:
    broker, popper = popping()
    send(broker, "a", "b", "c")
    popper.ack(*popper.pop())
    pass_time(broker, 6)
    put_back(broker, 2)
    broker.clock.advance(0)
    assert drain(killed(broker)) == [b"b", b"c"]


@pytest.mark.parametrize("put_back", [reset, committed, cloned])
def test_who_went_on_after_that_goes_on(put_back: PutsBack) -> None:
    broker, popper = popping()
    send(broker, "a", "b", "c")
    popper.ack(*popper.pop())
    put_back(broker, 2)
    popped = popper.pop(max_msg_nums=1)
    assert [message.body for message in popped] == [b"b"]
    popper.ack(*popped)
    broker.clock.advance(0)
    assert drain(killed(broker)) == [b"c"]


def test_who_hides_a_message_longer_moves_nobody() -> None:
    """The group was put back in front of it since it was popped."""
    broker, popper = popping()
    send(broker, "a", "b")
    first, _ = popper.pop()
    reset(broker, 1)
    popper.hide(first, 60_000)
    assert drain(killed(broker)) == [b"a", b"b"]


def test_a_group_that_was_removed() -> None:
    broker, popper = popping()
    send(broker, "a")
    popper.ack(*popper.pop())
    for _ in broker.offsets.remove_group("G"):
        pass
    broker.clock.advance(0)
    assert drain(killed(broker)) == [b"a"]


def test_a_group_that_was_removed_and_began_again() -> None:
    broker, popper = popping()
    send(broker, "a", "b", "c")
    popper.ack(*popper.pop())
    pass_time(broker, 6)
    for _ in broker.offsets.remove_group("G"):
        pass
    popped = popper.pop(max_msg_nums=2)
    assert [message.body for message in popped] == [b"old", b"a"]
    popper.ack(*popped)
    broker.clock.advance(0)
    assert drain(killed(broker)) == [b"b", b"c"]


def test_a_topic_that_was_made_anew() -> None:
    broker, popper = popping()
    send(broker, "a", "b", "c")
    popper.ack(*popper.pop())
    for _ in broker.offsets.remove_topic("Topic"):
        pass
    broker.store.remove_topics(["Topic"])
    pass_time(broker, 1)
    send(broker, "new0", "new1", "new2", "new3", "new4")
    # Its file has the offset of the former one, 1.
    assert drain(killed(broker))[-4:] == [b"new1", b"new2", b"new3", b"new4"]


def test_a_shorter_topic_that_was_made_anew() -> None:
    broker, popper = popping()
    send(broker, *"abcdefgh")
    popper.ack(*popper.pop())
    pass_time(broker, 6)
    for _ in broker.offsets.remove_topic("Topic"):
        pass
    broker.store.remove_topics(["Topic"])
    send(broker, "new0", "new1")
    popped = popper.pop()
    assert [message.body for message in popped] == [b"new0", b"new1"]
    popper.ack(*popped)
    send(broker, "new2", "new3")
    # Its file has the offset of the former one, 9.
    assert drain(killed(broker)) == [b"new2", b"new3"]
