"""Clients where the time of day is set: their reactor is one of Twisted's, which counts by it."""

import time

import pytest

from rocketmq_tw.client.message import Message
from rocketmq_tw.client.settings import StartFrom
from rocketmq_tw.wire.bodies.queues import MessageQueue
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.errors import RequestError
from tests.support.machine_clock import MachineClock

HOUR = 3600.0


@pytest.fixture
def machine(world, monkeypatch):
    machine = MachineClock(monkeypatch)
    world.clock.seconds = time.time
    world.client_clock = world.clock
    return machine


def wait(world, machine, seconds):
    for _ in range(int(seconds * 10)):
        machine.pass_by(0.1)
        world.clock.advance(0)


@pytest.mark.parametrize("set_by", [-HOUR, HOUR])
def test_heartbeats_go_on(world, machine, set_by) -> None:
    consumer = world.push_consumer(lambda message: None)
    world.run(consumer.start())
    beats = world.record(RequestCode.HEART_BEAT)
    machine.set_by(set_by)
    wait(world, machine, 91)
    assert len(beats) == 3


def test_a_send_without_an_answer_ends_in_time(world, machine) -> None:
    producer = world.producer(retries=0)
    world.run(producer.start())
    world.run(producer.send(Message("T", b"x")))
    world.answer(RequestCode.SEND_MESSAGE_V2, lambda request, peer: None)
    failed = []
    producer.send(Message("T", b"y"), timeout=3).addErrback(failed.append)
    machine.set_by(-HOUR)
    wait(world, machine, 4)
    assert failed


def test_a_lock_that_is_not_renewed_is_over_in_time(world, machine) -> None:
    def refuse(request, peer):
        raise RequestError(ResponseCode.SYSTEM_ERROR, "no")

    got = []
    consumer = world.push_consumer(
        lambda message: got.append(message.body), orderly=True, start_from=StartFrom.FIRST
    )
    world.run(consumer.start())
    world.answer(RequestCode.LOCK_BATCH_MQ, refuse)
    machine.set_by(-HOUR)
    wait(world, machine, 31)
    queue = MessageQueue(topic="T", broker_name="broker-a", queue_id=0)
    world.run(world.producer().send(Message("T", b"x"), queue=queue))
    wait(world, machine, 5)
    assert got == [], "the broker may have given the queue to another member"
