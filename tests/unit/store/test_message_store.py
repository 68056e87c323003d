"""Appending, dispatching and reading: statuses, limits, offsets, failures."""

import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from zope.interface.verify import verifyObject

from rocketmq_tw.config.change import change
from rocketmq_tw.files.faulty import Fault, FaultyFiles
from rocketmq_tw.files.interface import DiskUsage
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.files.posix import PosixFiles
from rocketmq_tw.message.batch import Batch, BatchedMessage
from rocketmq_tw.message.ids import offset_message_id
from rocketmq_tw.message.model import TRANSACTION_COMMIT, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from rocketmq_tw.message.names import SCHEDULE_TOPIC
from rocketmq_tw.message.tags import java_hash_code
from rocketmq_tw.store import appending, dispatching
from rocketmq_tw.store.checkpoint import read_checkpoint
from rocketmq_tw.store.errors import IllegalMessageError, NotWritableError, StoreError
from rocketmq_tw.store.interface import GetStatus, IMessageStore, MessageFilter
from rocketmq_tw.store.message_store import MessageStore
from tests.support.power import aftermaths
from tests.support.stores import (
    ManualClock,
    by_key,
    cut,
    make_message,
    open_store,
    put,
    queues_of,
    read_all,
)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles(MemoryFiles())


@pytest.fixture
def store(files: FaultyFiles, clock: ManualClock) -> MessageStore:
    return open_store(files, clock)


def read(store: MessageStore, offset: int, count: int = 32, size: int = 1 << 20, **match):
    return store.read_queue("Topic", 0, offset, count, size, **match)


def test_it_is_what_the_broker_asks_for(store: MessageStore) -> None:
    assert verifyObject(IMessageStore, store)


def test_an_append_says_where_the_message_went(store: MessageStore, clock: ManualClock) -> None:
    first = store.append(make_message(b"one"))
    second = store.append(make_message(b"two"))
    assert (first.physical_offset, first.queue_offset) == (0, 0)
    assert second.physical_offset == first.end_offset
    assert second.queue_offset == 1
    assert second.end_offset == store.end_offset
    assert first.store_timestamp == clock.now_ms
    assert second.message_ids == f"7F00000100002A9F{second.physical_offset:016X}"


@pytest.mark.parametrize("is_pypy", [False, True])
def test_a_batch_is_contiguous_and_its_offsets_consecutive(
    store: MessageStore, is_pypy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each interpreter has its own way to their ids.
    monkeypatch.setattr(appending, "IS_PYPY", is_pypy)
    put(store, *[make_message(bytes(300)) for _ in range(7)])
    batch = [BatchedMessage(n, b"%d" % n + bytes(400), b"TAGS\x01%d\x02" % n) for n in range(4)]
    appended = store.append(make_message(), batch=Batch.of(batch))
    # It did not fit in the first file's rest and went whole into the next one.
    assert appended.physical_offset == 4096
    assert appended.queue_offset == 7
    put(store)
    stored = read_all(store)[7:]
    assert [message.queue_offset for message in stored] == [7, 8, 9, 10]
    assert appended.end_offset == 4096 + sum(message.store_size for message in stored)
    assert [BatchedMessage(m.flag, m.body, m.properties) for m in stored] == batch
    assert appended.message_ids == ",".join(
        offset_message_id("127.0.0.1", 10911, message.physical_offset) for message in stored
    )


def test_readers_see_only_what_is_dispatched(store: MessageStore) -> None:
    arrivals = []
    store.on_arrival(arrivals.extend)
    store.append(make_message(tags="A"))
    assert read(store, 0).status is GetStatus.NO_MESSAGE_IN_QUEUE
    store.write_pending()
    assert store.max_queue_offset("Topic", 0) == 0
    assert store.dispatch() == 1
    assert [
        (each.topic, each.queue_id, each.queue_offset, *each.tags_codes) for each in arrivals
    ] == [("Topic", 0, 0, java_hash_code("A"))]
    assert read(store, 0).status is GetStatus.FOUND
    assert store.dispatch() == 0


def test_a_log_begins_where_it_is_written_not_behind_what_is_buffered(store: MessageStore) -> None:
    """A slave that connects between the first append and its write starts there."""
    store.append(make_message())
    assert store.end_offset > store.written_offset == 0
    assert store.min_physical_offset == 0


def test_a_listener_of_one_topic_is_told_of_no_other(store: MessageStore) -> None:
    arrivals = []
    stop = store.on_arrival(arrivals.extend, "Topic")
    put(store, make_message(topic="Other"), make_message(), make_message(topic="Other"))
    put(store, make_message(topic="Other"))
    assert [(each.topic, each.queue_offset) for each in arrivals] == [("Topic", 0)]
    stop()
    put(store, make_message())
    assert len(arrivals) == 1


def test_with_sync_flush_readers_see_only_what_is_flushed(clock: ManualClock) -> None:
    store = open_store(MemoryFiles(), clock, flush_disk_type="SYNC_FLUSH")
    store.append(make_message())
    store.write_pending()
    assert store.dispatch() == 0
    store.fsync()
    assert store.dispatch() == 1


def test_a_dispatch_limit_holds_messages_back(store: MessageStore) -> None:
    end = store.append(make_message()).end_offset
    store.append(make_message())
    store.write_pending()
    store.dispatch_limit = end
    assert store.dispatch() == 1
    store.dispatch_limit = None
    assert store.dispatch() == 1


def test_statuses_and_next_offsets(store: MessageStore) -> None:
    assert read(store, 7)[:4] == (GetStatus.NO_MATCHED_LOGIC_QUEUE, b"", 0, 0)
    put(store, *[make_message() for _ in range(5)])
    queue = store._queues.find("Topic", 0)
    assert queue is not None
    queue.min_offset = 2
    low, high = 2, 5
    cases = [
        (1, GetStatus.OFFSET_TOO_SMALL, 0, low),
        (5, GetStatus.OFFSET_OVERFLOW_ONE, 0, high),
        (9, GetStatus.OFFSET_OVERFLOW_BADLY, 0, high),
        (2, GetStatus.FOUND, 3, high),
    ]
    for offset, status, messages, following in cases:
        found = read(store, offset)
        assert (found.status, found.messages, found.next_offset) == (status, messages, following)
        assert (found.min_offset, found.max_offset) == (low, high)


def test_a_slave_does_not_correct_offsets() -> None:
    files = MemoryFiles()
    store = open_store(files, is_copy=lambda: True)
    put(store, make_message())
    assert read(store, 9).next_offset == 9
    store.close()
    store = open_store(files, is_copy=lambda: True, offset_check_in_slave=True)
    assert read(store, 9).next_offset == 1


def test_limits_of_count_and_bytes(store: MessageStore) -> None:
    put(store, *[make_message(bytes(100)) for _ in range(8)])
    one = read(store, 0, 1).data
    assert read(store, 0, 3).messages == 3
    assert read(store, 0, 32, 2 * len(one)).messages == 2
    assert read(store, 0, 32, 1).messages == 1
    change(store.config, {"maxTransferCountOnMessageInMemory": "4"})
    assert read(store, 0).messages == 4
    change(store.config, {"maxTransferBytesOnMessageInMemory": str(3 * len(one))})
    assert read(store, 0).messages == 3


def test_what_memory_cannot_hold_any_more_has_the_disk_limits(clock: ManualClock) -> None:
    store = MessageStore(open_store(MemoryFiles()).config, MemoryFiles(), clock, memory_bytes=1000)
    store.load()
    put(store, *[make_message(bytes(100)) for _ in range(12)])
    found = read(store, 0)
    assert found.messages == 8
    assert found.suggest_slave
    assert not read(store, 11).suggest_slave


def test_a_rare_tag_makes_progress_without_reading_all() -> None:
    store = open_store(MemoryFiles(), max_filter_message_size=20 * 6)
    put(store, *[make_message(tags="A") for _ in range(9)], make_message(tags="B"))
    wanted = java_hash_code("B")
    found = read(store, 0, 2, wanted=MessageFilter(lambda code: code == wanted))
    assert (found.status, found.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 6)
    found = read(store, 6, 2, wanted=MessageFilter(lambda code: code == wanted))
    assert (found.status, found.messages, found.next_offset) == (GetStatus.FOUND, 1, 10)


def test_interleaved_queues_are_read_apart(store: MessageStore) -> None:
    put(store, *[make_message(b"%d" % n + bytes(300), queue_id=n % 3) for n in range(30)])
    for queue_id in range(3):
        bodies = [int(m.body.rstrip(b"\0")) for m in read_all(store, queue_id=queue_id)]
        assert bodies == list(range(queue_id, 30, 3))


def test_delay_level_becomes_the_time_of_delivery(store: MessageStore, clock: ManualClock) -> None:
    arrivals = []
    store.on_arrival(lambda runs: arrivals.extend(code for run in runs for code in run.tags_codes))
    for level in (b"1", b"3", b"99", b"0", b"x"):
        properties = b"DELAY\x01" + level + b"\x02TAGS\x01A\x02"
        put(store, make_message(topic=SCHEDULE_TOPIC, properties=properties))
    put(store, make_message(properties=b"TAGS\x01A\x02DELAY\x013"))
    now, tag = clock.now_ms, java_hash_code("A")
    assert arrivals == [now + 1_000, now + 10_000, now + 7_200_000, tag, tag, tag]


@pytest.mark.parametrize("flag", [TRANSACTION_PREPARED, TRANSACTION_ROLLBACK])
def test_half_and_rolled_back_messages_are_in_no_queue(store: MessageStore, flag: int) -> None:
    put(store, make_message(b"before"))
    (offset,) = put(store, make_message(b"half", sys_flag=flag))
    put(store, make_message(b"after", sys_flag=TRANSACTION_COMMIT))
    assert [message.body for message in read_all(store)] == [b"before", b"after"]
    half = store.message_at(offset)
    assert half is not None and (half.body, half.queue_offset) == (b"half", 0)


def test_store_times_find_offsets_exactly(store: MessageStore, clock: ManualClock) -> None:
    start = clock.now_ms
    for step in (0, 10, 0, 0, 10):
        clock.now_ms += step
        put(store, make_message(bytes(1200)))
    # Times: 0, 10, 10, 10, 20
    lower = {-1: 0, 0: 0, 1: 1, 10: 1, 11: 4, 20: 4, 21: 5}
    upper = {-1: 0, 0: 0, 1: 0, 10: 3, 11: 3, 20: 4, 21: 4}
    for moment, offset in lower.items():
        assert store.offset_by_time("Topic", 0, start + moment) == offset, moment
    for moment, offset in upper.items():
        assert store.offset_by_time("Topic", 0, start + moment, upper=True) == offset, moment
    assert store.store_time("Topic", 0, 4) == start + 20
    assert store.store_time("Topic", 0, 5) == -1
    assert store.earliest_store_time("Topic", 0) == start
    assert store.earliest_store_time("None", 0) == -1
    assert store.offset_by_time("None", 0, start) == 0


def test_a_clock_set_back_a_little_does_not_show(store: MessageStore, clock: ManualClock) -> None:
    first = store.append(make_message()).store_timestamp
    clock.now_ms -= 500
    assert store.append(make_message()).store_timestamp == first
    clock.now_ms -= 5000
    assert store.append(make_message()).store_timestamp == first - 5500


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (make_message(bytes(2049)), "maxMessageSize"),
        (make_message(properties=bytes(33000)), "properties"),
        (make_message(topic="../../etc"), "topic"),
        (make_message(topic=""), "topic"),
        (make_message(queue_id=-1), "queue id"),
    ],
)
def test_illegal_messages_change_nothing(store: MessageStore, message, reason: str) -> None:
    with pytest.raises(IllegalMessageError, match=reason):
        store.append(message)
    assert store.end_offset == 0
    assert queues_of(store) == {}


def test_a_full_disk_refuses_and_recovers(files: FaultyFiles, store: MessageStore) -> None:
    put(store, make_message(b"before"))
    end = store.end_offset
    files.room = 50
    store.append(make_message(b"lost 1"))
    store.append(make_message(b"lost 2", queue_id=1))
    with pytest.raises(NotWritableError, match="No space"):
        store.write_pending()
    assert store.end_offset == end
    files.room = None
    appended = store.append(make_message(b"after"))
    assert (appended.physical_offset, appended.queue_offset) == (end, 1)
    put(store)
    assert [message.body for message in read_all(store)] == [b"before", b"after"]
    assert store.append(make_message(queue_id=1)).queue_offset == 0


def test_a_write_error_ends_all_writing(files: FaultyFiles, store: MessageStore) -> None:
    put(store, make_message(b"before"))
    files.faults.append(Fault("pwrite", "commitlog", errno.EIO, kept=30, times=1))
    store.append(make_message(b"torn"))
    with pytest.raises(NotWritableError):
        store.write_pending()
    with pytest.raises(NotWritableError, match="check the disk"):
        store.append(make_message())
    assert [message.body for message in read_all(store)] == [b"before"]


def test_a_failed_fsync_is_never_retried_as_a_success(
    files: FaultyFiles, store: MessageStore
) -> None:
    put(store, make_message(b"before"))
    flushed = store.flushed_offset
    files.faults.append(Fault("fsync", "commitlog", times=1))
    store.append(make_message(b"unsure"))
    store.write_pending()
    for _ in range(2):
        with pytest.raises(NotWritableError, match="fsync"):
            store.fsync()
    with pytest.raises(NotWritableError, match="fsync"):
        store.append(make_message())
    assert store.flushed_offset == flushed
    store.close()
    assert files.exists("/store/abort")


@pytest.mark.parametrize("operation", ["create", "pwrite", "truncate", "make_dirs"])
def test_a_queue_that_cannot_be_written_holds_up_no_other(
    files: FaultyFiles, store: MessageStore, operation: str
) -> None:
    """What was acknowledged to it is read from memory; no more is taken until it can be written."""
    fault = Fault(operation, "consumequeue/Bad", errno.EACCES)
    files.faults.append(fault)
    store.append(make_message(b"one", topic="Bad"))
    store.append(make_message(b"two"))
    store.write_pending()
    assert store.dispatch() == 2
    assert [message.body for message in read_all(store, "Bad")] == [b"one"]
    for number in range(30):
        with pytest.raises(NotWritableError, match="queue 0 of Bad"):
            store.append(make_message(topic="Bad"))
        put(store, make_message(b"%d" % number))
    assert len(read_all(store)) == 31
    with pytest.raises(StoreError, match="queues"):
        store.checkpoint()
    after = open_store(files.inner.kill())
    assert [message.body for message in read_all(after, "Bad")] == [b"one"]
    files.faults.clear()
    assert store.append(make_message(b"again", topic="Bad")).queue_offset == 1
    put(store)
    store.close()
    after = open_store(files.inner.kill())
    assert after.report is not None and after.report.clean
    assert [message.body for message in read_all(after, "Bad")] == [b"one", b"again"]


def test_a_replica_keeps_all_units_of_a_queue_that_cannot_be_written(
    files: FaultyFiles, store: MessageStore
) -> None:
    put(store, *[make_message(queue_id=n % 2) for n in range(100)])
    disk = FaultyFiles(MemoryFiles())
    disk.faults.append(Fault("create", "consumequeue/Topic/1"))
    replica = open_store(disk)
    while replica.end_offset < store.end_offset:
        replica.append_raw(replica.end_offset, store.read_log(replica.end_offset, 1000))
        replica.write_pending()
        replica.dispatch()
    disk.faults.clear()
    replica.checkpoint()
    for queue_id in (0, 1):
        assert read_all(replica, queue_id=queue_id) == read_all(store, queue_id=queue_id)


def test_an_index_that_cannot_be_written_holds_up_no_queue(
    files: FaultyFiles, store: MessageStore
) -> None:
    files.faults.append(Fault("create", "/index/", errno.EMFILE))
    put(store, *[make_message(b"%d" % n, keys=f"k{n}") for n in range(600)])
    assert len(read_all(store)) == 600
    files.faults.clear()
    assert by_key(store, "Topic", "k7", 9, 0, 1 << 62)
    assert by_key(store, "Topic", "k599", 9, 0, 1 << 62)


def test_a_failed_dispatch_reads_little_of_the_log_again(
    files: FaultyFiles, store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatching, "_WORK", 10)
    put(store, *[make_message(b"", queue_id=n % 3) for n in range(100)])
    replica = open_store(MemoryFiles())
    while replica.end_offset < store.end_offset:
        replica.append_raw(replica.end_offset, store.read_log(replica.end_offset, 4096))
    replica.write_pending()
    calls = []

    def fail() -> None:
        calls.append(1)
        if len(calls) > 3:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(replica._queues, "check_room", fail)
    with pytest.raises(NotWritableError, match="No space"):
        while replica.dispatch():
            pass
    assert replica.max_queue_offset("Topic", 0) == 3
    monkeypatch.setattr(replica._queues, "check_room", lambda: None)
    assert sum(iter(replica.dispatch, 0)) == 91 and replica.is_dispatched
    assert len(read_all(replica)) == 34


def test_a_queue_sync_that_failed_leaves_the_checkpoint_alone(
    files: FaultyFiles, store: MessageStore
) -> None:
    put(store, make_message(b"one"))
    files.faults.append(Fault("fsync", "consumequeue", times=1))
    with pytest.raises(StoreError):
        store.checkpoint()
    store.checkpoint()
    assert not files.exists("/store/checkpoint")
    store.close()
    assert files.exists("/store/abort")


def test_a_closed_store_refuses(store: MessageStore) -> None:
    store.close()
    store.close()
    with pytest.raises(NotWritableError, match="closed"):
        store.append(make_message())


def test_a_replica_has_the_same_bytes_and_queues(store: MessageStore) -> None:
    put(store, *[make_message(bytes(700), queue_id=n % 2, keys=f"k{n}") for n in range(12)])
    replica = open_store(MemoryFiles())
    while replica.end_offset < store.end_offset:
        data = store.read_log(replica.end_offset, 1000)
        replica.append_raw(replica.end_offset, data)
        replica.write_pending()
        replica.dispatch()
    assert replica.read_log(0, 4096) == store.read_log(0, 4096)
    for queue_id in (0, 1):
        assert read_all(replica, queue_id=queue_id) == read_all(store, queue_id=queue_id)
    assert by_key(replica, "Topic", "k7", 9, 0, 1 << 62)
    assert replica.append(make_message()).queue_offset == 6
    with pytest.raises(StoreError, match="ends at"):
        replica.append_raw(5, b"x")


def test_an_empty_replica_begins_where_its_masters_log_does() -> None:
    replica = open_store(MemoryFiles())
    with pytest.raises(StoreError, match="inside a file"):
        replica.append_raw(5000, b"x")
    replica.append_raw(8192, bytes(10))
    assert replica.end_offset == 8202


def test_appends_wait_until_a_replicas_bytes_are_dispatched(store: MessageStore) -> None:
    put(store, make_message())
    replica = open_store(MemoryFiles())
    replica.append_raw(0, store.read_log(0, 4096))
    replica.write_pending()
    with pytest.raises(NotWritableError, match="not dispatched"):
        replica.append(make_message())
    replica.dispatch()
    assert replica.append(make_message()).queue_offset == 1


def test_truncation_takes_queues_and_index_along(clock: ManualClock) -> None:
    files = MemoryFiles()
    store = open_store(files, clock)
    offsets = put(store, *[make_message(bytes(600), keys=f"k{n}") for n in range(20)])
    store.checkpoint()
    cut(store, offsets[8])
    assert (store.end_offset, store.max_queue_offset("Topic", 0)) == (offsets[8], 8)
    assert by_key(store, "Topic", "k7", 9, 0, 1 << 62) == [offsets[7]]
    assert by_key(store, "Topic", "k8", 9, 0, 1 << 62) == []
    for survivor in (files.crash(), files.kill()):
        assert open_store(survivor, clock).end_offset == offsets[8]
    assert store.append(make_message()).queue_offset == 8
    with pytest.raises(StoreError, match="cannot truncate"):
        cut(store, store.end_offset + 1)


def test_removing_a_topic_removes_its_files(files: FaultyFiles, store: MessageStore) -> None:
    put(store, make_message(topic="Gone"), make_message(topic="Kept"))
    store.remove_topics(["Gone"])
    store.remove_topics(["../config"])
    assert queues_of(store) == {"Kept": {0}}
    assert files.list("/store/consumequeue") == ["Kept"]
    assert store.append(make_message(topic="Gone")).queue_offset == 0


def test_retention_by_age_and_by_room(clock: ManualClock) -> None:
    files = MemoryFiles()
    store = open_store(files, clock, delete_when="25")
    hours = ";".join(map(str, range(24)))
    put(store, *[make_message(bytes(900), keys="k") for _ in range(20)])
    store.checkpoint()
    clock.now_ms += 100 * 3_600_000
    assert sum(store.clean(clock.now_ms)) == 0
    change(store.config, {"deleteWhen": hours})
    assert sum(store.clean(clock.now_ms - 50 * 3_600_000)) == 0
    assert sum(store.clean(clock.now_ms)) > 0
    lowest = store.min_physical_offset
    assert lowest == store._log.segments.starts[-1]
    low = store.min_queue_offset("Topic", 0)
    assert 0 < low < 20
    assert read(store, low).status is GetStatus.FOUND
    assert read(store, 0).status is GetStatus.OFFSET_TOO_SMALL
    assert store.record_at(0) is None


def test_retention_lets_others_in_between(clock: ManualClock) -> None:
    store = open_store(MemoryFiles(), clock, delete_file_batch_max=150)
    queues = 300
    for _ in range(3):
        put(store, *[make_message(bytes(900), queue_id=n) for n in range(queues)])
        put(store, *[make_message(bytes(900), topic="Gone", queue_id=n) for n in range(50)])
        clock.now_ms += 1_000
    store.checkpoint()
    began = clock.now_ms
    clock.now_ms += 100 * 3_600_000
    steps = store.clean(clock.now_ms, at_any_hour=True)
    # A step for each file of the log, and then those that look at queues.
    assert [next(steps) for _ in range(store.config.delete_file_batch_max)] == [1] * 150
    next(steps)
    assert store.min_queue_offset("Topic", 0) > 0 == store.min_queue_offset("Topic", queues - 1)
    # What is gone from the log is found neither by reads nor by time.
    assert store.read_queue("Topic", queues - 1, 0, 1, 1 << 20).status in (
        GetStatus.FOUND,
        GetStatus.MESSAGE_WAS_REMOVING,
    )
    assert store.offset_by_time("Topic", 200, began - 10_000) > 0
    assert store.offset_by_time("Topic", 200, began - 10_000) == store.min_queue_offset(
        "Topic", 200
    )
    store.remove_topics(["Gone"])
    put(store, make_message(b"new", topic="Gone"))
    made = store._queues.find("Gone", 0)
    assert len(list(steps)) > 4
    assert store._queues.find("Gone", 0) is made
    assert [message.body for message in read_all(store, topic="Gone")] == [b"new"]
    assert not any(
        unit.position < store.min_physical_offset
        for n in range(queues)
        for unit in store.queue_units("Topic", n, store.min_queue_offset("Topic", n), 1)
    )
    assert list(store.clean(clock.now_ms))[:1] == [0]


def test_retention_ends_with_the_store(clock: ManualClock) -> None:
    store = open_store(MemoryFiles(), clock)
    put(store, *[make_message(bytes(900), queue_id=n) for n in range(300)])
    store.checkpoint()
    steps = store.clean(clock.now_ms + 100 * 3_600_000, at_any_hour=True)
    next(steps)
    store.close()
    assert list(steps) == []


def test_retention_leaves_what_no_checkpoint_has(clock: ManualClock) -> None:
    """Its units may be in memory only: after a kill the queue's end would go back."""
    memory = MemoryFiles()
    files = FaultyFiles(memory)
    store = open_store(files, clock, delete_when=";".join(map(str, range(24))))
    put(store, *[make_message(bytes(900)) for _ in range(8)])
    store.checkpoint()
    files.faults.append(Fault("fsync", "consumequeue"))
    put(store, *[make_message(bytes(900)) for _ in range(8)])
    with pytest.raises(StoreError):
        store.checkpoint()
    clock.now_ms += 100 * 3_600_000
    sum(store.clean(clock.now_ms))
    assert 0 < store.min_physical_offset <= 8 * 1000
    after = open_store(memory.kill(), clock)
    assert after.max_queue_offset("Topic", 0) == 16
    assert [message.queue_offset for message in read_all(after)][-8:] == list(range(8, 16))


def test_a_power_loss_during_retention_leaves_no_gap(clock: ManualClock) -> None:
    files = FaultyFiles(MemoryFiles())
    store = open_store(files, clock, delete_when=";".join(map(str, range(24))))
    put(store, *[make_message(bytes(900)) for _ in range(24)])
    store.checkpoint()

    def work() -> None:
        assert sum(store.clean(clock.now_ms + 100 * 3_600_000)) > 3
        store.checkpoint()

    moment = 0
    for moment, left, _ in aftermaths(files, work, seeds=range(6)):
        after = open_store(left, clock)
        assert after.max_queue_offset("Topic", 0) == 24, moment
    assert moment > 3


def _open_paths() -> list[str]:
    """Where this process's descriptors lead, those of removed files with `(deleted)` behind."""
    paths = []
    for name in os.listdir("/proc/self/fd"):
        # One is that of the listing itself.
        with suppress(FileNotFoundError):
            paths.append(os.readlink(f"/proc/self/fd/{name}"))
    return paths


def test_files_that_were_removed_are_not_kept_open(clock: ManualClock, tmp_path: Path) -> None:
    """A descriptor keeps a removed file's blocks: the disk stays full, and more files go."""
    hours = ";".join(map(str, range(24)))
    store = open_store(PosixFiles(), clock, store_path_root_dir=str(tmp_path), delete_when=hours)
    put(store, *[make_message(bytes(900)) for _ in range(40)])
    read_all(store)
    store.checkpoint()
    assert sum(store.clean(clock.now_ms + 100 * 3_600_000)) > 3
    opened = [path for path in _open_paths() if str(tmp_path) in path]
    assert opened and not [path for path in opened if path.endswith("(deleted)")]
    store.close()


def test_a_disk_that_is_too_full_gets_no_more_room_than_it_needs(clock: ManualClock) -> None:
    files = MemoryFiles()
    warnings: list[str] = []
    store = open_store(files, clock, warn=warnings.append)
    put(store, *[make_message(bytes(900)) for _ in range(120)])
    store.checkpoint()
    whole = store.end_offset - store.min_physical_offset
    used = files.usage("/").used
    # The limit is 85 %: what is beyond it are three files of the log.
    files.capacity = (used - 3 * 4096 + 100) * 100 // 85
    for _ in range(3):
        sum(store.clean(clock.now_ms))
    assert whole - (store.end_offset - store.min_physical_offset) == 3 * 4096
    assert len(warnings) == 1 and "3 files of the log" in warnings[0]


class LateDisk(MemoryFiles):
    """Shows the room of removed files only once it is told to."""

    shown: DiskUsage | None = None

    def usage(self, path: str) -> DiskUsage:
        return self.shown or super().usage(path)


def test_room_that_is_not_shown_yet_costs_no_further_file(clock: ManualClock) -> None:
    files = LateDisk()
    store = open_store(files, clock)
    put(store, *[make_message(bytes(900)) for _ in range(120)])
    store.checkpoint()
    first = store.min_physical_offset
    used = files.usage("/").used
    # The limit is 85 %: what is beyond it are three files of the log.
    files.capacity = (used - 3 * 4096 + 100) * 100 // 85
    files.shown = DiskUsage(files.capacity, used)
    for _ in range(5):
        sum(store.clean(clock.now_ms))
        clock.now_ms += 10_000
    assert store.min_physical_offset - first == 3 * 4096
    # It has it, and is filled again.
    files.shown = DiskUsage(files.capacity, used - 3 * 4096 + 100)
    sum(store.clean(clock.now_ms))
    assert store.min_physical_offset - first == 3 * 4096
    # What is not free after a minute never comes.
    files.shown = DiskUsage(files.capacity, used)
    clock.now_ms += 60_000
    sum(store.clean(clock.now_ms))
    assert store.min_physical_offset - first == 6 * 4096


def test_a_disk_at_its_limit_stays_there_while_messages_come(clock: ManualClock) -> None:
    """What is stored between two looks is no room of removed files that the disk shows late."""
    files = MemoryFiles()
    store = open_store(files, clock)
    put(store, *[make_message(bytes(900)) for _ in range(400)])
    store.checkpoint()
    limit = files.usage("/").used
    files.capacity = limit * 100 // 85
    highest = 0
    for _ in range(60):
        put(store, *[make_message(bytes(900)) for _ in range(4)])
        store.checkpoint()
        sum(store.clean(clock.now_ms))
        highest = max(highest, files.usage("/").used)
        clock.now_ms += 10_000
    assert store.min_physical_offset > 50 * 4096
    assert highest - limit < 4 * 4096


def test_a_nearly_full_disk_refuses_until_there_is_room(clock: ManualClock) -> None:
    files = MemoryFiles()
    store = open_store(files, clock)
    put(store, *[make_message(bytes(900)) for _ in range(20)])
    store.checkpoint()
    used = files.usage("/").used
    files.capacity = used + used // 20
    assert sum(store.clean(clock.now_ms)) > 0
    with pytest.raises(NotWritableError, match="nearly full"):
        store.append(make_message())
    files.capacity = used * 100
    sum(store.clean(clock.now_ms))
    store.append(make_message())


class TwoDisks(MemoryFiles):
    """What is below `/log` lies on a disk of its own; both are as full as a test says."""

    log_percent = rest_percent = 10

    def usage(self, path: str) -> DiskUsage:
        return DiskUsage(100, self.log_percent if path.startswith("/log") else self.rest_percent)


def test_the_disk_of_the_log_counts_where_it_is_another_one(clock: ManualClock) -> None:
    files = TwoDisks()
    store = open_store(files, clock, store_path_commit_log="/log/commitlog")
    put(store, *[make_message(bytes(900)) for _ in range(20)])
    store.checkpoint()
    assert sum(store.clean(clock.now_ms)) == 0
    files.log_percent = 86
    assert sum(store.clean(clock.now_ms)) > 0
    store.append(make_message())
    files.log_percent = 91
    sum(store.clean(clock.now_ms))
    with pytest.raises(NotWritableError, match="nearly full"):
        store.append(make_message())
    files.log_percent = 10
    sum(store.clean(clock.now_ms))
    store.append(make_message())


def test_files_of_the_log_stay_where_another_disk_is_too_full(clock: ManualClock) -> None:
    files = TwoDisks()
    store = open_store(files, clock, store_path_commit_log="/log/commitlog")
    put(store, *[make_message(bytes(900)) for _ in range(20)])
    store.checkpoint()
    for percent in (86, 91):
        files.rest_percent = percent
        for _ in range(3):
            assert sum(store.clean(clock.now_ms)) == 0
            clock.now_ms += 70_000
    with pytest.raises(NotWritableError, match="nearly full"):
        store.append(make_message())


def test_five_thousand_queues_with_few_descriptors(store: MessageStore) -> None:
    put(store, *[make_message(b"", queue_id=n) for n in range(5000)])
    assert len(store._queues._pool._open) <= 256
    assert read_all(store, queue_id=4999)[0].queue_offset == 0
    assert read_all(store, queue_id=0)[0].queue_offset == 0


def test_a_checkpoint_syncs_also_what_another_has_not_synced_yet() -> None:
    files = MemoryFiles()
    store = open_store(files)
    put(store, make_message(b"a", queue_id=1))
    store.checkpoint()
    put(store, make_message(b"b"))
    slow = store.prepare_checkpoint()
    put(store, make_message(b"c", queue_id=1))
    store.checkpoint()
    after = open_store(files.crash())
    assert [message.body for message in read_all(after)] == [b"b"]
    assert after.report is not None and after.report.notes == []
    assert slow is not None
    slow()
    checkpoint = read_checkpoint(files, store.paths.checkpoint)
    assert checkpoint.safe_offset == store.end_offset
    assert checkpoint.units == 3


def test_checkpoints_and_the_newest_record_need_no_look_at_each_queue(
    files: MemoryFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(files, mapped_file_size_commit_log=1 << 20)
    put(store, *[make_message(queue_id=number) for number in range(1_000)])
    for _ in range(20):
        store.dispatch()
    store.checkpoint()
    newest = store._queues.find("Topic", 999)
    for queue in store._queues:
        if queue is not newest:
            monkeypatch.setattr(queue, "read", None)
    assert store.message_at(store.last_record_offset).queue_id == 999  # type: ignore[union-attr]
    store.remove_topics(["Topic"])
    put(store, *[make_message(topic="Other", queue_id=number) for number in (1, 2, 2)])

    class Unseen(dict[Any, Any]):
        def __iter__(self) -> Iterator[Any]:
            raise AssertionError("the queues were gone through")

        values = items = keys = __iter__  # type: ignore[assignment]

    with monkeypatch.context() as patch:
        patch.setattr(store._queues, "_queues", Unseen(store._queues._queues))
        store.checkpoint()
    kept = read_checkpoint(files, store.paths.checkpoint)
    assert (kept.queues, kept.units) == (2, 3)
