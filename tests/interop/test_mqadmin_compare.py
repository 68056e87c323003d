"""Every command of stock's mqadmin says the same of our servers as of stock's (docs/mqadmin.md)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.support.elected_site import ElectedSite
from tests.support.java_client import JavaClients
from tests.support.mqadmin_cases import CASES, ELECTED_CASES, ENDLESS, NEW, OLD, SLAVE_CASES
from tests.support.mqadmin_comparison import Outcome, compare
from tests.support.mqadmin_site import Site
from tests.support.slave_site import SlaveSite


def _check(outcomes: Iterable[Outcome]) -> None:
    wrong = [each for each in outcomes if not each.is_as_expected]
    assert not wrong, "\n".join(map(str, wrong))


@pytest.mark.parametrize("version", [NEW, OLD])
def test_every_command_says_the_same(
    version: str, jvms: dict[str, JavaClients], tmp_path: Path
) -> None:
    _check(compare(jvms[version], tmp_path))


def test_those_about_controllers_and_containers_say_the_same(
    jvms: dict[str, JavaClients], tmp_path: Path
) -> None:
    _check(compare(jvms[NEW], tmp_path, ELECTED_CASES, ElectedSite))


def test_those_to_slaves_say_the_same(jvms: dict[str, JavaClients], tmp_path: Path) -> None:
    _check(compare(jvms[NEW], tmp_path, SLAVE_CASES, SlaveSite, jvms[OLD]))


def test_those_that_run_until_they_are_killed_say_the_same(
    jvms: dict[str, JavaClients], tmp_path: Path
) -> None:
    _check(compare(jvms[NEW], tmp_path, ENDLESS, Site, jvms[OLD]))


@pytest.mark.parametrize("version", [NEW, OLD])
def test_no_command_is_left_out(version: str, jvms: dict[str, JavaClients]) -> None:
    listed = re.findall(r"^   (\w+) ", jvms[version].mqadmin(), re.MULTILINE)
    assert len(listed) > 50
    cases = (*CASES, *ENDLESS, *ELECTED_CASES)
    compared = {case.command for case in cases if version in case.versions}
    assert set(listed) - compared == set()
