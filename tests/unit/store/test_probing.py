"""Trying whether the disk takes what a store needs next."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from rocketmq_tw.files.faulty import Fault, FaultyFiles
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.files.posix import PosixFiles
from rocketmq_tw.store.probing import try_to_open, try_to_write


def test_a_disk_that_is_well_leaves_no_trace(tmp_path: Path) -> None:
    files = PosixFiles()
    assert try_to_write(files, [str(tmp_path), str(tmp_path / "config")], handles=16) == ""
    assert [path.name for path in tmp_path.rglob("*")] == ["config"]
    assert try_to_open(files, str(tmp_path / "config")) == ""


@pytest.mark.parametrize(
    ("operation", "error"),
    [("create", errno.EROFS), ("pwrite", errno.ENOSPC), ("fsync", errno.EIO)],
)
def test_what_fails_is_said_with_its_directory(operation: str, error: int) -> None:
    files = FaultyFiles(MemoryFiles())
    files.faults = [Fault(operation, "/store/config", error)]
    why = try_to_write(files, ["/store", "/store/config"])
    assert why.startswith("/store/config cannot be written: ")
    assert files.list("/store") == ["config"] and files.list("/store/config") == []
    assert files.open_files == 0


def test_too_few_descriptors_are_seen_and_given_back() -> None:
    files = FaultyFiles(MemoryFiles())
    files.descriptors = 10
    assert try_to_write(files, ["/store"]) == ""
    assert "Too many open files" in try_to_write(files, ["/store"], handles=16)
    assert files.open_files == 0


def test_a_log_that_cannot_be_opened_to_be_written_is_seen() -> None:
    files = FaultyFiles(MemoryFiles())
    files.make_dirs("/store/commitlog")
    assert try_to_open(files, "/store/commitlog") == ""
    files.open("/store/commitlog/00000000000000000000", create=True).close()
    files.faults = [Fault("open", "commitlog", errno.EROFS)]
    assert try_to_open(files, "/store/commitlog").startswith("/store/commitlog cannot be written")
