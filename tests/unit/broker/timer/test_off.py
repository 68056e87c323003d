"""Brokers without a timer of their own (timerWheelEnable=false)."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.testing import MemoryReactorClock

from rocketmq_tw.broker.timer.part import Timer
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from tests.support.broker import BrokerInMemory
from tests.support.timers import Pair, bodies, let, timed


def again(broker: BrokerInMemory, **store: Any) -> BrokerInMemory:
    broker.stop()
    clock = MemoryReactorClock()
    clock.advance(broker.clock.seconds())
    return BrokerInMemory(broker.files, clock=clock, **store)


def test_they_leave_what_waits_to_the_next_start_with_one() -> None:
    broker = BrokerInMemory()
    timed(broker, b"one", TIMER_DELAY_SEC=3)
    let(broker, 1)
    broker = again(broker, timer_wheel_enable=False)
    let(broker, 10)
    figures = {each.name: each.value for each in broker.broker[Timer].metrics()}
    assert figures["rocketmq_timer_dequeue_latency"] == figures["rocketmq_timer_enqueue_lag"] == 0
    assert bodies(broker) == []
    broker = again(broker)
    let(broker, 3)
    assert bodies(broker) == [b"one"]


@pytest.mark.parametrize("code", [RequestCode.GET_TIMER_METRICS, RequestCode.GET_TIMER_CHECK_POINT])
def test_they_tell_of_none(code: int) -> None:
    answer = BrokerInMemory(timer_wheel_enable=False).request(RemotingCommand.request(code))
    assert answer is not None
    assert answer.code == ResponseCode.SYSTEM_ERROR and "no timer" in str(answer.remark)


def test_a_slave_keeps_its_masters_checkpoint() -> None:
    pair = Pair()
    timed(pair.master, b"one", TIMER_DELAY_SEC=3)
    let(pair.master, 1)
    pair.copy()
    told = pair.master.timer.checkpoint
    slave = BrokerInMemory(timer_wheel_enable=False)
    assert told is not None and slave.timer.checkpoint is None
    slave.timer.follow(told)
    slave = again(slave, timer_wheel_enable=False)
    kept = slave.timer.checkpoint
    assert kept is not None
    assert (kept.read_ms, kept.master_queue_offset) == (told.read_ms, told.master_queue_offset)
