"""Disks that refuse, keys that stop the timer, and very many messages."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.testing import MemoryReactorClock
from twisted.logger import capturedLogs

from rocketmq_tw.broker.timer.intake import TimerIntake
from rocketmq_tw.broker.timer.part import Timer
from rocketmq_tw.broker.timer.slots import DueSlot
from rocketmq_tw.broker.timer.work import DeliveringTimer
from rocketmq_tw.files.faulty import Fault, FaultyFiles
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.message.properties import parse_properties
from rocketmq_tw.store.timer.unit import DEFAULT, NOWHERE, TimerUnit
from rocketmq_tw.store.timer.wheel import Slot
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.send import RecallMessageRequestHeader
from rocketmq_tw.wire.headers.topics import DeleteTopicRequestHeader
from tests.support.broker import BrokerInMemory, ok
from tests.support.stores import START_MS
from tests.support.timers import bodies, delivered, let, timed


def test_a_delivery_that_is_refused_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = BrokerInMemory()
    for number in range(5):
        timed(broker, b"%d" % number, TIMER_DELAY_SEC=1)
    let(broker, 0.5)
    append = broker.commit.append

    def refuse(*arguments: Any, **options: Any) -> None:
        raise RequestError(ResponseCode.SERVICE_NOT_AVAILABLE, "no")

    monkeypatch.setattr(broker.commit, "append", refuse)
    let(broker, 10, 0.05)
    monkeypatch.setattr(broker.commit, "append", append)
    let(broker, 2, 0.05)
    assert sorted(bodies(broker)) == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("path", ["timerlog", "timerwheel", "timercheck"])
def test_files_that_cannot_be_written_for_a_while(path: str) -> None:
    memory = MemoryFiles()
    files = FaultyFiles(memory)
    broker = BrokerInMemory(files)
    let(broker, 2, 0.1)
    files.faults += [Fault("pwrite", path) for _ in range(4)]
    for second in (1, 10, 20):
        timed(broker, b"%d" % second, TIMER_DELAY_SEC=second)
    let(broker, 12, 0.1)
    files.faults.clear()
    let(broker, 3, 0.1)
    clock = MemoryReactorClock()
    clock.advance(broker.clock.seconds())
    again = BrokerInMemory(memory.kill(), clock=clock)
    let(again, 10, 0.1)
    assert sorted(bodies(again)) == [b"1", b"10", b"20"]


def test_keys_that_stop_it() -> None:
    broker = BrokerInMemory(timer_stop_dequeue=True)
    timed(broker, b"one", TIMER_DELAY_SEC=1)
    let(broker, 15, 0.1)
    assert bodies(broker) == []
    assert broker.broker[Timer].books.files.number(START_MS) == 1
    broker = BrokerInMemory(timer_stop_enqueue=True)
    timed(broker, b"one", TIMER_DELAY_SEC=1)
    let(broker, 5, 0.1)
    assert broker.broker[Timer].runtime_info()["timerOffsetBehind"] == "1"
    figures = {each.name: each.value for each in broker.broker[Timer].metrics()}
    assert figures["rocketmq_timer_enqueue_lag"] == 1
    waits = figures["rocketmq_timer_enqueue_latency"]
    assert isinstance(waits, int) and 500 <= waits <= 10_000


def test_a_million_that_wait_cost_a_tick_nothing() -> None:
    """A look at the time reads a few slots, whatever waits."""
    broker = BrokerInMemory()
    part = broker.broker[Timer]
    wheel = part.books.files.wheel
    for second in range(60, 260_000):
        wheel.put(START_MS + second * 1000, Slot(0, 0, 4))
    looked: list[int] = []
    get, following = wheel.get, wheel.next_time

    def counted(since: int, until: int) -> int | None:
        found = following(since, until)
        looked.append(((found or until) - since) // 1000)
        return found

    wheel.get = lambda time_ms: looked.append(1) or get(time_ms)
    wheel.next_time = counted
    timed(broker, b"one", TIMER_DELAY_SEC=1)
    let(broker, 3)
    assert bodies(broker) == [b"one"]
    assert sum(looked) < 3_000


def test_a_slot_with_very_many_is_delivered_bit_by_bit() -> None:
    """Entries are read in a thread; each turn of the reactor delivers 256."""
    broker = BrokerInMemory()
    part = broker.broker[Timer]
    timed(broker, b"one", TIMER_DELAY_SEC=5)
    (unit,) = broker.store.queue_units("rmq_sys_wheel_timer", 0, 0, 1)
    for _ in range(2_000):
        part.books.files.add(
            TimerUnit(NOWHERE, DEFAULT, START_MS, START_MS + 4999, unit.position, unit.size, 0),
            START_MS,
        )
    let(broker, 0)
    work = part.engine.work
    assert isinstance(work, DeliveringTimer)
    delivery = work.delivery
    assert delivery is not None
    deliver, sizes = delivery._deliver, []

    def counted(slot: DueSlot, positions: list[int]) -> None:
        sizes.append(len(positions))
        deliver(slot, positions)

    delivery._deliver = counted
    let(broker, 7, 0.1)
    assert len(bodies(broker)) == sum(sizes) == 2_001
    assert max(sizes) <= 256


def test_a_slot_waits_for_no_more_than_what_was_sent_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where messages come all the time, something is always behind."""
    broker = BrokerInMemory()
    monkeypatch.setattr(TimerIntake, "is_behind", property(lambda self: True))
    for second in range(1, 5):
        timed(broker, b"%d" % second, TIMER_DELAY_SEC=second)
    let(broker, 5)
    assert bodies(broker) == [b"1", b"2", b"3", b"4"]


def test_the_topic_is_deleted_while_messages_wait_for_it() -> None:
    broker = BrokerInMemory()
    for number in range(3):
        timed(broker, b"%d" % number, TIMER_DELAY_SEC=3)
    broker.send(b"other", topic="Other", properties={"TIMER_DELAY_SEC": "4"})
    header = DeleteTopicRequestHeader(topic="Topic")
    broker.ask(RequestCode.DELETE_TOPIC_IN_BROKER, header)
    let(broker, 6, 0.05)
    assert bodies(broker, "Other") == [b"other"]
    assert broker.topics.get("Topic") is None
    assert broker.broker[Timer].runtime_info()["timerCongestNum"] == "0"


def test_a_disk_that_is_full_for_a_while() -> None:
    """Neither lets in, delivers or keeps anything; then all comes, once."""
    memory = MemoryFiles()
    files = FaultyFiles(memory)
    broker = BrokerInMemory(files)
    for second in range(1, 20):
        timed(broker, b"%d" % second, TIMER_DELAY_SEC=second)
    let(broker, 4.5, 0.1)
    files.room = 0
    let(broker, 6, 0.1)
    assert timed(broker, b"refused", TIMER_DELAY_SEC=3).code != ResponseCode.SUCCESS
    files.room = None
    let(broker, 14, 0.1)
    expected = [b"%d" % second for second in range(1, 20)]
    assert sorted(bodies(broker), key=int) == expected
    broker.stop()
    clock = MemoryReactorClock()
    clock.advance(broker.clock.seconds())
    again = BrokerInMemory(memory, clock=clock)
    let(again, 5, 0.1)
    assert sorted(bodies(again), key=int) == expected


def test_messages_that_the_commit_log_lost_are_told_of_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As where a disk that was full made it remove files that were not old enough."""
    broker = BrokerInMemory()
    for _ in range(300):
        timed(broker, b"gone", TIMER_DELAY_SEC=3)
    timed(broker, b"there", TIMER_DELAY_SEC=5)
    (last,) = broker.store.queue_units("rmq_sys_wheel_timer", 0, 300, 1)
    found = broker.store.message_at
    monkeypatch.setattr(
        broker.store, "message_at", lambda at: found(at) if at >= last.position else None
    )
    with capturedLogs() as logs:
        let(broker, 6, 0.1)
    assert bodies(broker) == [b"there"]
    told = [event["count"] for event in logs if "are lost" in str(event.get("log_format"))]
    assert told == [300]


def test_what_waits_is_written_anew_before_the_log_may_lose_it() -> None:
    """A message of a day outlives a commit log that is kept for an hour."""
    broker = BrokerInMemory(file_reserved_time=1)
    timed(broker, b"one", TIMER_DELAY_SEC=4 * 3600)
    let(broker, 4 * 3600 + 2, 1)
    (one,) = delivered(broker)
    assert int(parse_properties(one.properties)["TIMER_ROLL_TIMES"]) >= 4
    places = broker.store.queue_units("rmq_sys_wheel_timer", 0, 0, 100)
    stored = [broker.store.message_at(unit.position).store_timestamp for unit in places]
    ends = [*stored[1:], one.store_timestamp]
    assert max(end - begin for begin, end in zip(stored, ends, strict=True)) < 3_600_000


@pytest.mark.parametrize("path", ["commitlog", "timerlog"])
def test_messages_that_cannot_be_read_once_are_delivered_later(path: str) -> None:
    files = FaultyFiles(MemoryFiles())
    broker = BrokerInMemory(files)
    let(broker, 0.5)
    for number in range(4):
        timed(broker, b"%d" % number, TIMER_DELAY_MS=2000)
    let(broker, 1.5)
    fault = Fault("pread", path, times=1)
    files.faults.append(fault)
    let(broker, 10, 0.05)
    assert fault.hits == 1
    assert sorted(bodies(broker)) == [b"0", b"1", b"2", b"3"]


def test_a_recall_that_cannot_be_read_once_still_counts() -> None:
    files = FaultyFiles(MemoryFiles())
    broker = BrokerInMemory(files, broker={"recall_message_enable": True})
    let(broker, 0.5)
    sent = ok(broker.send(b"recalled", properties={"TIMER_DELAY_MS": "3000"}))
    let(broker, 0.2)
    header = RecallMessageRequestHeader(
        topic="Topic", recall_handle=sent["recallHandle"], producer_group="P"
    )
    answer = broker.request(RemotingCommand.request(RequestCode.RECALL_MESSAGE, header))
    assert answer.code == ResponseCode.SUCCESS
    let(broker, 1.8)
    fault = Fault("pread", "commitlog", times=1)
    files.faults.append(fault)
    let(broker, 10, 0.05)
    assert fault.hits == 1
    assert bodies(broker) == []
