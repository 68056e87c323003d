"""How the file of the contexts is written."""

import stat
from pathlib import Path

import pytest

from rocketmq_tw.admin.settings import FILE_VARIABLE, Contexts, read, write


@pytest.fixture
def file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    path = tmp_path / "contexts.yaml"
    monkeypatch.setenv(FILE_VARIABLE, str(path))
    return path


def test_a_link_stays_and_the_file_behind_it_is_written(file: Path, tmp_path: Path) -> None:
    behind = tmp_path / "kept.yaml"
    behind.write_text("contexts: {}\n")
    file.symlink_to("kept.yaml")
    write(Contexts())
    assert file.is_symlink()
    assert "current: null" in behind.read_text()
    assert read() == Contexts()


def test_only_the_owner_reads_it_whatever_was_left_beside_it(file: Path, tmp_path: Path) -> None:
    left = tmp_path / "contexts.yaml.new"
    left.touch()
    left.chmod(0o644)
    write(Contexts())
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
