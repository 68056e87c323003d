"""The scripts in scripts/; `REWRITE=1 pytest tests/unit/raft/test_scripts.py` writes them anew."""

import os
from pathlib import Path

import pytest

from tests.support.raft_script import run_script

SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.txt"))


@pytest.mark.parametrize("script", SCRIPTS, ids=[path.stem for path in SCRIPTS])
def test_script(script: Path) -> None:
    expected = script.read_text()
    actual = run_script(expected)
    if os.environ.get("REWRITE"):
        script.write_text(actual)
    assert actual == expected


def test_there_are_scripts() -> None:
    assert len(SCRIPTS) >= 6
