"""`make` runs the checkout: it puts an editable install in place of a copy, with the real Makefile
and pip, and without a network."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import venv
from pathlib import Path

import pytest

from tests.support.jars import PROJECT

PACKAGE = "rocketmq_tw"
#: What builds the package of the test: pip would fetch setuptools for the real one.
BACKEND = """
import zipfile
from pathlib import Path

INFO = "rocketmq_tw-1.dist-info"


def build_wheel(directory, config_settings=None, metadata_directory=None):
    return wheel(directory, {"rocketmq_tw/__init__.py": ""})


def build_editable(directory, config_settings=None, metadata_directory=None):
    return wheel(directory, {"rocketmq_tw.pth": str(Path.cwd())})


def wheel(directory, files):
    name = "rocketmq_tw-1-py3-none-any.whl"
    files |= {
        f"{INFO}/METADATA": "Metadata-Version: 2.1\\nName: rocketmq_tw\\nVersion: 1\\n",
        f"{INFO}/WHEEL": "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
    }
    record = "".join(f"{path},,\\n" for path in [*files, f"{INFO}/RECORD"])
    with zipfile.ZipFile(Path(directory) / name, "w") as archive:
        for path, text in {**files, f"{INFO}/RECORD": record}.items():
            archive.writestr(path, text)
    return name
"""
PYPROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""

pytestmark = pytest.mark.skipif(
    shutil.which("make") is None or importlib.util.find_spec("pip") is None,
    reason="no make or no pip here",
)


class Checkout:
    """A checkout with a package of this name, and its .venv with pip."""

    def __init__(self, home: Path) -> None:
        self._home = home
        (home / PACKAGE).mkdir(parents=True)
        (home / PACKAGE / "__init__.py").touch()
        (home / "backend.py").write_text(BACKEND)
        (home / "pyproject.toml").write_text(PYPROJECT)
        (home / "setup.cfg").touch()
        shutil.copy(PROJECT / "Makefile", home)
        (home / "tools").mkdir()
        shutil.copy(PROJECT / "tools" / "check_machine.py", home / "tools")
        venv.create(home / ".venv", symlinks=True)
        (packages,) = (home / ".venv" / "lib").glob("python3*/site-packages")
        pip = importlib.util.find_spec("pip")
        assert pip is not None and pip.submodule_search_locations
        (packages / "pip").symlink_to(pip.submodule_search_locations[0])

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
        environment |= {"PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        for name in ("MAKEFLAGS", "MAKELEVEL"):
            environment.pop(name, None)
        return subprocess.run(
            command, cwd=self._home, env=environment, capture_output=True, text=True, timeout=120
        )

    def install_copy(self) -> None:
        """As `pip install .` by hand, behind an install by make."""
        done = self.run(".venv/bin/python", "-m", "pip", "install", "-q", ".")
        assert not done.returncode, done.stderr
        for goal in ("run", "spark"):
            (self._home / ".venv" / f".stamp-{goal}").touch()

    def runs_copy(self) -> bool:
        """Whether servers run the code of the copy."""
        # Python has the directory where it is started in front of all others.
        program = f"import sys; del sys.path[0]; import {PACKAGE}; print({PACKAGE}.__file__)"
        found = self.run(".venv/bin/python", "-c", program)
        assert not found.returncode, found.stderr
        return not found.stdout.startswith(f"{self._home / PACKAGE}/")


@pytest.mark.parametrize("goal", ["run", "spark"])
def test_a_copy_is_replaced_by_the_checkout(goal: str, tmp_path: Path) -> None:
    checkout = Checkout(tmp_path / "checkout")
    checkout.install_copy()
    assert checkout.runs_copy()
    made = checkout.run("make", f".venv/.stamp-{goal}")
    assert not made.returncode, made.stderr
    assert not checkout.runs_copy()
    # And then it has nothing to do any more.
    assert checkout.run("make", "-q", f".venv/.stamp-{goal}").returncode == 0
