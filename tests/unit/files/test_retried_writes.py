"""Files whose write failed at one of its calls: what is written again, or read by the next process,
outlives a power loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rocketmq_tw.broker.election.identity import IdClaim, Identity, IdentityFiles
from rocketmq_tw.broker.timer.progress import TimerCheckpoint, TimerProgress
from rocketmq_tw.files.faulty import Fault, FaultyFiles
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.raft.core.member_state import HardState
from rocketmq_tw.raft.core.snapshot import Snapshot, SnapshotMeta
from rocketmq_tw.raft.store.properties import read_term, write_term
from rocketmq_tw.raft.store.snapshots import SnapshotFile
from rocketmq_tw.replication.auto_switch.epoch_file import EpochFile
from rocketmq_tw.replication.auto_switch.epochs import EpochEntry, EpochTable
from rocketmq_tw.store.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from rocketmq_tw.store.table_files import read_table_file, write_table_file

_CALLS = (
    "make_dirs",
    "create",
    "open",
    "truncate",
    "pwrite",
    "fsync",
    "remove",
    "link",
    "rename",
    "sync_dir",
)
_PATH = "/s/file"

#: Writes a number durably.
Write = Callable[[Any, int], object]
#: Returns the number that is there, as a process reads it at its start; None where none is.
Read = Callable[[Any], "int | None"]


def _write_identity(files: Any, number: int) -> None:
    kept = IdentityFiles(files, _PATH, "c", "b")
    kept.keep(IdClaim(Identity("c", "b", number), "code"))


def _read_identity(files: Any) -> int | None:
    kept = IdentityFiles(files, _PATH, "c", "b")
    kept.settle()
    found = kept.identity()
    return None if found is None else found.broker_id


def _read_timer(files: Any) -> int | None:
    progress = TimerProgress(files, "/s")
    progress.load()
    return None if progress.checkpoint is None else progress.checkpoint.read_ms


def _write_epochs(files: Any, number: int) -> None:
    EpochFile(files, _PATH).save(EpochTable([EpochEntry(number, 0)]))


def _read_epochs(files: Any) -> int | None:
    last = EpochFile(files, _PATH).load().last
    return None if last is None else last.epoch


def _write_snapshot(files: Any, number: int) -> None:
    SnapshotFile(files, "/s").save(Snapshot(SnapshotMeta(number, 1, 9, 4), b"four"))


def _read_snapshot(files: Any) -> int | None:
    meta = SnapshotFile(files, "/s").meta
    return None if meta is None else meta.index


def _read_term(files: Any) -> int | None:
    state = read_term(files, _PATH)
    return None if state is None else state.term


FILES: dict[str, tuple[Write, Read]] = {
    "table": (
        lambda files, number: write_table_file(files, _PATH, b"%d" % number),
        lambda files: read_table_file(files, _PATH, int, print),
    ),
    "identity": (_write_identity, _read_identity),
    "term": (lambda files, number: write_term(files, _PATH, HardState(number, "n0")), _read_term),
    "snapshot": (_write_snapshot, _read_snapshot),
    "epochs": (_write_epochs, _read_epochs),
    "timer": (
        lambda files, number: TimerProgress(files, "/s").write(TimerCheckpoint(read_ms=number)),
        _read_timer,
    ),
    "checkpoint": (
        lambda files, number: write_checkpoint(files, _PATH, Checkpoint(safe_offset=number)),
        lambda files: read_checkpoint(files, _PATH).safe_offset,
    ),
}

#: What a crash may leave of a table is the former one: brokers write it again before they tell.
READ_UNSETTLED = {"table", "checkpoint"}


def spoilt_writes(write: Write, *, first: bool) -> list[tuple[str, MemoryFiles, FaultyFiles]]:
    """Returns disks on which the last write of a number failed, each at another call; `first` says
    that none was written before that."""
    found = []
    for call in _CALLS:
        for skip in range(9):
            memory = MemoryFiles()
            memory.make_dirs("/s")
            if not first:
                write(memory, 1)
            files = FaultyFiles(memory)
            files.faults.append(Fault(call, skip=skip, times=1))
            try:
                write(files, 2)
            except OSError:
                found.append((f"{call} {skip}", memory, files))
            else:
                break
    return found


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("name", FILES)
def test_what_is_written_again_outlives_a_power_loss(name: str, first: bool) -> None:
    write, read = FILES[name]
    spoilt = spoilt_writes(write, first=first)
    assert len(spoilt) >= 3
    for where, memory, files in spoilt:
        write(files, 2)
        assert read(memory.crash()) == 2, where


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("name", sorted(FILES.keys() - READ_UNSETTLED))
def test_what_a_start_reads_outlives_a_power_loss(name: str, first: bool) -> None:
    write, read = FILES[name]
    for where, memory, files in spoilt_writes(write, first=first):
        found = read(files)
        assert read(memory.crash()) == found, where
