"""What a file that is replaced as a whole keeps of the old one."""

import errno
import os
import stat
from pathlib import Path

import pytest

from rocketmq_tw.files.atomic import write_atomic
from rocketmq_tw.files.faulty import Fault, FaultyFiles
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.files.posix import PosixFiles


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664])
def test_the_rights_stay_those_of_the_old_file(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "b.conf"
    file.write_text("tls.server.keyPassword=hush\n")
    file.chmod(mode)
    write_atomic(PosixFiles(), str(file), b"new\n")
    assert (file.read_text(), _mode(file)) == ("new\n", mode)


def test_a_new_file_may_be_read_by_all_who_get_to_it(tmp_path: Path) -> None:
    former = os.umask(0o022)
    try:
        write_atomic(PosixFiles(), str(tmp_path / "new"), b"new\n")
    finally:
        os.umask(former)
    assert _mode(tmp_path / "new") == 0o644


def test_what_a_crash_left_aside_gives_nobody_more_rights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, aside = tmp_path / "b.conf", tmp_path / "b.conf.tmp"
    file.touch(0o600)
    aside.touch(0o644)
    seen = []
    monkeypatch.setattr(os, "ftruncate", lambda *_: seen.append(_mode(aside)))
    write_atomic(PosixFiles(), str(file), b"new\n")
    assert seen == [0o600], "before anything is written"
    assert _mode(file) == 0o600


@pytest.fixture
def of_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of user 4711 and group 4712, with the rights 0640."""
    file = tmp_path / "b.conf"
    file.touch(0o640)
    real = os.stat

    def stat_of(path: object, **more: object) -> os.stat_result:
        if path == str(file):
            return os.stat_result((0o100640, 0, 0, 1, 4711, 4712, 0, 0, 0, 0))
        return real(path, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "stat", stat_of)
    return file


def test_the_owner_stays(of_another: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "fchown", lambda _, user, group: given.append((user, group)))
    write_atomic(PosixFiles(), str(of_another), b"new\n")
    assert given == [(4711, 4712)]


def test_another_group_than_before_gets_no_rights(
    of_another: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "fchown", refused)
    write_atomic(PosixFiles(), str(of_another), b"new\n")
    monkeypatch.undo()
    assert _mode(of_another) == 0o600


def test_a_link_stays_and_the_file_behind_it_is_written(tmp_path: Path) -> None:
    behind, link = tmp_path / "kept" / "b.conf", tmp_path / "b.conf"
    behind.parent.mkdir()
    behind.write_text("old\n")
    behind.chmod(0o600)
    link.symlink_to(Path("kept") / "b.conf")
    write_atomic(PosixFiles(), str(link), b"new\n")
    assert link.is_symlink()
    assert (behind.read_text(), _mode(behind)) == ("new\n", 0o600)
    assert sorted(os.listdir(tmp_path / "kept")) == ["b.conf"], "nothing is left aside"


@pytest.mark.parametrize("operation", ["pwrite", "fsync", "rename"])
def test_what_cannot_be_written_leaves_nothing_aside(operation: str) -> None:
    files = FaultyFiles(MemoryFiles())
    write_atomic(files, "/a/b.conf", b"old\n")
    files.faults = [Fault(operation, "b.conf", errno.ENOSPC)]
    with pytest.raises(OSError, match="No space left"):
        write_atomic(files, "/a/b.conf", b"new\n")
    assert files.list("/a") == ["b.conf"]
    assert files.read("/a/b.conf") == b"old\n"
