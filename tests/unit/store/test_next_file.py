"""The log's next file is made by the sync of the one before it, so that no write waits for that."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from rocketmq_tw.files.faulty import Fault, FaultyFiles
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.store.commit_log import CommitLog
from rocketmq_tw.store.errors import NotWritableError
from rocketmq_tw.store.message_store import MessageStore
from tests.support.power import aftermaths
from tests.support.stores import cut, make_message, open_store, put, read_all

SIZE = 4096
LOG = "/store/commitlog"


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles(MemoryFiles())


@pytest.fixture
def log(files: FaultyFiles) -> CommitLog:
    log = CommitLog(files, LOG, SIZE)
    log.load(clean=True)
    log.end_at(0, cut=True, since=0)
    return log


def write(log: CommitLog, size: int = 1000) -> None:
    log.reserve(size)
    log.push(b"x" * size)
    log.write()


def fail(files: FaultyFiles, operation: str, number: int) -> None:
    """Fails a call once as the file of this number is made."""
    path = LOG if operation == "sync_dir" else f"{LOG}/{number * SIZE:020d}"
    files.faults.append(Fault(operation, path, errno.ENOSPC, times=1))


def made(files: FaultyFiles) -> list[int]:
    """The files that there are, by their numbers."""
    return [int(name) // SIZE for name in files.list(LOG)]


def test_a_sync_makes_it_once_half_of_the_last_one_is_written(
    files: FaultyFiles, log: CommitLog
) -> None:
    write(log)
    log.fsync()
    assert made(files) == [0]
    write(log, 1100)
    log.fsync()
    assert made(files) == [0, 1]
    assert (log.file_starts, log.files_end) == ([0], SIZE)
    files.asked.clear()
    for _ in range(3):
        write(log)
    assert {operation for operation, _ in files.asked} == {"pwrite"}
    assert log.file_starts == [0, SIZE]
    assert log.read(1000, SIZE) == b"x" * 1000
    log.fsync()
    assert log.flushed_offset == log.written_offset


def test_a_log_that_fills_its_files_waits_for_the_first_only(
    files: FaultyFiles, log: CommitLog
) -> None:
    write(log)
    for _ in range(40):
        log.fsync()
        files.asked.clear()
        write(log)
        assert not {operation for operation, _ in files.asked} & {"create", "fsync", "sync_dir"}


@pytest.mark.parametrize("operation", ["create", "truncate", "fsync", "sync_dir"])
def test_where_it_cannot_be_made_the_sync_succeeds(
    files: FaultyFiles, log: CommitLog, operation: str
) -> None:
    write(log, 3000)
    fail(files, operation, 1)
    assert log.fsync() == 3000
    assert not log.failure
    files.asked.clear()
    log.fsync()
    # It is not tried at each sync.
    assert not {name for name, _ in files.asked} & {"create", "truncate", "sync_dir"}
    write(log, 2000)
    assert log.fsync() == log.written_offset == SIZE + 2000
    write(log, 2000)
    log.fsync()
    assert made(files) == [0, 1, 2]
    log.truncate_to(1000)
    assert made(files) == [0]


@pytest.mark.parametrize("operation", ["truncate", "fsync", "sync_dir"])
def test_a_cut_takes_along_what_could_not_be_made(
    files: FaultyFiles, log: CommitLog, operation: str
) -> None:
    write(log, 3000)
    log.fsync()
    write(log, 3000)
    fail(files, operation, 2)
    log.fsync()
    assert made(files) == [0, 1, 2]
    log.truncate_to(100)
    assert made(files) == [0]


def test_a_cut_behind_a_start_ends_the_log_nowhere_behind_what_was_written() -> None:
    """Masters are chosen by the end of their logs, also while one is cut."""
    files = MemoryFiles()
    store = open_store(files)
    ends = put(store, *[make_message(bytes(300)) for _ in range(9)])
    store.fsync()
    store.close()
    store = open_store(files)
    end = store.end_offset
    assert files.list(LOG)[-1] > f"{end:020d}"
    assert all(store.end_offset <= end for _ in store.truncate_to(ends[1]))
    assert store.end_offset == ends[1]
    assert len(files.list(LOG)) == 1


def test_a_cut_takes_it_along(files: FaultyFiles, log: CommitLog) -> None:
    write(log, 3000)
    log.fsync()
    write(log, 3000)
    log.fsync()
    assert made(files) == [0, 1, 2]
    log.truncate_to(SIZE + 100)
    write(log, 3000)
    log.truncate_to(2000)
    assert made(files) == [0]
    write(log, 3000)
    assert log.fsync() == SIZE + 3000


def test_a_log_that_begins_elsewhere_leaves_none_behind(files: FaultyFiles, log: CommitLog) -> None:
    write(log, 3000)
    log.fsync()
    log.truncate_to(0)
    log.start_at(7 * SIZE)
    assert made(files) == []
    write(log, 3000)
    log.fsync()
    assert made(files) == [7, 8]


def test_it_is_no_file_more_to_have_open(files: FaultyFiles, log: CommitLog) -> None:
    write(log, 3000)
    log.fsync()
    log.close()
    assert files.open_files == 0


MAKING = ["create", "truncate", "fsync", "sync_dir"]


def sync_amid(files: FaultyFiles, log: CommitLog, operation: str, work: Callable[[], None]) -> None:
    """Syncs the log, whose next file is made then, and works in front of a call that makes it."""
    moment = operation, LOG if operation == "sync_dir" else f"{LOG}/{SIZE:020d}"

    def begin() -> None:
        if moment in files.asked:
            files.before_change = lambda: None
            work()

    files.asked.clear()
    files.before_change = begin
    log.fsync()
    assert moment in files.asked


@pytest.mark.parametrize("operation", MAKING)
def test_a_write_that_needs_it_while_it_is_made(
    files: FaultyFiles, log: CommitLog, operation: str
) -> None:
    write(log, 3000)
    sync_amid(files, log, operation, lambda: write(log, 1500))
    for _ in range(3):
        write(log, 3000)
        log.fsync()
    assert made(files) == [0, 1, 2, 3, 4, 5]
    after = CommitLog(files.inner.crash(), LOG, SIZE)
    after.load(clean=False)
    assert after.peek(1500, SIZE) == b"x" * 1500
    for number in range(2, 5):
        assert after.peek(3000, number * SIZE) == b"x" * 3000
    log.close()
    assert files.open_files == 0


@pytest.mark.parametrize("failed", MAKING[1:])
@pytest.mark.parametrize("operation", MAKING)
def test_a_write_that_fails_while_it_is_made(
    files: FaultyFiles, log: CommitLog, operation: str, failed: str
) -> None:
    """What the write had made goes again: the thread may have the same file open."""

    def work() -> None:
        fail(files, failed, 1)
        with pytest.raises(NotWritableError, match="No space left"):
            write(log, 1500)

    write(log, 3000)
    sync_amid(files, log, operation, work)
    write(log, 1500)
    assert log.fsync() == SIZE + 1500
    after = CommitLog(files.inner.crash(), LOG, SIZE)
    after.load(clean=False)
    assert after.peek(1500, SIZE) == b"x" * 1500


def _filled(files: FaultyFiles) -> MessageStore:
    store = open_store(files)
    put(store, *[make_message(b"%d" % n + bytes(900)) for n in range(3)])
    return store


@pytest.mark.parametrize("is_cut", [False, True])
def test_whatever_the_end_the_next_start_finds_all(files: FaultyFiles, is_cut: bool) -> None:
    """A kill or a power loss at any call while files are made, taken and cut off."""
    store = _filled(files)
    stored: list[int] = [3]

    def work() -> None:
        for n in range(3, 12):
            (offset,) = put(store, make_message(b"%d" % n + bytes(900)))
            stored[0] = n + 1
            if is_cut and n == 7:
                stored[0] = 3
                cut(store, store.queue_units("Topic", 0, 3, 1)[0].position)
                put(store, *[make_message(b"%d" % m + bytes(900)) for m in range(3, 7)])
                stored[0] = 7
                break
            assert offset

    moment = 0
    for moment, left, least in aftermaths(files, work, seeds=range(3), note=lambda: stored[0]):
        after = open_store(left)
        found = [int(message.body.rstrip(b"\0")) for message in read_all(after)]
        assert found == list(range(len(found))) and len(found) >= least, moment
        put(after, *[make_message(b"%d" % n + bytes(900)) for n in range(len(found), 20)])
        assert len(read_all(after)) == 20
    assert moment > 20


def test_a_clean_stop_leaves_it_for_the_next_start(files: FaultyFiles) -> None:
    store = _filled(files)
    store.close()
    assert made(files) == [0, 1]
    store = open_store(files)
    assert store.report is not None and store.report.clean and not store.report.notes
    assert store.end_offset < SIZE
    files.asked.clear()
    store.append(make_message(bytes(1900)))
    store.write_pending()
    assert not {operation for operation, _ in files.asked} & {"create", "fsync", "sync_dir"}
    store.fsync()
    store.dispatch()
    assert len(read_all(store)) == 4
