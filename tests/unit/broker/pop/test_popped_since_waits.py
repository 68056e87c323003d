"""Pops wait until the log has said what groups popped before a kill."""

from __future__ import annotations

from twisted.internet.testing import MemoryReactorClock

from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.wire.codes import ResponseCode
from tests.support.broker import BrokerInMemory
from tests.support.killed_pops import popping, send
from tests.support.pops import Popper, pass_time


def still_reading(
    broker: BrokerInMemory, confirmed: int, clock: MemoryReactorClock
) -> BrokerInMemory:
    """The broker started again after a kill -9, on a clock, and what is behind `confirmed` in its
    log not read yet."""
    assert isinstance(broker.files, MemoryFiles)
    again = BrokerInMemory(broker.files.kill(), clock=clock, started=False)
    again.store.dispatch_limit = confirmed
    again.start()
    return again


def test_pops_wait_until_the_log_is_read() -> None:
    broker, popper = popping()
    confirmed = broker.store.end_offset
    send(broker, "a")
    popper.ack(*popper.pop())
    send(broker, "new")
    clock = MemoryReactorClock()
    clock.advance(broker.clock.seconds())
    again = still_reading(broker, confirmed, clock)
    waiting = Popper(again, poll_time=1000)
    assert waiting.ask() is None
    again.store.dispatch_limit = None
    again.commit.confirmed()
    pass_time(again, 0.25)
    (answer,) = waiting.peer.replies
    assert [message.body for message in waiting.messages(answer)] == [b"new"]


def test_pops_that_wait_are_refused_when_the_role_is_over() -> None:
    broker, _ = popping()
    confirmed = broker.store.end_offset
    send(broker, "a")
    again = still_reading(broker, confirmed, MemoryReactorClock())
    waiting = Popper(again, poll_time=1000)
    assert waiting.ask() is None
    again.store.dispatch_limit = None
    again.stop()
    (answer,) = waiting.peer.replies
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE


def test_pops_that_wait_end_with_their_time_or_their_client() -> None:
    broker, _ = popping()
    confirmed = broker.store.end_offset
    send(broker, "a")
    again = still_reading(broker, confirmed, MemoryReactorClock())
    lost, waiting = Popper(again, poll_time=60_000), Popper(again, poll_time=1000)
    assert lost.ask() is None and waiting.ask() is None
    lost.peer.lose()
    pass_time(again, 1.25)
    (answer,) = waiting.peer.replies
    assert answer.code == ResponseCode.POLLING_TIMEOUT
    assert Popper(again).pop() == []
