"""The generated modules of gRPC's messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import proto


def test_what_is_generated_is_current() -> None:
    assert proto.differences() == []


def test_a_change_of_either_side_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a.proto", "a_pb2.py", "a_pb2.pyi"):
        (tmp_path / name).write_text(name)
    monkeypatch.setattr(proto, "FOLDER", tmp_path)
    monkeypatch.setattr(proto, "HASHES", tmp_path / "hashes.txt")
    assert proto.differences() == ["a.proto", "a_pb2.py", "a_pb2.pyi"]
    proto.HASHES.write_text(proto.current_hashes())
    assert proto.differences() == []
    (tmp_path / "a.proto").write_text("changed")
    (tmp_path / "b_pb2.py").write_text("new")
    assert proto.differences() == ["a.proto", "b_pb2.py"]
