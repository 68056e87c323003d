"""Units of consume queues that readers see and the files do not have yet."""

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_tw.files.faulty import Fault, FaultyFiles
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.store import queues
from rocketmq_tw.store.consume_queue import ConsumeQueue, QueueFiles
from rocketmq_tw.store.dispatch_entries import BatchEntry
from rocketmq_tw.store.errors import NotWritableError
from rocketmq_tw.store.handles import HandlePool, Unsynced
from rocketmq_tw.store.queue_extension import QueueExtensions
from rocketmq_tw.store.queue_units import UNIT, UNIT_SIZE
from rocketmq_tw.store.queues import QueueTable
from rocketmq_tw.store.unwritten import UNWRITTEN_LIMIT, QueueTotals, Unwritten
from tests.support.stores import ManualClock, make_message, open_store, put, read_all, small_config

_FILE = 8 * UNIT_SIZE


def open_queue(files, unwritten: Unwritten, name: str = "0") -> ConsumeQueue:
    pool = HandlePool(files, 4)
    path = f"/queues/{name}"

    def make_directory(_: ConsumeQueue) -> None:
        files.make_dirs(path)

    shared = QueueFiles(pool, _FILE, Unsynced(), unwritten, QueueTotals(), make_directory)
    return ConsumeQueue(shared, path, "Topic", 0)


def fill(queue: ConsumeQueue, count: int) -> None:
    for number in range(queue.max_offset, queue.max_offset + count):
        assert queue.put(number, 100 * number, 100, number)
    queue.write_pending()


def written(files, name: str = "0") -> int:
    """Units that the queue's first file has."""
    data = files.read(f"/queues/{name}/{0:020d}")
    return sum(any(data[at + 8 : at + 12]) for at in range(0, len(data), UNIT_SIZE))


@given(turns=st.lists(st.integers(1, 6), max_size=8), write_after=st.integers(0, 8))
def test_reads_find_units_wherever_they_are(turns: list[int], write_after: int) -> None:
    plain = b"".join(UNIT.pack(100 * number, 100, number) for number in range(sum(turns)))
    files = MemoryFiles()
    queue = open_queue(files, Unwritten())
    for turn, count in enumerate(turns):
        fill(queue, count)
        if turn == write_after:
            queue.write_out()
    assert queue.max_offset == queue.next_offset == sum(turns)
    for offset in range(sum(turns) + 1):
        for count in range(sum(turns) + 2 - offset):
            data = queue.read(offset, count)
            whole = plain[offset * UNIT_SIZE : (offset + count) * UNIT_SIZE]
            # Never past the end of a file, never less than up to there.
            rest = (_FILE - offset * UNIT_SIZE % _FILE) if whole else 0
            assert data == whole[:rest]


def test_units_stay_in_memory_until_they_are_written_out() -> None:
    files = MemoryFiles()
    queue = open_queue(files, Unwritten())
    fill(queue, 1)
    fill(queue, 2)
    fill(queue, 3)
    # The first made the file.
    assert written(files) == 1
    assert queue.unit(5) == (500, 100, 5)
    assert written(files) == 1
    queue.write_out()
    assert written(files) == 6


def test_units_for_the_next_file_are_written_with_those_before_them() -> None:
    files = MemoryFiles()
    queue = open_queue(files, Unwritten())
    for _ in range(9):
        fill(queue, 1)
    assert written(files) == 8
    assert [queue.unit(number).tags_code for number in range(9)] == list(range(9))


def test_the_queue_that_has_waited_longest_is_written_first() -> None:
    files, unwritten = MemoryFiles(), Unwritten(limit=4)
    first, second = (open_queue(files, unwritten, name) for name in "01")
    for queue in first, second:
        fill(queue, 1)
        fill(queue, 3)
    assert (written(files, "0"), written(files, "1")) == (1, 1)
    unwritten.write_most()
    assert (written(files, "0"), written(files, "1")) == (4, 1)
    unwritten.write_all()
    assert written(files, "1") == 4


def test_a_cut_queue_forgets_units_that_only_memory_had() -> None:
    queue = open_queue(MemoryFiles(), Unwritten())
    fill(queue, 1)
    fill(queue, 5)
    queue.cut_behind(300)
    assert (queue.max_offset, queue.max_physical) == (3, 300)
    fill(queue, 1)
    assert queue.unit(3) == (300, 100, 3)


def test_a_write_that_fails_keeps_the_units() -> None:
    files = FaultyFiles(MemoryFiles())
    queue = open_queue(files, Unwritten())
    fill(queue, 1)
    fill(queue, 2)
    files.faults.append(Fault("pwrite", error=errno.ENOSPC, times=1))
    with pytest.raises(OSError, match="No space"):
        queue.write_out()
    assert queue.unit(2) == (200, 100, 2)
    queue.write_out()
    assert written(files) == 3


def test_a_store_keeps_what_it_showed_where_the_queues_cannot_be_written() -> None:
    files = FaultyFiles(MemoryFiles())
    store = open_store(files, ManualClock(), mapped_file_size_consume_queue=UNWRITTEN_LIMIT * 100)
    arrivals: list[int] = []
    store.on_arrival(lambda messages: arrivals.extend(each.queue_offset for each in messages))
    put(store, make_message())
    put(store, *[make_message() for _ in range(UNWRITTEN_LIMIT + 1)])
    fault = Fault("pwrite", "consumequeue")
    files.faults.append(fault)
    store.append(make_message())
    store.write_pending()
    assert store.dispatch() == 1
    assert store.max_queue_offset("Topic", 0) == UNWRITTEN_LIMIT + 3
    assert fault.hits
    files.faults.remove(fault)
    store.checkpoint()
    # Each is told of once, and all are there.
    assert arrivals == list(range(UNWRITTEN_LIMIT + 3))
    assert [message.queue_offset for message in read_all(store)] == arrivals


def test_units_in_memory_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues, "_MOST_UNWRITTEN", 20)
    files = FaultyFiles(MemoryFiles())
    store = open_store(files, ManualClock())
    files.faults.append(Fault("create", "consumequeue"))
    for queue_id in range(21):
        put(store, make_message(queue_id=queue_id))
    store.append(make_message(b"held back", queue_id=99))
    store.write_pending()
    with pytest.raises(NotWritableError, match="queues or index"):
        store.dispatch()
    assert store.max_queue_offset("Topic", 99) == 0
    files.faults.clear()
    assert store.dispatch() == 1
    assert [message.body for message in read_all(store, queue_id=99)] == [b"held back"]


def test_a_batch_that_a_queue_has_in_part_brings_what_is_missing() -> None:
    table = QueueTable(
        MemoryFiles(), "/consumequeue", UNIT_SIZE * 8, QueueExtensions(small_config(), "/ext")
    )
    batch = BatchEntry("T", 0, 0, 0, 300, 0, [0, 100, 200], [100] * 3, [5, 6, 7], (), 3)
    first, second, third = batch.one_by_one()
    assert table.put([first]) == [first]
    table.write_pending()
    assert table.put([batch]) == [second, third]
    table.write_pending()
    queue = table.find("T", 0)
    assert queue is not None
    assert [queue.unit(number) for number in range(4)] == [
        (0, 100, 5),
        (100, 100, 6),
        (200, 100, 7),
        None,
    ]


def test_a_queue_that_takes_nothing_is_not_counted_among_the_unwritten() -> None:
    unwritten = Unwritten(limit=1)
    first, second = (open_queue(MemoryFiles(), unwritten, name) for name in "01")
    fill(first, 1)
    fill(second, 1)
    first.write_pending()
    fill(second, 2)
    # It would be asked again and again for what it has not.
    unwritten.write_most()


def test_a_removed_topic_leaves_no_unit_to_write() -> None:
    files = MemoryFiles()
    store = open_store(files, ManualClock())
    put(store, make_message())
    put(store, make_message())
    store.remove_topics(["Topic"])
    store.checkpoint()
    assert not files.exists(f"{store.paths.consume_queue}/Topic")
    put(store, make_message())
    assert store.max_queue_offset("Topic", 0) == 1


@pytest.mark.parametrize("ends", ["close", "kill", "crash"])
def test_a_store_has_them_after_every_end(ends: str) -> None:
    files: MemoryFiles = MemoryFiles()
    store = open_store(files, ManualClock())
    put(store, make_message(b"a"))
    store.checkpoint()
    put(store, make_message(b"b"), make_message(b"c"))
    store.fsync()
    if ends == "close":
        store.close()
    else:
        files = files.kill() if ends == "kill" else files.crash()
    again = open_store(files, ManualClock())
    assert [message.body for message in read_all(again)] == [b"a", b"b", b"c"]


@pytest.mark.parametrize("how", ["checkpoint", "close", "restart"])
def test_the_file_has_them_after(how: str) -> None:
    files = MemoryFiles()
    store = open_store(files, ManualClock())
    put(store, make_message())
    offsets = put(store, make_message(), make_message())
    path = f"{store.paths.consume_queue}/Topic/0/{0:020d}"
    assert not any(files.read(path)[UNIT_SIZE:])
    if how == "restart":
        files = files.kill()
        open_store(files, ManualClock())
    else:
        getattr(store, how)()
    units = list(UNIT.iter_unpack(files.read(path)))
    assert [position for position, _, _ in units[1:3]] == offsets
    assert not any(units[3])
