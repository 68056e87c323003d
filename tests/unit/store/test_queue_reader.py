"""Reads in one go against reads that look at each unit, and what is left out of both."""

import re
from itertools import cycle, pairwise
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.message.record import decode_records
from rocketmq_tw.message.tags import FewTagCodes, java_hash_code
from rocketmq_tw.store.commit_log import CommitLog
from rocketmq_tw.store.consume_queue import ConsumeQueue
from rocketmq_tw.store.interface import EVERY_MESSAGE, GetStatus, MessageFilter
from rocketmq_tw.store.message_store import MessageStore
from rocketmq_tw.store.queue_pass import QueuePass
from rocketmq_tw.store.queue_reader import QueueReader
from rocketmq_tw.store.queue_records import ReadLimits
from rocketmq_tw.store.queue_units import UNIT, UNIT_SIZE
from tests.support.stores import ROOT, ManualClock, cut, make_message, open_store, put

#: Every message, but each is asked.
ASKED = MessageFilter(lambda code: True, lambda properties: True)

_QUEUES = 3
_LOG_FILE = 4096
_ALL = 1 << 20

#: Messages as (queue, bytes of body), in turns that are written together.
turns = st.lists(
    st.lists(st.tuples(st.integers(0, _QUEUES - 1), st.integers(0, 700)), min_size=1, max_size=6),
    min_size=1,
    max_size=12,
)


def fill(files: MemoryFiles, sent: list[list[tuple[int, int]]], **config: int) -> MessageStore:
    store = open_store(files, ManualClock(), **config)
    number = 0
    for turn in sent:
        made = []
        for queue_id, size in turn:
            made.append(make_message(b"%d." % number + bytes(size), queue_id=queue_id))
            number += 1
        put(store, *made)
    return store


def queues_of(store: MessageStore) -> list[ConsumeQueue]:
    queues = [store._queues.find("Topic", queue_id) for queue_id in range(_QUEUES)]
    return [queue for queue in queues if queue is not None]


def damage(files: MemoryFiles, position: int) -> None:
    """Turns one byte of the log over."""
    start = position - position % _LOG_FILE
    file = files.open(f"{ROOT}/commitlog/{start:020d}")
    (byte,) = file.pread(1, position - start)
    file.pwrite(bytes([byte ^ 0x40]), position - start)


@given(
    sent=turns,
    max_count=st.integers(-1, 12),
    max_bytes=st.integers(0, 6000),
    memory_bytes=st.sampled_from([0, 2000, 20_000, _ALL]),
    on_disk=st.integers(0, 6),
    in_memory=st.integers(0, 6),
    damaged=st.lists(st.floats(0, 1), max_size=2),
    removed=st.booleans(),
    check=st.booleans(),
    check_fresh=st.booleans(),
)
def test_all_at_once_is_one_after_the_other(
    sent: list[list[tuple[int, int]]],
    max_count: int,
    max_bytes: int,
    memory_bytes: int,
    on_disk: int,
    in_memory: int,
    damaged: list[float],
    removed: bool,
    check: bool,
    check_fresh: bool,
) -> None:
    files = MemoryFiles()
    store = fill(
        files,
        sent,
        max_transfer_count_on_message_in_disk=on_disk,
        max_transfer_count_on_message_in_memory=in_memory,
        max_transfer_bytes_on_message_in_disk=2500,
        max_transfer_bytes_on_message_in_memory=4500,
        check_crc_on_read=check,
    )
    for where in damaged:
        damage(files, int(where * (store.end_offset - 1)))
    if removed and len(store._log.segments.starts) > 1:
        # Queues do not know of it yet.
        store._log.remove_first()
    reader = QueueReader(store.config, store._log, memory_bytes)
    limits = ReadLimits(
        store.config, max_count, max_bytes, reader.cached_bytes, check_fresh=check_fresh
    )
    usual = not damaged and not removed and memory_bytes in (0, _ALL)
    for queue in queues_of(store):
        for offset in range(queue.min_offset, queue.max_offset):
            each = reader.read_each(queue, offset, limits)
            once = reader.read_at_once(queue, offset, limits)
            if once is None:
                assert not usual or max_count <= 0 or in_memory == on_disk == 0
            else:
                assert once == each
            wanted = queue, offset, max_count, max_bytes, EVERY_MESSAGE
            assert reader.read(*wanted, check_fresh=check_fresh) == each


@given(
    tags=st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=30), max_size=5),
    bodies=st.lists(st.integers(0, 700), min_size=1, max_size=5),
    wanted=st.sets(st.sampled_from("abc")),
    max_count=st.integers(-1, 12),
    max_bytes=st.integers(0, 6000),
    memory_bytes=st.sampled_from([0, 2000, 20_000, _ALL]),
    scanned=st.sampled_from([20, 200, 16_000]),
    in_disk=st.integers(0, 6),
    removed=st.booleans(),
    spoilt=st.lists(st.tuples(st.integers(0, 149), st.sampled_from([-(2**31), -(2**31) + 1]))),
)
def test_tags_are_looked_at_in_one_go_as_one_by_one(
    tags: list[list[str]],
    bodies: list[int],
    wanted: set[str],
    max_count: int,
    max_bytes: int,
    memory_bytes: int,
    scanned: int,
    in_disk: int,
    removed: bool,
    spoilt: list[tuple[int, int]],
) -> None:
    files = MemoryFiles()
    store = open_store(
        files,
        ManualClock(),
        max_filter_message_size=scanned,
        max_transfer_count_on_message_in_disk=in_disk,
        max_transfer_bytes_on_message_in_disk=2500,
    )
    body_sizes = cycle(bodies)
    for turn in tags:
        put(store, *[make_message(bytes(next(body_sizes)), tags=tag) for tag in turn])
    if removed and len(store._log.segments.starts) > 1:
        store._log.remove_first()
    queue = store._queues.find("Topic", 0)
    if queue is None:
        return
    for number, size in spoilt:
        if number < queue.max_offset:
            start, at = divmod(number * UNIT_SIZE, queue.segments.file_size)
            file = files.open(queue.segments.path(start * queue.segments.file_size))
            file.pwrite(size.to_bytes(4, "big", signed=True), at + 8)
    reader = QueueReader(store.config, store._log, memory_bytes)
    by_tag = MessageFilter(FewTagCodes(map(java_hash_code, wanted)))
    for offset in range(queue.min_offset, queue.max_offset):
        limits = queue, offset, max_count, max_bytes, by_tag
        at_once = reader.read(*limits)
        with patch.object(QueuePass, "_take_by_tag", lambda *_: None):
            assert reader.read(*limits) == at_once


def test_a_read_looks_at_no_more_units_than_it_is_worth() -> None:
    """However many messages it asks for: all units of a file would be looked at in one go."""
    store = open_store(
        MemoryFiles(), max_filter_message_size=1000, mapped_file_size_consume_queue=20_000
    )
    put(store, *[make_message(b"x", tags="a") for _ in range(300)])
    queue = store._queues.find("Topic", 0)
    assert queue is not None
    asked: list[int] = []
    plain = queue.read

    def read(offset: int, count: int) -> bytes:
        asked.append(count)
        return plain(offset, count)

    queue.read = read  # type: ignore[method-assign]
    by_tag = MessageFilter(frozenset([java_hash_code("b")]).__contains__)
    assert store.read_queue("Topic", 0, 0, 2**31 - 1, _ALL, by_tag).next_offset >= 50
    assert max(asked) <= 64


@given(sent=turns, where=st.floats(0, 1), wanted=st.sampled_from((EVERY_MESSAGE, ASKED)))
def test_a_damaged_record_is_left_out_and_no_other(
    sent: list[list[tuple[int, int]]], where: float, wanted: MessageFilter
) -> None:
    files = MemoryFiles()
    store = fill(files, sent)
    units = [
        UNIT.unpack(queue.read(offset, 1))[:2]
        for queue in queues_of(store)
        for offset in range(queue.max_offset)
    ]
    position, _size = units[int(where * (len(units) - 1))]
    damage(files, position + 4)
    reader = QueueReader(store.config, store._log, _ALL)
    found = []
    for queue in queues_of(store):
        offset = 0
        while offset < queue.max_offset:
            read = reader.read(queue, offset, 32, _ALL, wanted)
            assert read.next_offset > offset
            found += [message.physical_offset for message in decode_records(read.data)]
            offset = read.next_offset
    assert sorted(found) == sorted({unit[0] for unit in units} - {position})


@pytest.mark.parametrize("wanted", [EVERY_MESSAGE, ASKED], ids=["at once", "each"])
def test_a_body_that_a_disk_may_have_spoilt_is_left_out(wanted: MessageFilter) -> None:
    """Where this process made it, and memory holds it, there was no disk between."""
    files, copied = MemoryFiles(), MemoryFiles()
    store, copy = open_store(files), open_store(copied)
    *_, last = put(store, *[make_message(b"body-%d" % number) for number in range(3)])
    log = store._log.read(store.end_offset, 0)
    copy.append_raw(0, log)
    put(copy)

    def found(
        store: MessageStore, memory_bytes: int = _ALL, *, check_fresh: bool = False
    ) -> list[bytes]:
        (queue,) = queues_of(store)
        reader = QueueReader(store.config, store._log, memory_bytes)
        read = reader.read(queue, 0, 32, _ALL, wanted, check_fresh=check_fresh)
        return re.findall(rb".ody-.", read.data)

    for each in (files, copied):
        damage(each, log.index(b"body-1"))
    assert found(store) == [b"body-0", b'"ody-1', b"body-2"]
    assert found(store, check_fresh=True) == [b"body-0", b"body-2"]
    assert found(store, store.end_offset - last) == [b"body-0", b"body-2"]
    assert found(copy) == [b"body-0", b"body-2"]
    damage(files, log.index(b"body-1"))
    store.close()
    store = open_store(files)
    damage(files, log.index(b"body-1"))
    assert found(store) == [b"body-0", b"body-2"]


def test_what_stands_far_apart_is_read_apart() -> None:
    files = MemoryFiles()
    store = open_store(files, mapped_file_size_commit_log=1 << 20, max_message_size=1 << 19)
    big = bytes(60_000)
    put(store, *[make_message(bytes(9) if n % 2 else big, queue_id=n % 2) for n in range(8)])
    read: list[int] = []
    plain = store._log.read
    store._log.read = lambda size, offset: read.append(size) or plain(size, offset)  # type: ignore
    found = store.read_queue("Topic", 1, 0, 32, _ALL)
    assert found.messages == 4
    assert sum(read) == len(found.data)


def test_truncation_shows_in_the_next_read() -> None:
    files = MemoryFiles()
    store = open_store(files)
    first = put(store, *[make_message(b"old-%d" % n, queue_id=n % 2) for n in range(12)])
    assert store.read_queue("Topic", 0, 0, 32, _ALL).messages == 6
    cut(store, first[4])
    put(store, *[make_message(b"new-%d" % n, queue_id=n % 2) for n in range(4)])
    read = store.read_queue("Topic", 0, 0, 32, _ALL)
    bodies = [message.body for message in decode_records(read.data)]
    assert bodies == [b"old-0", b"old-2", b"new-0", b"new-2"]
    assert read.status is GetStatus.FOUND
    positions = [message.physical_offset for message in decode_records(read.data)]
    assert all(before < after for before, after in pairwise(positions))


@pytest.mark.parametrize(
    ("wanted", "found"),
    [(EVERY_MESSAGE, 5), (ASKED, 5), (MessageFilter(java_hash_code("a").__eq__), 5)],
    ids=["every message", "each is asked", "by tag"],
)
@pytest.mark.parametrize("rest", range(1, UNIT_SIZE))
def test_a_queue_file_that_was_cut_off_within_a_unit(
    wanted: MessageFilter, found: int, rest: int
) -> None:
    """Whole units are read; behind them readers go on with the next file."""
    files = MemoryFiles()
    store = open_store(files)
    put(store, *[make_message(b"%d" % number, tags="a") for number in range(25)])
    files.open(f"{ROOT}/consumequeue/Topic/0/{0:020d}").truncate(5 * UNIT_SIZE + rest)
    read = store.read_queue("Topic", 0, 0, 32, _ALL, wanted)
    assert (read.status, read.messages, read.next_offset) == (GetStatus.FOUND, found, 5)
    behind = store.read_queue("Topic", 0, 5, 32, _ALL, wanted)
    assert (behind.messages, behind.next_offset) == (0, 10)


@pytest.mark.parametrize(
    "first, between, most, reads_in_all",
    [
        (1, 0, 100_000, 1),
        (1, 1, 64 << 10, 3),
        (1, 10, 64 << 10, 20),
        # One gap, and all others behind it: these are a read of their own.
        (100, 1, 100_000, 3),
    ],
)
def test_a_read_takes_little_of_what_lies_between(
    first: int, between: int, most: int, reads_in_all: int
) -> None:
    """What stands next to each other is one read; where others' messages lie between, none is
    longer than 64 KiB, and they come in a few."""
    size, count = 700, 100
    turn = [*[(0, size)] * first, *[(1, size)] * between]
    files = MemoryFiles()
    store = fill(
        files,
        [[(0, size), (1, size)], turn] if first > 1 else [turn] * count,
        mapped_file_size_commit_log=4 << 20,
        mapped_file_size_consume_queue=20_000,
        max_transfer_bytes_on_message_in_memory=4 << 20,
        max_transfer_count_on_message_in_memory=count,
    )
    (queue, *_) = queues_of(store)
    limits = ReadLimits(store.config, count, 4 << 20, _ALL)
    reads = []

    def read(wanted: int, offset: int) -> bytes:
        reads.append(wanted)
        return CommitLog.read(store._log, wanted, offset)

    reader = QueueReader(store.config, store._log, _ALL)
    with patch.object(store._log, "read", read):
        found = reader.read_at_once(queue, 0, limits)
    assert found is not None
    assert found == reader.read_each(queue, 0, limits)
    assert found.messages == count
    assert max(reads) <= most
    assert len(reads) <= reads_in_all
