"""Retention stops in front of the first message that waits, and force does not."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.logger import capturedLogs, formatEvent

from rocketmq_tw.broker.transactions.part import Transactions
from rocketmq_tw.config.change import change
from rocketmq_tw.files.faulty import FaultyFiles
from rocketmq_tw.files.interface import DiskUsage
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.wire.bodies.base import encode_body
from rocketmq_tw.wire.bodies.pop import PopCheckPoint
from tests.support.broker import BrokerInMemory, ok
from tests.support.pops import REVIVE, Popper, pass_time

HOUR = 3600
FILE = 8192


class Disk(FaultyFiles):
    """So many percent of it are used."""

    def __init__(self) -> None:
        super().__init__(MemoryFiles())
        self.percent = 10

    def usage(self, path: str) -> DiskUsage:
        return DiskUsage(100 * FILE, self.percent * FILE)


def make_broker(files: Disk | None = None, **settings: Any) -> BrokerInMemory:
    broker = BrokerInMemory(
        files or Disk(),
        broker={
            "transaction_time_out": 100 * HOUR * 1000,
            "transaction_check_interval": 100 * HOUR * 1000,
        },
        mapped_file_size_commit_log=FILE,
        message_delay_level="1s 60h",
        timer_precision_ms=1000,
        clean_resource_interval=1 << 30,
        delete_file_batch_max=1000,
        **settings,
    )
    broker.add_topic("Topic", read_queue_nums=1, write_queue_nums=1)
    return broker


def fill(broker: BrokerInMemory, files: int = 4) -> None:
    """Sends what nobody waits for, so many files of the log."""
    end = broker.store.end_offset + files * FILE
    while broker.store.end_offset < end:
        ok(broker.send(bytes(1000), topic="Filler"))
    broker.clock.advance(1)
    broker.store.checkpoint()


def clean(broker: BrokerInMemory) -> list[str]:
    """Removes what may go; returns what the log of the broker says about it."""
    broker.store.checkpoint()
    with capturedLogs() as logs:
        sum(broker.store.clean(broker.now_ms(), at_any_hour=True))
    return [formatEvent(event) or "" for event in logs]


def let_wait(broker: BrokerInMemory, what: str) -> None:
    """Stores a message that waits for at least 50 hours."""
    if what == "delayed messages":
        ok(broker.send(b"waits", properties={"DELAY": "2"}))
    elif what == "timed messages":
        at = broker.now_ms() + 60 * HOUR * 1000
        ok(broker.send(b"waits", properties={"TIMER_DELIVER_MS": str(at)}))
    elif what == "half messages":
        ok(broker.send(b"waits", properties={"TRAN_MSG": "true", "PGROUP": "P"}))
    else:
        ok(broker.send(b"waits"))
        (popped,) = Popper(broker, invisible_time=60 * HOUR * 1000).pop()
        assert popped.body == b"waits"
    broker.clock.advance(1)


def pass_hours(broker: BrokerInMemory, hours: int) -> None:
    for _ in range(hours):
        broker.clock.advance(HOUR)


KINDS = ["delayed messages", "timed messages", "half messages", "popped messages"]


def came(broker: BrokerInMemory, what: str) -> bool:
    """Whether the message is there, once its time is over."""
    if what == "half messages":
        work = broker.broker[Transactions].work
        assert work is not None and work.book is not None
        return work.pending == 1 and bool(
            broker.store.message_at(
                broker.store.queue_units("RMQ_SYS_TRANS_HALF_TOPIC", 0, 0, 1)[0].position
            )
        )
    if what == "popped messages":
        return Popper(broker).bodies() == [b"waits"]
    return [message.body for message in broker.consume()] == [b"waits"]


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("what", KINDS)
def test_a_time_that_is_made_smaller_loses_nothing_that_waits(what: str, restarted: bool) -> None:
    disk = Disk()
    broker = make_broker(disk)
    fill(broker)
    let_wait(broker, what)
    waits_in = broker.store.end_offset // FILE * FILE
    fill(broker)
    change(broker.store_config, {"fileReservedTime": "1"})
    pass_hours(broker, 20)
    if restarted:
        broker.stop()
        broker = make_broker(disk, file_reserved_time=1)
        broker.clock.advance(20 * HOUR)
        pass_time(broker, 3)
    fill(broker, 1)
    logs = clean(broker)
    assert 0 < broker.store.min_physical_offset <= waits_in
    assert [line for line in logs if "stay" in line and what in line]
    # Said once.
    assert clean(broker) == []
    if what == "half messages":
        assert came(broker, what)
        return
    pass_hours(broker, 41)
    pass_time(broker, 5)
    assert came(broker, what)
    fill(broker)
    pass_time(broker, 5)
    pass_hours(broker, 2)
    fill(broker, 1)
    clean(broker)
    assert broker.store.min_physical_offset > waits_in


@pytest.mark.parametrize("what", KINDS)
def test_a_full_disk_takes_what_waits_and_says_so(what: str) -> None:
    disk = Disk()
    broker = make_broker(disk)
    let_wait(broker, what)
    fill(broker, 8)
    disk.percent = 89
    (line,) = clean(broker)
    assert "go before their time" in line and f"what waits there is lost: {what}" in line
    assert broker.store.min_physical_offset == 4 * FILE
    disk.percent = 10
    change(broker.store_config, {"fileReservedTime": "1"})
    pass_hours(broker, 61)
    pass_time(broker, 5)
    # What comes behind it goes on.
    ok(broker.send(b"next", properties={"DELAY": "1"}))
    ok(broker.send(b"next", properties={"TIMER_DELAY_SEC": "1"}))
    pass_time(broker, 5)
    bodies = [message.body for message in broker.consume()]
    assert bodies[-2:] == [b"next", b"next"] and b"waits" not in bodies
    fill(broker, 1)
    clean(broker)
    assert broker.store.min_physical_offset >= 8 * FILE


def test_where_nothing_waits_nothing_stays() -> None:
    broker = make_broker()
    for what in KINDS[:2]:
        let_wait(broker, what)
    fill(broker)
    pass_hours(broker, 74)
    fill(broker, 1)
    assert clean(broker) == []
    assert broker.store.min_physical_offset == 4 * FILE


def test_a_level_that_is_no_more_delivers_what_it_has() -> None:
    disk = Disk()
    broker = make_broker(disk)
    ok(broker.send(b"waits", properties={"DELAY": "2"}))
    broker.stop()
    after = BrokerInMemory(disk, mapped_file_size_commit_log=FILE, message_delay_level="1s")
    after.clock.advance(61 * HOUR)
    pass_time(after, 3)
    assert [message.body for message in after.consume()] == [b"waits"]


@pytest.mark.parametrize("name", ["broker-a", "another"])
def test_a_check_point_that_anybody_sent_keeps_the_log_for_so_long_only(name: str) -> None:
    """Of a message that is hidden for a hundred years."""
    broker = make_broker(file_reserved_time=1)
    fill(broker)
    ok(broker.send(b"hidden"))
    Popper(broker)
    waits_in = broker.store.end_offset // FILE * FILE
    years_ms = 100 * 365 * 24 * HOUR * 1000
    point = PopCheckPoint(
        broker_name=name,
        group="G",
        topic="Topic",
        offset_diffs=[0],
        count=1,
        pop_time=broker.now_ms(),
        invisible_time=years_ms,
        revive_time=broker.now_ms() + years_ms,
    )
    ok(broker.send(encode_body(point), topic=REVIVE, properties={"TAGS": "ck"}))
    fill(broker)
    pass_hours(broker, 7 * 24 - 1)
    fill(broker, 1)
    clean(broker)
    assert broker.store.min_physical_offset == waits_in
    pass_hours(broker, 2)
    pass_time(broker, 5)
    popper = Popper(broker)
    popped = popper.pop()
    # Nobody had popped it; of another broker's message a later check point is made.
    assert [each.body for each in popped] == [b"hidden"] * (2 if name == "broker-a" else 1)
    popper.ack(*popped)
    pass_time(broker, 5)
    fill(broker)
    pass_hours(broker, 2)
    fill(broker, 1)
    clean(broker)
    assert broker.store.min_physical_offset > waits_in + FILE
