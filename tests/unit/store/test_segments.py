"""Files of a log or a queue: what a power loss leaves of them has no gap."""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress

import pytest

from rocketmq_tw.files.faulty import Fault, FaultyFiles
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.store.handles import HandlePool, Unsynced
from rocketmq_tw.store.place import why_gone
from rocketmq_tw.store.segments import Segments

SIZE = 4096


def cut_twice(segments: Segments, files: FaultyFiles) -> None:
    segments.cut(3 * SIZE, durable=False)
    segments.cut(2 * SIZE, durable=False)


def fail_to_grow_and_cut(segments: Segments, files: FaultyFiles) -> None:
    """The next file's name cannot be made durable, so that it goes again."""
    files.faults.append(Fault("sync_dir", error=errno.ENOSPC, times=1))
    with pytest.raises(OSError):
        segments.add(4 * SIZE, durable=True)
    segments.cut(3 * SIZE, durable=False)
    files.faults.append(Fault("sync_dir", error=errno.EMFILE))
    segments.cut(2 * SIZE, durable=True)


def clear(segments: Segments, files: FaultyFiles) -> None:
    segments.clear()


def remove_from_both_ends(segments: Segments, files: FaultyFiles) -> None:
    segments.remove_first()
    segments.remove_first()
    segments.cut(3 * SIZE, durable=False)


@pytest.mark.parametrize("change", [cut_twice, fail_to_grow_and_cut, clear, remove_from_both_ends])
def test_a_power_loss_leaves_no_gap(change: Callable[[Segments, FaultyFiles], None]) -> None:
    found = set()
    for seed in range(60):
        memory = MemoryFiles()
        files = FaultyFiles(memory)
        files.make_dirs("/log")
        segments = Segments(HandlePool(files, 8), "/log", SIZE, Unsynced())
        for number in range(4):
            segments.add(number * SIZE, durable=True)
        with suppress(OSError):
            change(segments, files)
        left = [int(name) // SIZE for name in memory.crash(seed).list("/log")]
        assert left == list(range(left[0], left[-1] + 1)) if left else True, (seed, left)
        found.add(tuple(left))
    assert len(found) > 1


def test_a_last_file_that_is_closed_is_looked_for_by_its_name() -> None:
    files = MemoryFiles()
    files.make_dirs("/log")
    segments = Segments(HandlePool(files, 2), "/log", SIZE, Unsynced())
    for number in range(4):
        segments.add(number * SIZE, durable=True)
    for number in range(2):
        segments.file(number * SIZE)
    assert why_gone(files, segments.places()) == ""
    files.remove(segments.path(3 * SIZE))
    assert why_gone(files, segments.places()).startswith("/log was removed, moved or replaced")
