"""A limit to dispatch (a confirmed offset) holds through a start and a stop."""

import pytest

from rocketmq_tw.files.faulty import FaultyFiles
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.store.errors import NotWritableError
from rocketmq_tw.store.message_store import MessageStore
from tests.support.power import aftermaths
from tests.support.stores import (
    ROOT,
    ManualClock,
    by_key,
    cut,
    make_message,
    open_store,
    put,
    read_all,
    small_config,
)


def load(files: MemoryFiles, limit: int | None, **changes: object) -> MessageStore:
    store = MessageStore(small_config(**changes), files, ManualClock())
    store.dispatch_limit = limit
    store.load()
    return store


def filled(files: MemoryFiles, count: int = 20) -> tuple[MessageStore, list[int]]:
    store = load(files, None)
    return store, put(store, *[make_message(b"%d" % n, keys=f"k{n}") for n in range(count)])


def numbers(store: MessageStore) -> list[int]:
    return [int(message.body) for message in read_all(store)]


@pytest.mark.parametrize("with_checkpoint", [False, True])
@pytest.mark.parametrize("limited_to", [0, 7, 12, 19])
def test_recovery_dispatches_up_to_the_limit(
    files: MemoryFiles, with_checkpoint: bool, limited_to: int
) -> None:
    store, offsets = filled(files)
    if with_checkpoint:
        store.checkpoint()
    store = load(files.kill(), offsets[limited_to])
    assert numbers(store) == list(range(limited_to))
    assert store.dispatched_offset == offsets[limited_to]
    assert store.end_offset > offsets[-1]
    assert by_key(store, "Topic", f"k{limited_to}", 9, 0, 1 << 62) == []
    with pytest.raises(NotWritableError, match="not dispatched"):
        store.append(make_message())
    store.dispatch_limit = None
    store.dispatch()
    assert numbers(store) == list(range(20))
    assert by_key(store, "Topic", f"k{limited_to}", 9, 0, 1 << 62) != []
    assert store.append(make_message()).queue_offset == 20


def test_a_limit_inside_a_record_is_the_end_of_the_one_in_front(files: MemoryFiles) -> None:
    _store, offsets = filled(files)
    store = load(files.kill(), offsets[5] + 10)
    assert numbers(store) == [0, 1, 2, 3, 4]
    assert store.dispatched_offset == offsets[5]


def test_a_stop_at_the_limit_is_clean(files: MemoryFiles) -> None:
    store = load(files, None)
    offsets = [store.append(make_message(b"%d" % n)).physical_offset for n in range(10)]
    store.dispatch_limit = offsets[4]
    store.close()
    assert not files.exists(f"{ROOT}/abort")
    store = load(files, offsets[4])
    assert store.report is not None and store.report.clean and store.report.notes == []
    assert numbers(store) == [0, 1, 2, 3]
    store.close()
    assert numbers(load(files, None)) == list(range(10))


def test_a_start_under_a_lower_limit_and_a_kill_lose_nothing(files: MemoryFiles) -> None:
    store, offsets = filled(files)
    store.close()
    store = load(files, offsets[3])
    assert numbers(store) == [0, 1, 2]
    files = files.kill()
    store = load(files, None)
    assert numbers(store) == list(range(20))
    assert store.report is not None and store.report.notes == []


def test_truncation_takes_the_limit_along(files: MemoryFiles) -> None:
    store, offsets = filled(files)
    store.dispatch_limit = offsets[10]
    cut(store, offsets[5])
    assert store.dispatch_limit == offsets[5]
    assert numbers(store) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("behind", [0, 10])
def test_what_was_cut_is_not_confirmed_at_the_next_start(files: MemoryFiles, behind: int) -> None:
    """Another master's messages take its place, and may go once more."""

    def start(files: MemoryFiles) -> MessageStore:
        store = MessageStore(small_config(), files, ManualClock(), confirmed_only=True)
        store.load()
        return store

    store = start(files)
    store.dispatch_limit = 1 << 40
    offsets = put(store, *[make_message(b"%d" % n) for n in range(20)])
    store.dispatch_limit = store.end_offset
    store.checkpoint()
    cut(store, offsets[5])
    put(store, *[make_message(b"%d" % n) for n in range(100, 100 + behind)])
    store = start(files.kill())
    assert store.dispatch_limit == offsets[5]
    assert numbers(store) == [0, 1, 2, 3, 4]


def test_a_limited_start_that_was_killed_leaves_no_hole_behind_a_stop_of_stock() -> None:
    """Of its checkpoint nothing says how many units there are, only how old the last are."""
    clock, disk = ManualClock(), FaultyFiles(MemoryFiles())
    store = open_store(disk, clock)
    offsets = []
    for number in range(20):
        clock.now_ms += 10_000
        offsets += put(store, make_message(b"%d" % number + bytes(900)))
    store.close()
    path = store.paths.checkpoint
    data = disk.read(path)
    disk.open(path).pwrite(data[:40].ljust(len(data), b"\0"), 0)

    def start() -> None:
        limited = MessageStore(small_config(), disk, clock)
        limited.dispatch_limit = offsets[4]
        limited.load()

    for moment, left, _ in aftermaths(disk, start, seeds=range(4)):
        after = open_store(left, clock)
        after.dispatch()
        assert len(read_all(after)) == 20, moment
