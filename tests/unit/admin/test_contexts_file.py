"""How the file of the contexts is written."""

import fcntl
import os
import stat
from pathlib import Path
from threading import Thread

import pytest

from rocketmq_tw.admin.settings import FILE_VARIABLE, Contexts, change_contexts, read


@pytest.fixture
def file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    path = tmp_path / "contexts.yaml"
    monkeypatch.setenv(FILE_VARIABLE, str(path))
    return path


def test_a_link_stays_and_the_file_behind_it_is_written(file: Path, tmp_path: Path) -> None:
    behind = tmp_path / "kept.yaml"
    behind.write_text("contexts: {}\n")
    file.symlink_to("kept.yaml")
    change_contexts(lambda contexts: contexts)
    assert file.is_symlink()
    assert "current: null" in behind.read_text()
    assert read() == Contexts()


def test_only_the_owner_reads_it_whatever_was_left_beside_it(file: Path, tmp_path: Path) -> None:
    left = tmp_path / "contexts.yaml.new"
    left.touch()
    left.chmod(0o644)
    change_contexts(lambda contexts: contexts)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_two_calls_at_once_change_it_one_after_the_other(file: Path, tmp_path: Path) -> None:
    def add(name: str, contexts: Contexts) -> Contexts:
        return Contexts({**contexts.entries, name: {"name-servers": "a:1"}}, contexts.current)

    def add_while_another_call_wants_to(contexts: Contexts) -> Contexts:
        other.start()
        directory = os.open(tmp_path, os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(directory)
        return add("one", contexts)

    other = Thread(target=change_contexts, args=[lambda contexts: add("other", contexts)])
    change_contexts(add_while_another_call_wants_to)
    other.join()
    assert sorted(read().entries) == ["one", "other"]
