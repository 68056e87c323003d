"""What files of the operating system are made like."""

import errno
import os
import shutil
import stat
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rocketmq_tw.files import posix
from rocketmq_tw.files.interface import DiskUsage, IFiles, NoFileError
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.files.posix import SEEK_DATA, SEEK_HOLE, PosixFiles


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


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_what_is_no_file_is_refused_at_once(make: Callable[[str], None], tmp_path: Path) -> None:
    path = str(tmp_path / "odd")
    make(path)
    files = PosixFiles()
    with pytest.raises(NoFileError) as refused:
        files.read(path)
    assert refused.value.filename == path
    for create in (False, True):
        with pytest.raises(NoFileError):
            files.open(path, create=create)
    with pytest.raises(NoFileError):
        files.open_aside(path, str(tmp_path))
    with pytest.raises(NoFileError):
        files.lock(path)


@pytest.mark.skipif(not hasattr(os, "SEEK_DATA"), reason="this Python has no name for it")
def test_a_seek_to_data_has_the_number_of_the_system() -> None:
    assert (SEEK_DATA, SEEK_HOLE) == (os.SEEK_DATA, os.SEEK_HOLE)


def test_errors_of_an_open_file_name_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "log")
    file = PosixFiles().open(path, create=True)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for name in ("pwrite", "ftruncate"):
        monkeypatch.setattr(os, name, full)
    for name in ("_write_vectors", "_sync_data"):
        monkeypatch.setattr(posix, name, full)
    calls: list[Callable[[], None]] = [
        lambda: file.pwrite(b"x", 0),
        lambda: file.pwritev([b"x", b"y"], 0),
        lambda: file.truncate(10),
        file.fsync,
    ]
    for call in calls:
        with pytest.raises(OSError, match="No space left on device") as failed:
            call()
        assert failed.value.filename == path


@pytest.mark.parametrize("write", [posix._write_vectors, posix._write_joined])
def test_buffers_are_written_one_behind_the_other(
    write: Callable[..., int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also on a Python that has no os.pwritev."""
    monkeypatch.setattr(posix, "_write_vectors", write)
    file = PosixFiles().open(str(tmp_path / "log"), create=True)
    buffers = [b"%04d" % number for number in range(3000)]
    file.pwritev([bytearray(b"one"), memoryview(b"two"), *buffers], 5)
    assert file.pread(3 + 3 + 12_000, 5) == b"onetwo" + b"".join(buffers)
    file.close()


class FailingSync(PosixFiles):
    """Fails the first sync of a directory; notes the others."""

    def __init__(self) -> None:
        self.fails = True
        self.synced: list[str] = []

    def sync_dir(self, path: str) -> None:
        fails, self.fails = self.fails, False
        if fails:
            raise OSError(errno.EIO, "the disk fails", path)
        super().sync_dir(path)
        self.synced.append(path)


def test_a_directory_whose_name_could_not_be_synced_is_synced_by_the_next_call(
    tmp_path: Path,
) -> None:
    files, other = FailingSync(), FailingSync()
    other.fails = False
    with pytest.raises(OSError, match="the disk fails"):
        files.make_dirs(str(tmp_path / "made"))
    other.make_dirs(str(tmp_path / "made" / "below"), durable=False)
    other.make_dirs(str(tmp_path / "made" / "below"))
    assert other.synced == [str(tmp_path)]
    other.make_dirs(str(tmp_path / "made" / "below"))
    assert other.synced == [str(tmp_path)]


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


def test_a_change_of_the_content_shows(tmp_path) -> None:
    file = PosixFiles().open(str(tmp_path / "file"), create=True)
    os.utime(tmp_path / "file", (1, 1))
    assert file.modified_ms() == 1000
    file.pread(4, 0)
    assert file.modified_ms() == 1000
    file.pwrite(b"data", 0)
    assert abs(file.modified_ms() / 1000 - time.time()) < 60
