"""A store is truncated, and the power or the process goes away at every single step of it."""

import errno

import pytest

from rocketmq_tw.files.faulty import Fault, FaultyFiles, PowerLoss
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.store.errors import NotWritableError, StoreError
from rocketmq_tw.store.message_store import MessageStore
from tests.support.stores import by_key, cut, make_message, open_store, put, read_all

_COUNT = 30


def filled(disk: FaultyFiles) -> tuple[MessageStore, list[int]]:
    store = open_store(disk, flush_disk_type="SYNC_FLUSH")
    offsets = put(
        store, *[make_message(b"%d " % n + bytes(500), keys=f"k{n}") for n in range(_COUNT)]
    )
    store.checkpoint()
    return store, offsets


def check(files: MemoryFiles, kept: int) -> None:
    """All in front of the cut is there, in order, and the store goes on behind its end."""
    store = open_store(files, flush_disk_type="SYNC_FLUSH")
    found = [int(message.body.split()[0]) for message in read_all(store)]
    assert found == list(range(len(found)))
    assert len(found) >= kept
    for number in found[-3:]:
        assert by_key(store, "Topic", f"k{number}", 9, 0, 1 << 62)
    assert store.append(make_message()).queue_offset == len(found)


@pytest.mark.parametrize("kept", [0, 3, 7, 20, 29])
def test_every_moment_of_a_truncation(kept: int) -> None:
    moment = 1
    while True:
        memory = MemoryFiles()
        disk = FaultyFiles(memory)
        store, offsets = filled(disk)
        disk.changes, disk.lose_power_at = 0, moment
        try:
            cut(store, offsets[kept])
            break
        except PowerLoss:
            check(memory.kill(), kept)
            for seed in (None, 1, 2, 3):
                check(memory.crash(seed), kept)
        moment += 1
    assert moment > 5
    assert [len(read_all(open_store(files))) for files in (memory.crash(), memory.kill())] == [
        kept,
        kept,
    ]


@pytest.mark.parametrize("operation", ["truncate", "fsync", "remove", "sync_dir", "pwrite"])
def test_a_truncation_that_fails_ends_all_writing(operation: str) -> None:
    memory = MemoryFiles()
    disk = FaultyFiles(memory)
    store, offsets = filled(disk)
    disk.faults.append(Fault(operation, error=errno.EIO, times=1))
    with pytest.raises(StoreError):
        cut(store, offsets[7])
    disk.faults.clear()
    with pytest.raises(NotWritableError, match="restart"):
        store.append(make_message())
    store.close()
    check(memory.kill(), 7)


def test_killed_while_recovery_cuts_the_log_after_a_clean_stop() -> None:
    """The store was closed: only recovery itself can have left what the next one finds."""
    memory = MemoryFiles()
    disk = FaultyFiles(memory)
    store, _offsets = filled(disk)
    store.close()
    moment = 1
    while True:
        files = memory.kill()
        disk = FaultyFiles(files)
        disk.lose_power_at = moment
        log = f"{store.paths.commit_log}/{0:020d}"
        # As stock leaves it: no checkpoint of ours.
        files.remove(store.paths.checkpoint)
        try:
            open_store(disk)
            break
        except PowerLoss:
            assert files.read(log)
            check(files.kill(), _COUNT)
        moment += 1
    assert moment > 5
