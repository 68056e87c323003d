"""What stands behind a truncation never comes back, and what stands in front of it stays."""

import errno

import pytest

from rocketmq_tw.files.faulty import Fault, FaultyFiles, PowerLoss
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.store.errors import NotWritableError
from rocketmq_tw.store.message_store import MessageStore
from tests.support.masters_log import MastersLog
from tests.support.stores import (
    START_MS,
    ManualClock,
    by_key,
    make_message,
    open_store,
    put,
    read_all,
)


@pytest.fixture
def files() -> MemoryFiles:
    return MemoryFiles()


def bodies(store: MessageStore) -> list[bytes]:
    return [message.body for message in read_all(store)]


def numbered(first: int, count: int, *, size: int = 400) -> list[bytes]:
    return [b"%d " % number + bytes(size) for number in range(first, first + count)]


def fill(store: MessageStore, found: list[bytes]) -> list[int]:
    return put(store, *[make_message(body, keys=f"k{int(body.split()[0])}") for body in found])


def has_key(store: MessageStore, number: int) -> bool:
    return bool(by_key(store, "Topic", f"k{number}", 9, 0, 1 << 62))


def copy(store: MessageStore, first: int, found: list[bytes], timestamp: int) -> None:
    """What a slave does with its master's messages."""
    master = MastersLog(store.end_offset, 4096)
    for number, body in enumerate(found, first):
        message = make_message(body, keys=f"k{int(body.split()[0])}")
        master.add(message, number, timestamp)
    store.append_raw(master.start, master.read(master.start, 1 << 20))
    store.write_pending()


def test_next_offsets_are_not_known_while_the_log_in_front_is_not_dispatched(
    files: MemoryFiles,
) -> None:
    store = open_store(files, flush_disk_type="SYNC_FLUSH")
    found = numbered(0, 4)
    offsets = [store.append(make_message(body)).physical_offset for body in found]
    store.write_pending()
    store.truncate_to(offsets[3])
    with pytest.raises(NotWritableError, match="not dispatched"):
        store.append(make_message())
    store.fsync()
    store.dispatch()
    assert store.append(make_message()).queue_offset == 3


@pytest.mark.parametrize("seed", [None, *range(10)])
def test_a_log_that_is_cut_to_its_oldest_file_still_knows_where_it_is(
    files: MemoryFiles, seed: int | None
) -> None:
    clock = ManualClock()
    store = open_store(files, clock)
    fill(store, numbered(0, 30))
    store.checkpoint()
    clock.now_ms += 100 * 3_600_000
    assert sum(store.clean(clock.now_ms, at_any_hour=True))
    first = store.min_physical_offset
    assert first > 0
    store.truncate_to(first)
    end = store.max_queue_offset("Topic", 0)
    for after in (files.kill(), files.crash(seed)):
        again = open_store(after)
        assert (again.min_physical_offset, again.end_offset) == (first, first)
        assert again.append(make_message()).queue_offset == end > 0


def test_a_log_without_a_message_begins_where_its_masters_does(files: MemoryFiles) -> None:
    store = open_store(files)
    fill(store, numbered(0, 3))
    store.truncate_to(0)
    master = MastersLog(8192, 4096)
    master.add(make_message(b"first"), 7, START_MS)
    store.append_raw(8192, master.read(8192, 4096))
    store.write_pending()
    store.fsync()
    store.dispatch()
    assert bodies(store) == [b"first"]
    assert store.min_physical_offset == 8192
    assert bodies(open_store(files.crash())) == [b"first"]


@pytest.mark.parametrize("seed", [None, *range(20)])
@pytest.mark.parametrize("checkpoint", ["before", "none"])
def test_messages_that_are_older_come_in_place_of_what_was_cut(
    files: MemoryFiles, checkpoint: str, seed: int | None
) -> None:
    """Another master's clock was behind: times say nothing of what is safe."""
    store = open_store(files)
    offsets = fill(store, numbered(0, 40))
    store.checkpoint()
    kept = numbered(0, 20)
    store.truncate_to(offsets[20])
    if checkpoint == "before":
        store.checkpoint()
    copy(store, 20, numbered(100, 40), START_MS - 3_600_000)
    store.dispatch()
    after = open_store(files.crash(seed))
    found = bodies(after)
    assert found[:20] == kept
    assert found[20:] == numbered(100, 40)[: len(found) - 20]
    assert all(has_key(after, int(body.split()[0])) for body in found)


@pytest.mark.parametrize("seed", range(40))
def test_keys_of_what_was_cut_do_not_hide_those_that_follow(files: MemoryFiles, seed: int) -> None:
    store = open_store(files)
    offsets = fill(store, numbered(0, 30, size=20))
    store.checkpoint()
    store.truncate_to(offsets[12])
    fill(store, numbered(100, 12, size=30))
    store.search_by_key("Topic", "k1", 1, 0, 1, [])
    after = open_store(files.crash(seed))
    for body in bodies(after):
        assert has_key(after, int(body.split()[0])), body


@pytest.mark.parametrize("cut", [False, True])
def test_a_cut_of_the_index_is_interrupted_anywhere(cut: bool) -> None:
    """By a truncation, or by a start that finds less of the log."""
    moment = 1
    while True:
        memory = MemoryFiles()
        disk = FaultyFiles(memory)
        store = open_store(disk)
        offsets = fill(store, numbered(0, 30, size=20))
        store.checkpoint()
        disk.lose_power_at = disk.changes + moment
        try:
            if cut:
                store.truncate_to(offsets[12])
            else:
                store.dispatch_limit = offsets[12]
                disk = FaultyFiles(memory.kill())
                disk.lose_power_at = moment
                limited = MessageStore(store.config, disk, ManualClock())
                limited.dispatch_limit = offsets[12]
                limited.load()
            break
        except PowerLoss:
            inner = disk.inner
            assert isinstance(inner, MemoryFiles)
            for after in (inner.kill(), inner.crash(), inner.crash(moment)):
                again = open_store(after)
                for body in bodies(again):
                    assert has_key(again, int(body.split()[0])), (moment, body)
        moment += 1
    assert moment > 10


def test_an_index_header_that_cannot_be_written_is_not_behind_its_entries() -> None:
    memory = MemoryFiles()
    disk = FaultyFiles(memory)
    store = open_store(disk)
    fill(store, numbered(0, 10, size=20))
    store.checkpoint()
    # The first call writes the entries, the second one the header.
    disk.faults.append(Fault("pwrite", "/index/", errno.ENOSPC, skip=1, times=1))
    fill(store, numbered(10, 50, size=20))
    with pytest.raises(NotWritableError):
        store.checkpoint()
    store.checkpoint()
    assert [by_key(store, "Topic", f"k{n}", 9, 0, 1 << 62) for n in range(60)] == [
        [message.physical_offset] for message in read_all(store)
    ]
    store.close()
    store = open_store(memory.kill())
    assert all(has_key(store, number) for number in range(60))


def test_nothing_is_claimed_or_removed_behind_a_truncation_that_failed() -> None:
    memory = MemoryFiles()
    disk = FaultyFiles(memory)
    clock = ManualClock()
    store = open_store(disk, clock)
    offsets = fill(store, numbered(0, 30))
    store.checkpoint()
    disk.faults.append(Fault("truncate", "consumequeue", errno.ENFILE, skip=1, times=1))
    with pytest.raises(NotWritableError, match="restart"):
        store.truncate_to(offsets[25])
    disk.faults.clear()
    clock.now_ms += 100 * 3_600_000
    assert store.prepare_checkpoint() is None
    assert sum(store.clean(clock.now_ms, at_any_hour=True)) == 0
    assert bodies(open_store(memory.kill()))[:25] == numbered(0, 25)


def test_old_messages_stay_until_what_a_topic_begins_anew_with_is_durable(
    files: MemoryFiles,
) -> None:
    """Its master deleted the topic; the power takes the message that says so."""
    store = open_store(files)
    old = numbered(0, 9)
    fill(store, old)
    store.checkpoint()
    copy(store, 0, [b"1 new"], START_MS)
    store.dispatch()
    assert bodies(store) == old
    assert bodies(open_store(files.crash())) == old
    store.fsync()
    store.dispatch()
    assert bodies(store) == [b"1 new"]
    assert bodies(open_store(files.crash())) == [b"1 new"]


@pytest.mark.parametrize("directory", ["commitlog", "consumequeue"])
def test_killed_while_the_only_file_is_emptied(directory: str) -> None:
    """Retention removed those in front of it: nothing else says where log and queue are."""
    memory = MemoryFiles()
    disk = FaultyFiles(memory)
    clock = ManualClock()
    store = open_store(disk, clock)
    fill(store, numbered(0, 38))
    store.checkpoint()
    for _ in range(5):
        clock.now_ms += 100 * 3_600_000
        sum(store.clean(clock.now_ms, at_any_hour=True))
        store.checkpoint()
        fill(store, [b"38 later"])
        store.checkpoint()
    first, end = store.min_physical_offset, store.max_queue_offset("Topic", 0)
    assert store._queues.find("Topic", 0).segments.starts[0] > 0  # type: ignore[union-attr]
    assert first > 0
    disk.faults.append(Fault("truncate", directory, errno.EIO, skip=1, times=1))
    with pytest.raises(NotWritableError):
        store.truncate_to(first)
    store = open_store(memory.kill())
    assert store.end_offset == first
    assert 30 <= store.max_queue_offset("Topic", 0) <= end


def test_a_topic_is_deleted_while_a_cut_that_failed_may_be_undone() -> None:
    memory = MemoryFiles()
    disk = FaultyFiles(memory)
    store = open_store(disk)
    offsets = fill(store, numbered(0, 40))
    disk.faults.append(Fault("sync_dir", "commitlog", errno.EIO, times=1))
    with pytest.raises(NotWritableError):
        store.truncate_to(offsets[5])
    store.remove_topics(["Topic"])
    # The log cannot be synced any more, deletions can.
    with pytest.raises(NotWritableError):
        store.fsync()
    assert bodies(open_store(memory.crash())) == []


def test_a_write_that_fails_in_the_only_file_leaves_the_file() -> None:
    memory = MemoryFiles()
    disk = FaultyFiles(memory)
    clock = ManualClock()
    store = open_store(disk, clock)
    fill(store, numbered(0, 30))
    store.checkpoint()
    clock.now_ms += 100 * 3_600_000
    assert sum(store.clean(clock.now_ms, at_any_hour=True))
    first, end = store.min_physical_offset, store.max_queue_offset("Topic", 0)
    store.truncate_to(first)
    disk.faults.append(Fault("pwrite", "commitlog", errno.EIO, times=1))
    store.append(make_message())
    with pytest.raises(NotWritableError):
        store.write_pending()
    store = open_store(memory.kill())
    assert store.end_offset == first > 0
    assert 0 < store.max_queue_offset("Topic", 0) <= end


def test_an_index_file_built_anew_is_not_taken_for_the_one_that_was_lost(
    files: MemoryFiles,
) -> None:
    """Both begin with the same message, and the checkpoint has a mark of the former."""
    store = open_store(files)
    fill(store, numbered(0, 20, size=20))
    store.checkpoint()
    files = files.kill()
    files.remove_tree("/store/index")
    store = open_store(files)
    assert has_key(store, 3)
    store = open_store(files.kill())
    assert all(has_key(store, number) for number in range(20))


@pytest.mark.parametrize("seed", range(20))
def test_a_refused_message_is_not_found_in_front_of_its_successor(seed: int) -> None:
    """Both are the first of their queue, as of a topic that was deleted and made again."""
    memory = MemoryFiles()
    disk = FaultyFiles(memory)
    store = open_store(disk)
    fill(store, numbered(0, 3))
    store.append(make_message(b"refused", queue_id=1))
    disk.faults.append(Fault("pwrite", "commitlog", errno.ENOSPC, times=1, kept=600))
    with pytest.raises(NotWritableError):
        store.write_pending()
    store.append(make_message(b"another", topic="Other"))
    store.append(make_message(b"accepted", queue_id=1))
    store.write_pending()
    assert bodies(open_store(memory.crash(seed))) == numbered(0, 3)
