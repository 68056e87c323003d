"""Checkpoints that are stopped between two files, or fail in their own."""

from collections.abc import Callable

import pytest

from rocketmq_tw.files.faulty import Fault, FaultyFiles
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.store.checkpoint import read_checkpoint
from rocketmq_tw.store.errors import NotWritableError, StoreError
from rocketmq_tw.store.message_store import MessageStore
from tests.support.stores import cut, make_message, open_store, put, read_all

QUEUES = 20


class SyncedFiles(FaultyFiles):
    """Notes which consume queues' files and directories are synced, and tells of each first."""

    def __init__(self, inner: MemoryFiles) -> None:
        super().__init__(inner)
        self.synced: list[str] = []
        self.tell: Callable[[int], None] = lambda count: None

    def check(self, operation: str, path: str) -> Fault | None:
        if operation in ("fsync", "sync_dir") and "/consumequeue/" in path:
            self.synced.append(path)
            self.tell(len(self.synced))
        return super().check(operation, path)


@pytest.fixture
def files() -> SyncedFiles:
    return SyncedFiles(MemoryFiles())


def safe_offset(store: MessageStore, files: SyncedFiles) -> int:
    return read_checkpoint(files, store.paths.checkpoint).safe_offset


def fill(store: MessageStore) -> None:
    put(store, *[make_message(b"%d" % number, queue_id=number) for number in range(QUEUES)])
    while store.dispatch():
        pass


def stopped_at(files: SyncedFiles, store: MessageStore, count: int) -> list[str]:
    """Writes a checkpoint that is stopped while it syncs its file number `count`; returns what it
    synced."""
    store.fsync()
    write = store.prepare_checkpoint()
    assert write is not None
    files.synced.clear()
    files.tell = lambda number: write.stop() if number == count else None
    assert write() is False
    files.tell = lambda number: None
    synced, files.synced = files.synced, []
    return synced


@pytest.mark.parametrize("count", [1, 7, QUEUES, QUEUES + 1, QUEUES + 5])
def test_one_that_is_stopped_syncs_no_further_file(files: SyncedFiles, count: int) -> None:
    store = open_store(files)
    before = safe_offset(store, files)
    fill(store)
    assert len(stopped_at(files, store, count)) == count
    assert safe_offset(store, files) == before


def test_the_next_one_syncs_the_rest_and_what_changed_since(files: SyncedFiles) -> None:
    store = open_store(files)
    fill(store)
    store.checkpoint()
    fill(store)
    first = stopped_at(files, store, 7)
    put(store, make_message(b"again", queue_id=1))
    changed = "/store/consumequeue/Topic/1/00000000000000000000"
    assert changed in first
    store.checkpoint()
    assert len(files.synced) == QUEUES - 7 + 1
    assert set(files.synced) & set(first) == {changed}
    assert safe_offset(store, files) == store.end_offset


def test_what_is_left_is_synced_though_nothing_else_changed(files: SyncedFiles) -> None:
    store = open_store(files)
    fill(store)
    stopped_at(files, store, 7)
    store.checkpoint()
    assert safe_offset(store, files) == store.end_offset
    after = open_store(files.inner.crash())
    assert [read_all(after, queue_id=number)[0].body for number in range(QUEUES)] == [
        b"%d" % number for number in range(QUEUES)
    ]
    assert after.report is not None and after.report.notes == []


def test_a_stop_syncs_what_is_left_once(files: SyncedFiles) -> None:
    store = open_store(files)
    fill(store)
    first = stopped_at(files, store, 7)
    store.close()
    assert not set(files.synced) & set(first)
    assert len(files.synced) + len(first) == len(set(files.synced) | set(first))


@pytest.mark.parametrize("seed", range(20))
def test_power_is_lost_behind_one_that_was_stopped(files: SyncedFiles, seed: int) -> None:
    store = open_store(files)
    fill(store)
    store.checkpoint()
    fill(store)
    stopped_at(files, store, 7)
    end = store.end_offset
    after = open_store(files.inner.crash(seed))
    assert after.end_offset == end
    for number in range(QUEUES):
        assert len(read_all(after, queue_id=number)) == 2


@pytest.mark.parametrize("seed", range(20))
def test_a_cut_comes_behind_one_that_was_stopped(files: SyncedFiles, seed: int) -> None:
    store = open_store(files)
    fill(store)
    store.checkpoint()
    end = store.end_offset
    fill(store)
    stopped_at(files, store, 7)
    cut(store, end)
    fill(store)
    store.checkpoint()
    after = open_store(files.inner.crash(seed))
    for number in range(QUEUES):
        assert [one.body for one in read_all(after, queue_id=number)] == [b"%d" % number] * 2
    assert after.report is not None and after.report.notes == []


@pytest.mark.parametrize("count", [1, 15, 100])
def test_a_cut_comes_behind_one_that_failed_in_its_file(files: SyncedFiles, count: int) -> None:
    store = open_store(files, mapped_file_size_commit_log=1 << 20)
    put(store, make_message())
    store.checkpoint()
    end = store.end_offset
    put(store, *[make_message(b"cut" * 20) for _ in range(10)])
    files.faults.append(Fault("fsync", "/checkpoint", times=1))
    with pytest.raises(OSError):
        store.checkpoint()
    assert safe_offset(store, files) == store.end_offset
    cut(store, end)
    assert safe_offset(store, files) <= end
    bodies = [b"%d" % number for number in range(count)]
    put(store, *map(make_message, bodies))
    after = open_store(files.inner.kill(), mapped_file_size_commit_log=1 << 20)
    assert [one.body for one in read_all(after)] == [b"body", *bodies]


def test_one_that_failed_in_its_file_is_written_again(files: SyncedFiles) -> None:
    store = open_store(files)
    fill(store)
    files.faults.append(Fault("fsync", "/checkpoint", times=1))
    with pytest.raises(OSError):
        store.checkpoint()
    store.checkpoint()
    assert safe_offset(store, FaultyFiles(files.inner.crash())) == store.end_offset


def test_what_could_not_be_taken_back_is_not_claimed_behind_a_restart(files: SyncedFiles) -> None:
    store = open_store(files)
    fill(store)
    store.checkpoint()
    files.faults.append(Fault("fsync", "/checkpoint", times=1))
    with pytest.raises(NotWritableError):
        cut(store, 0)
    # The page cache claims nothing, the disk still does.
    after = FaultyFiles(files.inner.kill())
    after.faults.append(Fault("pwrite", "/consumequeue/"))
    with pytest.raises(StoreError):
        open_store(after)
    assert isinstance(after.inner, MemoryFiles)
    assert read_checkpoint(after.inner.crash(), store.paths.checkpoint).safe_offset == -1


def test_deleted_queues_stay_until_one_is_written(files: SyncedFiles) -> None:
    store = open_store(files)
    fill(store)
    store.checkpoint()
    put(store, make_message(topic="Other"), make_message(topic="Other", queue_id=1))
    store.remove_topics(["Topic"])
    stopped_at(files, store, 1)
    assert files.list("/store/deletedqueues/0") == ["Topic"]
    store.checkpoint()
    assert files.list("/store/deletedqueues/0") == []
