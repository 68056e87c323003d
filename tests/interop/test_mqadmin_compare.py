"""Every command of stock's mqadmin says the same of our servers as of stock's (docs/mqadmin.md)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.java_client import JavaClients
from tests.support.mqadmin_cases import CASES, ELSEWHERE, NEW, OLD
from tests.support.mqadmin_comparison import compare


@pytest.mark.parametrize("version", [NEW, pytest.param(OLD, marks=pytest.mark.more)])
def test_every_command_says_the_same(
    version: str, jvms: dict[str, JavaClients], tmp_path: Path
) -> None:
    wrong = [each for each in compare(jvms[version], tmp_path) if not each.is_as_expected]
    assert not wrong, "\n".join(map(str, wrong))


@pytest.mark.parametrize("version", [NEW, OLD])
def test_no_command_is_left_out(version: str, jvms: dict[str, JavaClients]) -> None:
    listed = re.findall(r"^   (\w+) ", jvms[version].mqadmin(), re.MULTILINE)
    assert len(listed) > 50
    compared = {case.command for case in CASES if version in case.versions}
    assert set(listed) - compared - ELSEWHERE.keys() == set()
