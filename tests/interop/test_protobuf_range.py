"""The proxy with the oldest and the newest release of protobuf that setup.cfg allows."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest

from tests.support.downloads import fetch
from tests.support.proto_round_trips import round_trips
from tools.proto import ROOT

pytestmark = pytest.mark.more


def allowed() -> tuple[str, str]:
    """The oldest release, and the first one that is too new."""
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    (found,) = re.findall(
        r"^protobuf>=([\d.]+),<(\d+)$", setup["options"]["install_requires"], re.M
    )
    return found


class Protobuf:
    """A release of protobuf, which is found before that of the interpreter."""

    def __init__(self, requirement: str, home: Path) -> None:
        pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(home)]
        fetch(requirement, [*pip, requirement])
        self._home = home

    def run(self, *arguments: str, implementation: str = "") -> str:
        """What Python prints with these arguments."""
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(self._home), str(ROOT)])}
        if implementation:
            environment["PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION"] = implementation
        done = subprocess.run(
            [sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
        return done.stdout


@pytest.fixture(scope="module", params=["oldest", "newest"])
def protobuf(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Protobuf, str]:
    """One end of the range, and a pattern of its version."""
    oldest, beyond = allowed()
    home = tmp_path_factory.mktemp(request.param)
    if request.param == "oldest":
        return Protobuf(f"protobuf=={oldest}", home), rf"{re.escape(oldest)}(\.0)*$"
    return Protobuf(f"protobuf<{beyond}", home), rf"{int(beyond) - 1}\."


@pytest.mark.parametrize("implementation", ["upb", "python"])
def test_all_messages_are_written_and_read(
    protobuf: tuple[Protobuf, str], implementation: str
) -> None:
    release, version = protobuf
    program = ["-m", "tests.support.proto_round_trips"]
    found, used, written = json.loads(release.run(*program, implementation=implementation))
    assert re.match(version, found) and used == implementation
    assert len(written) > 60 and written == round_trips()


@pytest.mark.parametrize("tests", ["test_every_call.py", "test_registration.py"])
def test_the_proxy_does_what_its_tests_ask_for(protobuf: tuple[Protobuf, str], tests: str) -> None:
    """All calls with good and bad input; the JSON that other proxies are told."""
    release, _ = protobuf
    release.run("-m", "pytest", "-q", "-p", "no:cacheprovider", f"tests/unit/proxy/{tests}")
