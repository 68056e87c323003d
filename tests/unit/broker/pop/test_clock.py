"""Somebody sets the clock, or that of a client is wrong: nothing is hidden, and no request is held,
for much longer than it was meant to be."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from twisted.internet.testing import MemoryReactorClock

from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.pop import NotificationRequestHeader
from tests.support.broker import BrokerInMemory, ok
from tests.support.network import FakePeer
from tests.support.pops import Popper, pass_time

HOUR_MS = 3_600_000
AHEAD = pytest.mark.parametrize("ahead_ms", [60_000, 2 * HOUR_MS, 30 * 24 * HOUR_MS])
ORDERLY = pytest.mark.parametrize("order", [False, True])


def with_messages(*, order: bool = False, clock: int = 0) -> tuple[BrokerInMemory, Popper]:
    broker = BrokerInMemory()
    broker.add_topic("Topic", read_queue_nums=1, write_queue_nums=1)
    for number in range(3):
        ok(broker.send(b"%d" % number))
    broker.shift_ms = clock
    return broker, Popper(broker, order=order, invisible_time=10_000, max_msg_nums=3)


def seen(broker: BrokerInMemory, popper: Popper, seconds: int) -> list[bytes]:
    """All that is popped in a time, each acknowledged."""
    found: list[bytes] = []
    for _ in range(seconds):
        messages = popper.pop()
        popper.ack(*messages)
        found += [message.body for message in messages]
        pass_time(broker, 1)
    return found


@AHEAD
@ORDERLY
@pytest.mark.parametrize("taken_in", [False, True])
def test_popped_while_the_clock_was_ahead(ahead_ms: int, order: bool, taken_in: bool) -> None:
    """Its client is gone; the check point is read before the clock is right again, or then."""
    broker, popper = with_messages(order=order, clock=ahead_ms)
    assert popper.bodies() == [b"0", b"1", b"2"]
    if taken_in:
        pass_time(broker, 2)
    broker.shift_ms = 0
    assert seen(broker, popper, 8) == []
    assert sorted(seen(broker, popper, 12)) == [b"0", b"1", b"2"]
    assert seen(broker, popper, 20) == []


@ORDERLY
def test_what_is_acknowledged_once_the_clock_is_right(order: bool) -> None:
    broker, popper = with_messages(order=order, clock=HOUR_MS)
    messages = popper.pop()
    pass_time(broker, 2)
    broker.shift_ms = 0
    pass_time(broker, 2)
    popper.ack(*messages)
    assert seen(broker, popper, 30) == []


@ORDERLY
def test_hidden_for_another_time_while_the_clock_was_ahead(order: bool) -> None:
    broker, popper = with_messages(order=order)
    messages = popper.pop()
    broker.shift_ms = 2 * HOUR_MS
    for message in messages:
        popper.hide(message, 20_000)
    pass_time(broker, 2)
    broker.shift_ms = 0
    assert seen(broker, popper, 15) == []
    assert sorted(seen(broker, popper, 15)) == [b"0", b"1", b"2"]


@ORDERLY
def test_the_clock_of_the_next_master_is_behind(order: bool) -> None:
    broker, popper = with_messages(order=order, clock=2 * HOUR_MS)
    assert len(popper.pop()) == 3
    pass_time(broker, 2)
    broker.stop()
    clock = MemoryReactorClock()
    clock.advance(10)
    again = BrokerInMemory(broker.files, clock=clock)
    popper = Popper(again, order=order, invisible_time=10_000)
    assert sorted(seen(again, popper, 25)) == [b"0", b"1", b"2"]


def pop(broker: BrokerInMemory, peer: FakePeer, born_ms: int) -> RemotingCommand | None:
    popper = Popper(broker)
    popper.peer = peer
    return popper.ask(poll_time=15_000, born_time=born_ms)


def notify(broker: BrokerInMemory, peer: FakePeer, born_ms: int) -> RemotingCommand | None:
    header = NotificationRequestHeader(
        consumer_group="G", topic="Topic", queue_id=-1, poll_time=15_000, born_time=born_ms
    )
    return broker.request(RemotingCommand.request(RequestCode.NOTIFICATION, header), peer)


HELD = pytest.mark.parametrize("ask", [pop, notify])
Ask = Callable[[BrokerInMemory, FakePeer, int], RemotingCommand | None]


def without_messages() -> tuple[BrokerInMemory, FakePeer]:
    broker = BrokerInMemory()
    broker.add_topic("Topic", read_queue_nums=1, write_queue_nums=1)
    Popper(broker)
    return broker, FakePeer()


@HELD
def test_the_clock_of_a_client_is_ahead(ask: Ask) -> None:
    """It gives the request up after the time that it asks for; so does the broker."""
    broker, peer = without_messages()
    assert ask(broker, peer, broker.now_ms() + 10 * 60_000) is None
    pass_time(broker, 14)
    assert peer.replies == []
    pass_time(broker, 1)
    assert len(peer.replies) == 1


def test_one_that_was_woken_is_held_for_no_longer() -> None:
    broker, peer = without_messages()
    assert pop(broker, peer, broker.now_ms() + 10 * 60_000) is None
    pass_time(broker, 10)
    broker.offsets.was_reset.tell("G", "Topic", 0)
    pass_time(broker, 4)
    assert peer.replies == []
    pass_time(broker, 1)
    assert [reply.code for reply in peer.replies] == [ResponseCode.POLLING_TIMEOUT]


SET = pytest.mark.parametrize("shift_ms", [-2 * HOUR_MS, 2 * HOUR_MS])


@HELD
@SET
@pytest.mark.parametrize("is_woken", [False, True])
def test_the_clock_is_set_while_one_is_held(ask: Ask, shift_ms: int, is_woken: bool) -> None:
    """It is held for as long as it asked for: its client gives it up then."""
    broker, peer = without_messages()
    assert ask(broker, peer, broker.now_ms()) is None
    pass_time(broker, 5)
    broker.shift_ms = shift_ms
    pass_time(broker, 5)
    if is_woken:
        broker.offsets.was_reset.tell("G", "Topic", 0)
    pass_time(broker, 4)
    assert peer.replies == []
    pass_time(broker, 1)
    assert len(peer.replies) == 1


@SET
def test_a_message_that_comes_after_the_clock_was_set(shift_ms: int) -> None:
    broker, peer = without_messages()
    assert pop(broker, peer, broker.now_ms()) is None
    broker.shift_ms = shift_ms
    pass_time(broker, 5)
    ok(broker.send(b"one"))
    pass_time(broker, 1)
    assert [reply.code for reply in peer.replies] == [ResponseCode.SUCCESS]
