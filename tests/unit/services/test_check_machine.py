"""What `make run` says of a machine before it installs."""

from __future__ import annotations

import ast
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

import pytest

from tools import check_machine


class Machine:
    """A PyPy of this version on a machine with these programs, and with its headers or not."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
        self._patch, self._home = monkeypatch, home
        monkeypatch.setattr(sysconfig, "get_path", lambda _: str(home))

    def has(
        self, pypy: tuple[int, int, int] | None, *, programs: Iterable[str], headers: bool = True
    ) -> None:
        if pypy is None:
            self._patch.delattr(sys, "pypy_version_info", raising=False)
        else:
            self._patch.setattr(sys, "pypy_version_info", (*pypy, "final", 0), raising=False)
        found = frozenset(programs)
        self._patch.setattr("shutil.which", lambda name: name if name in found else None)
        if headers:
            (self._home / "Python.h").touch()


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Machine:
    return Machine(monkeypatch, tmp_path)


def test_cpython_needs_no_compiler(machine: Machine) -> None:
    machine.has(None, programs=(), headers=False)
    assert check_machine.missing("run") == check_machine.remarks() == []
    assert check_machine.extras() == ""


def test_pypy_with_a_compiler_has_all(machine: Machine) -> None:
    machine.has((8, 0, 1), programs=("cc", "cargo"))
    assert check_machine.missing("run") == check_machine.remarks() == []
    assert check_machine.extras() == "[compression]"


@pytest.mark.parametrize(("programs", "headers"), [((), True), (("cc",), False)])
def test_pypy_without_a_compiler_leaves_out_what_is_compiled(
    programs: tuple[str, ...], headers: bool, machine: Machine
) -> None:
    machine.has((7, 3, 20), programs=programs, headers=headers)
    assert check_machine.missing("run") == []
    (remark,) = check_machine.remarks()
    assert "lz4 and zstandard are left out" in remark
    assert check_machine.extras() == ""


def test_a_pypy_without_wheels_may_want_rust(machine: Machine) -> None:
    machine.has((8, 0, 1), programs=("cc",))
    (remark,) = check_machine.remarks()
    assert "cargo" in remark


def test_an_older_pypy_is_refused(machine: Machine) -> None:
    machine.has((7, 3, 19), programs=("cc",))
    (problem,) = check_machine.missing("run")
    assert "7.3.20 or later" in problem and "this is 7.3.19" in problem


@pytest.mark.parametrize("goal", ["spark", "test"])
def test_tests_and_spark_are_cpythons(goal: str, machine: Machine) -> None:
    machine.has((8, 0, 1), programs=("cc", "cargo", "java", "javac", "mvn"))
    assert any(problem.startswith("CPython: ") for problem in check_machine.missing(goal))


def test_an_older_python_can_read_it() -> None:
    """Debian 12's own PyPy is 3.9: it has to come to the line that names the version."""
    tree = ast.parse(Path(check_machine.__file__).read_text(), feature_version=(3, 8))
    assert "annotations" in [name.name for name in tree.body[1].names]
