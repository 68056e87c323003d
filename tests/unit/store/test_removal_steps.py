"""Retention goes on in short steps, which sync nothing where somebody syncs between them."""

from __future__ import annotations

import pytest

from rocketmq_tw.files.faulty import FaultyFiles
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.store.message_store import MessageStore
from tests.support.power import aftermaths
from tests.support.stores import ManualClock, cut, make_message, open_store, put, read_all

LATER_MS = 100 * 3_600_000
LOG = "/store/commitlog/"


class Watched(FaultyFiles):
    """Counts looks at how full a disk is."""

    looks = 0

    def __init__(self) -> None:
        super().__init__(MemoryFiles())

    def usage(self, path: str):
        self.looks += 1
        return super().usage(path)


def filled(files: FaultyFiles, clock: ManualClock, messages: int = 60) -> MessageStore:
    store = open_store(files, clock, delete_file_batch_max=10)
    put(store, *[make_message(bytes(900), queue_id=n % 3, keys=f"k{n}") for n in range(messages)])
    store.checkpoint()
    return store


def test_a_step_removes_one_file_and_waits_for_no_disk() -> None:
    files, clock = Watched(), ManualClock()
    store = filled(files, clock)
    disks = store.retention.measure()
    files.looks = 0
    steps = store.clean(clock.now_ms + LATER_MS, at_any_hour=True, disks=disks)
    most = settled = 0
    while True:
        files.asked.clear()
        removed = next(steps, None)
        assert not {operation for operation, _ in files.asked} & {"fsync", "sync_dir"}
        gone = [path for operation, path in files.asked if operation == "remove" and LOG in path]
        most = max(most, len(gone))
        if removed is None:
            break
        if store.has_unsynced_removals:
            store.sync_removals()
            settled += 1
    assert (most, settled) == (1, 10)
    assert store.min_physical_offset == 10 * 4096
    assert files.looks == 0


def test_files_of_queues_wait_for_no_disk_either() -> None:
    """That what was removed before is durable is known from the checkpoint behind it."""
    files, clock = FaultyFiles(MemoryFiles()), ManualClock()
    store = filled(files, clock, 200)
    went = 0
    for _ in range(4):
        steps = store.clean(clock.now_ms + LATER_MS, at_any_hour=True)
        files.asked.clear()
        for _ in steps:
            store.sync_removals()
        went += sum("consumequeue" in path for name, path in files.asked if name == "remove")
        assert [path for name, path in files.asked if name == "sync_dir"] == ["/store/commitlog"]
        store.checkpoint()
    assert went > 3


@pytest.mark.parametrize("is_settled", [False, True])
def test_a_power_loss_between_the_steps_leaves_no_gap(is_settled: bool) -> None:
    """Whether somebody settles between the steps or not."""
    files, clock = FaultyFiles(MemoryFiles()), ManualClock()
    store = filled(files, clock, 24)

    def work() -> None:
        for _ in store.clean(clock.now_ms + LATER_MS, at_any_hour=True):
            if is_settled:
                store.sync_removals()
        store.checkpoint()

    moment = 0
    for moment, left, _ in aftermaths(files, work, seeds=range(6)):
        after = open_store(left, clock)
        assert [after.max_queue_offset("Topic", n) for n in range(3)] == [8, 8, 8], moment
    assert moment > 3


def test_what_was_written_behind_a_cut_between_two_steps_stays() -> None:
    """Its files have the offsets of those that were to go."""
    files, clock = FaultyFiles(MemoryFiles()), ManualClock()
    store = filled(files, clock, 40)
    steps = store.clean(clock.now_ms + LATER_MS, at_any_hour=True)
    next(steps)
    begin = store.min_physical_offset
    assert begin == 4096
    cut(store, begin)
    clock.now_ms += LATER_MS
    put(store, *[make_message(b"new" + bytes(900)) for _ in range(40)])
    store.checkpoint()
    assert sum(steps) == 0
    assert store.min_physical_offset == begin
    assert len(read_all(store)) == 40


def test_two_that_clean_at_once_remove_no_file_more() -> None:
    files, clock = FaultyFiles(MemoryFiles()), ManualClock()
    store = filled(files, clock)
    now_ms = clock.now_ms + LATER_MS
    one, other = (store.clean(now_ms, at_any_hour=True) for _ in range(2))
    assert next(one) == next(one) == next(other) == 1
    assert sum(other) > 9
    sum(one)
    assert store.min_physical_offset == 12 * 4096
