"""What files of the operating system are made like."""

import os
import shutil
import stat
from pathlib import Path

import pytest

from rocketmq_tw.files.interface import DiskUsage, IFiles
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.files.posix import PosixFiles


def test_other_users_do_not_get_into_a_store(tmp_path: Path) -> None:
    there_before = tmp_path / "data"
    there_before.mkdir(mode=0o755)
    former = os.umask(0)
    try:
        PosixFiles().make_dirs(str(there_before / "store" / "commitlog"))
    finally:
        os.umask(former)
    modes = [
        stat.S_IMODE(path.stat().st_mode)
        for path in (there_before, there_before / "store", there_before / "store" / "commitlog")
    ]
    assert modes == [0o755, 0o750, 0o750]


def test_a_disk_is_as_large_as_users_may_fill_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Part of it may be kept for root, or beyond a quota."""
    shown = shutil._ntuple_diskusage(1000, 300, 500)  # type: ignore[attr-defined]
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shown)
    assert PosixFiles().usage("/") == DiskUsage(total=800, used=300)


@pytest.mark.parametrize("files", [PosixFiles(), MemoryFiles()], ids=["posix", "memory"])
def test_whether_there_is_data_behind_a_place(files: IFiles, tmp_path: Path) -> None:
    directory = str(tmp_path / "files")
    files.make_dirs(directory)
    file = files.open(f"{directory}/file", create=True)
    file.truncate(1 << 20)
    assert not file.may_have_data(0)
    file.pwrite(b"some", 100)
    assert file.may_have_data(0) and file.may_have_data(103)
    assert not any(map(file.may_have_data, (104, 4096, 5000, 1 << 20, 1 << 21)))
    file.pwrite(b"\1", 500_000)
    assert file.may_have_data(104) and file.may_have_data(4096) and file.may_have_data(500_000)
    file.close()
