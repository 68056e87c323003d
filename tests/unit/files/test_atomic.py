"""What a file that is replaced as a whole keeps of the old one."""

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path

import pytest

from rocketmq_tw.files.atomic import write_atomic
from rocketmq_tw.files.faulty import Fault, FaultyFiles, PowerLoss
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


class CountedSyncs(FaultyFiles):
    syncs = 0

    def check(self, operation: str, path: str) -> Fault | None:
        self.syncs += operation in ("fsync", "sync_dir")
        return super().check(operation, path)


def test_the_former_content_is_kept_at_the_cost_of_no_sync() -> None:
    files = CountedSyncs(MemoryFiles())
    for number, content in enumerate((b"1\n", b"2\n", b"3\n"), start=1):
        write_atomic(files, "/a/b.json", content, former="/a/b.json.bak")
        assert files.syncs == 2 * number
    assert files.list("/a") == ["b.json", "b.json.bak"]
    assert files.read("/a/b.json.bak") == b"2\n"


def test_a_file_whose_former_content_is_kept_is_there_at_every_moment() -> None:
    files = FaultyFiles(MemoryFiles())
    write_atomic(files, "/a/b.json", b"1\n", former="/a/b.json.bak")
    seen = []
    files.before_change = lambda: seen.append(files.inner.read("/a/b.json"))
    write_atomic(files, "/a/b.json", b"2\n", former="/a/b.json.bak")
    assert set(seen) == {b"1\n", b"2\n"}


def test_what_a_kill_left_beside_a_file_is_no_hindrance() -> None:
    memory = MemoryFiles()
    for content in (b"1\n", b"2\n"):
        write_atomic(memory, "/a/b.json", content, former="/a/b.json.bak")
    for moment in range(1, 20):
        files = FaultyFiles(memory.kill())
        files.lose_power_at = moment
        with suppress(PowerLoss):
            write_atomic(files, "/a/b.json", b"3\n", former="/a/b.json.bak")
        after = files.inner.kill()
        for content in (b"4\n", b"5\n"):
            write_atomic(after, "/a/b.json", content, former="/a/b.json.bak")
        assert after.list("/a") == ["b.json", "b.json.bak"], moment
        assert after.read("/a/b.json.bak") == b"4\n", moment


def test_a_kill_between_two_names_leaves_no_third_one(tmp_path: Path) -> None:
    path, former = tmp_path / "b.json", tmp_path / "b.json.bak"
    path.write_bytes(b"1\n")
    former.hardlink_to(path)
    write_atomic(PosixFiles(), str(path), b"2\n", former=str(former))
    assert sorted(tmp_path.iterdir()) == [path, former]
    assert (path.read_bytes(), former.read_bytes()) == (b"2\n", b"1\n")
    assert former.stat().st_nlink == 1


@pytest.mark.parametrize(
    "fault",
    [
        Fault("link", error=errno.EPERM),
        Fault("link", error=errno.EXDEV),
        Fault("rename", "b.json.bak", errno.EIO, times=1),
    ],
)
def test_the_former_content_is_copied_where_a_file_gets_no_second_name(fault: Fault) -> None:
    files = FaultyFiles(MemoryFiles())
    write_atomic(files, "/a/b.json", b"1\n", former="/a/b.json.bak")
    files.faults = [fault]
    seen = []
    files.before_change = lambda: seen.append(files.inner.read("/a/b.json"))
    write_atomic(files, "/a/b.json", b"2\n", former="/a/b.json.bak")
    assert set(seen) == {b"1\n", b"2\n"}
    assert files.list("/a") == ["b.json", "b.json.bak"]
    assert files.read("/a/b.json.bak") == b"1\n"


def test_the_former_content_keeps_rights_and_links(tmp_path: Path) -> None:
    behind, link, copy = tmp_path / "kept" / "b.json", tmp_path / "b.json", tmp_path / "b.json.bak"
    behind.parent.mkdir()
    behind.write_text("old\n")
    behind.chmod(0o600)
    link.symlink_to(behind)
    write_atomic(PosixFiles(), str(link), b"new\n", former=str(copy))
    write_atomic(PosixFiles(), str(link), b"newer\n", former=str(copy))
    assert link.is_symlink() and (behind.read_text(), _mode(behind)) == ("newer\n", 0o600)
    assert (copy.read_text(), _mode(copy)) == ("new\n", 0o600)
    assert sorted(os.listdir(tmp_path)) == ["b.json", "b.json.bak", "kept"]
