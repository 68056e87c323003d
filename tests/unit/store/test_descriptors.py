"""A store whose process has no descriptor left, as where idle connections took all."""

import errno
from collections.abc import Callable

import pytest

from rocketmq_tw.files.faulty import Fault, FaultyFiles
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.store.errors import NotWritableError
from rocketmq_tw.store.handles import UnsyncedHandles
from rocketmq_tw.store.message_store import MessageStore
from tests.support.stores import make_message, open_store, put, read_all


def test_the_log_rolls_and_checkpoints_come_from_the_reserve() -> None:
    disk = FaultyFiles(MemoryFiles())
    store = open_store(disk)
    put(store, make_message(bytes(900)))
    disk.descriptors = disk.open_files
    for _ in range(30):
        put(store, make_message(bytes(900)))
        store.checkpoint()
    assert len(read_all(store)) == 31
    store.close()
    assert open_store(disk.inner.kill()).report.clean


def test_many_queues_leave_the_reserve_to_the_log() -> None:
    disk = FaultyFiles(MemoryFiles())
    store = open_store(disk)
    put(store, make_message())
    disk.descriptors = disk.open_files
    for queue_id in range(100):
        put(store, make_message(bytes(900), queue_id=queue_id))
        store.checkpoint()
    assert all(read_all(store, queue_id=queue_id) for queue_id in range(100))


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE])
@pytest.mark.parametrize("operation", ["create", "open", "sync_dir"])
def test_what_no_reserve_helps_against_passes(operation: str, error: int) -> None:
    disk = FaultyFiles(MemoryFiles())
    store = open_store(disk)
    # Not so many that the next file is made in advance.
    put(store, *[make_message(b"%d" % n + bytes(900)) for n in range(2)])
    disk.faults.append(Fault(operation, "commitlog", error))
    for number in range(4):
        store.append(make_message(b"lost %d" % number + bytes(900)))
    with pytest.raises(NotWritableError, match="cannot be written"):
        store.write_pending()
    disk.faults.clear()
    assert store.refusal == ""
    put(store, make_message(b"later"))
    bodies = [message.body.strip(b"\0") for message in read_all(store)]
    assert bodies == [b"0", b"1", b"later"]
    store.close()
    after = open_store(disk.inner.kill())
    assert len(read_all(after)) == 3 and after.report.clean


def write_files(store: MessageStore, first: int, count: int) -> list[bytes]:
    """Each is filled by two messages, written and not synced."""
    found = [b"%d " % number + bytes(1900) for number in range(2 * first, 2 * (first + count))]
    for body in found:
        store.append(make_message(body))
        store.write_pending()
    return found


def bodies(store: MessageStore) -> list[bytes]:
    return [message.body for message in read_all(store)]


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_files_that_nobody_syncs_take_few_descriptors(seed: int | None) -> None:
    memory = MemoryFiles()
    disk = FaultyFiles(memory)
    store = open_store(disk)
    found = write_files(store, 0, 1)
    before = disk.open_files
    for number in range(1, 200):
        found += write_files(store, number, 1)
        assert disk.open_files - before < 100
    # What is behind is still synced.
    assert store.flushed_offset == 0
    assert bodies(open_store(memory.crash(seed)))[:300] == found[:300]
    assert store.fsync() == store.end_offset
    assert bodies(open_store(memory.crash(seed))) == found


def test_one_write_of_many_files_takes_few_descriptors() -> None:
    memory = MemoryFiles()
    disk = FaultyFiles(memory)
    store = open_store(disk)
    before = disk.open_files
    for number in range(200):
        store.append(make_message(b"%d" % number + bytes(1900)))
        store.append(make_message(bytes(1900)))
    store.write_pending()
    assert disk.open_files - before < 100
    store.fsync()
    store.dispatch()
    assert len(read_all(open_store(memory.crash()))) == 400


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_a_write_of_many_files_that_fails_leaves_none_of_it(seed: int | None) -> None:
    memory = MemoryFiles()
    disk = FaultyFiles(memory)
    store = open_store(disk)
    put(store, make_message(b"kept"))
    for _ in range(200):
        store.append(make_message(b"refused" + bytes(1900)))
    disk.faults.append(Fault("pwrite", "commitlog", errno.ENOSPC, skip=90, times=1))
    with pytest.raises(NotWritableError):
        store.write_pending()
    put(store, make_message(b"later"))
    for after in (memory.kill(), memory.crash(seed)):
        assert bodies(open_store(after)) == [b"kept", b"later"]


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_what_a_sync_for_want_of_descriptors_meets_is_not_lost(error: int) -> None:
    """The system tells it once; nothing may be called durable behind it."""
    memory = MemoryFiles()
    disk = FaultyFiles(memory)
    store = open_store(disk)
    disk.faults.append(Fault("fsync", f"commitlog/{0:020d}", error, skip=1, times=1))
    with pytest.raises(NotWritableError):
        write_files(store, 0, 200)
    flushed = store.flushed_offset
    for _ in range(2):
        with pytest.raises(NotWritableError, match="fsync"):
            store.fsync()
        with pytest.raises(NotWritableError, match="fsync"):
            store.append(make_message())
    assert store.flushed_offset == flushed < 4096


class Handles:
    """Two files of ten bytes that are written, of two at most; `meanwhile` is what another thread
    does while the first of them is synced."""

    def __init__(self) -> None:
        self.disk = FaultyFiles(MemoryFiles())
        self.handles = UnsyncedHandles(10, 2)
        self.disk.make_dirs("/log")
        self.meanwhile: list[Callable[[], None]] = []
        for start in (0, 10):
            file = self.disk.open(f"/log/{start}", create=True)
            file.pwrite(b"1", 0)
            self.handles.add(start, file)
            if not start:
                fsync = file.fsync

        def sync() -> None:
            if self.meanwhile:
                self.meanwhile.pop()()
            fsync()

        self.handles.get(0).fsync = sync  # type: ignore[method-assign,union-attr]


def test_a_round_that_is_under_way_hears_of_an_error() -> None:
    """It would find the same file, whose descriptor says yes by now."""
    world = Handles()
    world.disk.faults.append(Fault("fsync", "/log/0", times=1))
    with pytest.raises(OSError):
        world.handles.make_room(0)
    for start in (0, 10):
        with pytest.raises(OSError):
            world.handles.sync_beside(start)


def test_a_sync_beside_another_one_proves_nothing() -> None:
    world = Handles()
    beside: list[bool] = []
    world.meanwhile.append(lambda: beside.append(world.handles.sync_beside(0)))
    world.handles.sync(0)
    assert beside == [False]
    assert world.handles.sync_beside(0)


def test_an_error_of_a_sync_beside_another_one_is_everybodys() -> None:
    world = Handles()
    world.disk.faults.append(Fault("fsync", "/log/0", times=1))

    def sync_beside() -> None:
        with pytest.raises(OSError):
            world.handles.sync_beside(0)

    world.meanwhile.append(sync_beside)
    with pytest.raises(OSError):
        world.handles.sync(0)


def test_what_another_thread_syncs_is_closed_behind_that() -> None:
    world = Handles()
    before = world.disk.open_files
    left: list[int] = []

    def make_room() -> None:
        world.handles.make_room(10)
        left.append(world.disk.open_files)

    world.meanwhile.append(make_room)
    assert world.handles.sync_beside(0)
    assert left == [before]
    world.handles.make_room(20)
    assert world.disk.open_files == before - 2
