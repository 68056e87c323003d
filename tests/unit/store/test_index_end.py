"""An index that lost its end gets it back, whatever clocks say and however starts fail."""

import errno
from contextlib import suppress

import pytest

from rocketmq_tw.files.faulty import Fault, FaultyFiles
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.store.errors import StoreError
from rocketmq_tw.store.message_store import MessageStore
from tests.support.power import aftermaths
from tests.support.stores import ROOT, ManualClock, by_key, make_message, open_store, put

INDEX = f"{ROOT}/index"


def fill(store: MessageStore, first: int, last: int) -> None:
    put(store, *[make_message(keys=f"k{number}") for number in range(first, last)])


def lost(store: MessageStore, count: int) -> list[int]:
    """The numbers of messages without a key."""
    return [n for n in range(count) if not by_key(store, "Topic", f"k{n}", 9, 0, 1 << 62)]


def index_paths(store: MessageStore) -> list[str]:
    """The files in the order of their messages, with all keys written."""
    store._index.write_pending()
    return [index.path for index in store._index._list]


def test_a_lost_end_shows_where_younger_messages_have_older_times() -> None:
    files, clock = MemoryFiles(), ManualClock()
    store = open_store(files, clock)
    fill(store, 0, 60)
    # As from a new master, whose clock is behind.
    clock.now_ms -= 3_600_000
    fill(store, 60, 100)
    store.checkpoint()
    after = files.kill()
    after.remove(f"{INDEX}/{after.list(INDEX)[-1]}")
    assert lost(open_store(after, clock), 100) == []


def test_a_new_file_waits_for_no_disk() -> None:
    """Where a checkpoint has made the one in front of it durable; the first one never."""
    disk = FaultyFiles(MemoryFiles())
    store = open_store(disk)
    for number in range(0, 200, 20):
        disk.asked.clear()
        fill(store, number, number + 20)
        index_paths(store)
        assert not [
            path for name, path in disk.asked if INDEX in path and name in ("fsync", "sync_dir")
        ]
        store.checkpoint()
    assert len(index_paths(store)) == 6
    assert lost(store, 200) == []


def test_a_file_that_no_checkpoint_has_is_durable_before_the_next_one_is_made() -> None:
    disk = FaultyFiles(MemoryFiles())
    store = open_store(disk)

    def work() -> None:
        fill(store, 0, 150)
        assert len(index_paths(store)) == 4

    seen = set()
    for moment, left, _ in aftermaths(disk, work, seeds=range(4)):
        seen.add(len(left.list(INDEX)) if left.exists(INDEX) else 0)
        store_again = open_store(left)
        count = store_again.max_queue_offset("Topic", 0)
        assert lost(store_again, count) == [], moment
    assert len(seen) > 3


@pytest.mark.parametrize("operation", ["fsync", "sync_dir"])
@pytest.mark.parametrize("errors", [1, 2])
def test_no_checkpoint_vouches_for_a_file_that_could_not_be_synced(
    errors: int, operation: str
) -> None:
    """The disk has lost what it was to write, and a later sync does not tell."""
    disk = FaultyFiles(MemoryFiles())
    store = open_store(disk)
    fill(store, 0, 39)
    (path,) = index_paths(store)
    unsynced = path if operation == "fsync" else INDEX
    disk.faults.append(Fault(operation, unsynced, errno.EIO, times=errors))
    fill(store, 39, 80)
    for first in range(80, 140, 20):
        with suppress(StoreError):
            store.checkpoint()
        fill(store, first, first + 20)
    assert "index could not be synced" in store.failure
    assert store.dispatched_offset == store.end_offset
    after = open_store(disk.inner.crash())
    assert lost(after, 140) == []


@pytest.mark.parametrize("operation", ["create", "truncate"])
def test_a_file_that_cannot_be_made_is_not_left_in_the_middle(operation: str) -> None:
    disk, clock = FaultyFiles(MemoryFiles()), ManualClock()
    store = open_store(disk, clock)
    fill(store, 0, 39)
    store.checkpoint()
    files = disk.list(INDEX)
    disk.faults.append(Fault(operation, "index", errno.ENOSPC, times=1))
    fill(store, 39, 60)
    with pytest.raises(StoreError):
        store.prepare_checkpoint()
    assert disk.list(INDEX) == files
    clock.now_ms += 1000
    store.checkpoint()
    assert len(disk.list(INDEX)) == 2
    assert lost(open_store(disk.inner.kill(), clock), 60) == []


def test_a_start_that_failed_half_way_leaves_no_clean_store() -> None:
    disk, clock = FaultyFiles(MemoryFiles()), ManualClock()
    store = open_store(disk, clock)
    fill(store, 0, 50)
    store.close()
    clean = disk.inner
    # The queues have to be built again, and the index with them.
    clean.remove_tree(f"{ROOT}/consumequeue")
    clean.remove(f"{INDEX}/{clean.list(INDEX)[-1]}")
    failed = 0
    for skip in range(30):
        disk = FaultyFiles(clean.kill())
        disk.faults.append(Fault("pwrite", "", errno.EIO, skip=skip, times=1))
        try:
            open_store(disk, clock)
        except (StoreError, OSError):
            failed += 1
            for seed in range(8):
                assert lost(open_store(disk.inner.crash(seed), clock), 50) == []
    assert failed


@pytest.mark.parametrize("clean", [True, False])
def test_a_clock_that_is_set_back_costs_no_key(clean: bool) -> None:
    files, clock = MemoryFiles(), ManualClock()
    store = open_store(files, clock)
    fill(store, 0, 39)
    index_paths(store)
    clock.now_ms -= 3_600_000
    fill(store, 39, 60)
    paths = index_paths(store)
    assert len(paths) == 2
    assert paths == [f"{INDEX}/{name}" for name in files.list(INDEX)]
    if clean:
        store.close()
    else:
        store.checkpoint()
        files = files.kill()
    again = open_store(files, clock)
    assert lost(again, 60) == []
    assert index_paths(again) == paths


@pytest.mark.parametrize("clean", [True, False])
def test_files_are_told_by_what_they_begin_with_and_not_by_names(clean: bool) -> None:
    files, clock = MemoryFiles(), ManualClock()
    store = open_store(files, clock)
    fill(store, 0, 80)
    first, second = index_paths(store)[:2]
    store.checkpoint()
    if clean:
        store.close()
    else:
        files = files.kill()
    # As a broker that goes by the clock alone names it, before the clock is set back.
    files.rename(first, first[:-17] + "29991231235959999")
    again = open_store(files, clock)
    assert lost(again, 80) == []
    assert index_paths(again)[1] == second
    fill(again, 80, 120)
    assert lost(again, 120) == []
    # Others, which go by names, find the newest messages in the last one.
    paths = index_paths(again)
    assert paths[-1] == max(paths)


def test_a_file_that_is_in_the_way_is_not_taken_for_a_new_one() -> None:
    files = MemoryFiles()
    store = open_store(files)
    fill(store, 0, 39)
    (path,) = index_paths(store)
    taken = f"{INDEX}/{int(path.rpartition('/')[2]) + 1}"
    left = files.open(taken, create=True)
    left.pwrite(b"left", 0)
    fill(store, 39, 60)
    assert index_paths(store) == [path, f"{INDEX}/{int(path.rpartition('/')[2]) + 2}"]
    assert files.read(taken) == b"left"
