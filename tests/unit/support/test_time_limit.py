"""A test that hits its time limit fails with these words, and the next one passes."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.support.wait import LIMIT

ROOT = Path(__file__).parents[3]
STUCK = {
    "a_loop": """
def test_it():
    while True:
        time.sleep(0.01)
""",
    "a_callback_whose_errors_are_dropped": """
def test_it():
    called = Deferred()
    called.addCallback(time.sleep)
    called.addErrback(lambda failure: None)
    called.callback(4)
    while True:
        time.sleep(0.01)
""",
    "a_call_of_a_clock": """
def test_it():
    clock = Clock()
    loop = LoopingCall(time.sleep, 0.01)
    loop.clock = clock
    loop.start(0.001)
    clock.pump([0.001] * 1_000_000)
""",
    "a_fixture": """
@pytest.fixture
def stuck():
    time.sleep(600)

def test_it(stuck):
    pass
""",
    "a_fixture_that_ends": """
@pytest.fixture
def stuck():
    yield
    time.sleep(600)

def test_it(stuck):
    pass
""",
}
STUCK_ON_REACTOR = {
    "an_answer_that_never_comes": """
@pytest_twisted.ensureDeferred
async def test_it():
    await Deferred()
""",
    "a_reactor_that_is_busy": """
@pytest_twisted.ensureDeferred
async def test_it():
    from twisted.internet import reactor
    while True:
        await deferLater(reactor, 0, time.sleep, 0.01)
""",
}
OPTIONS = [f"--config-file={ROOT / 'setup.cfg'}", "--timeout=2"]
OPTIONS += ["-v", "-r", "fEp", "-p", "tests.conftest", "-p", "no:cacheprovider"]
HEAD = """
import time

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock, LoopingCall, deferLater
"""
TAIL = """

def test_the_next_one():
    pass
"""
#: As `make reactor` runs tests/reactor.
ON_REACTOR = ["-p", "twisted", "-n", "1", "--timeout-method=thread"]
REACTOR_HEAD = (
    HEAD
    + """
import pytest_twisted
"""
)
REACTOR_TAIL = """

@pytest_twisted.ensureDeferred
async def test_the_next_one():
    from twisted.internet import reactor
    await deferLater(reactor, 0)
"""


def run_stuck(tmp_path: Path, texts: Mapping[str, str], *options: str) -> str:
    """The output of one test run of files of these texts, with a time limit of two seconds."""
    for name, text in texts.items():
        (tmp_path / f"test_{name}.py").write_text(text)
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *OPTIONS, *options, str(tmp_path)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    return ran.stdout


def outcomes(output: str, name: str) -> list[str]:
    """How the tests of a file ended, as the summary has it: word and test, sorted."""
    found = re.findall(rf"^([A-Z]+) (?:\S*/)?test_{name}\.py::(\w+)", output, re.MULTILINE)
    return sorted(" ".join(each) for each in found)


def test_the_next_one_passes(tmp_path: Path) -> None:
    output = run_stuck(tmp_path, {name: HEAD + text + TAIL for name, text in STUCK.items()})
    for name in STUCK:
        ended = ["ERROR test_it"] if "fixture" in name else ["FAILED test_it"]
        if name == "a_fixture_that_ends":
            ended.append("PASSED test_it")
        assert outcomes(output, name) == [*ended, "PASSED test_the_next_one"], output
        where = ended[0].split()[0]
        assert re.search(rf"{where} .*test_{name}\.py::test_it - Failed: Timeout", output), output


def test_the_next_one_on_the_reactor_passes(tmp_path: Path) -> None:
    texts = {name: REACTOR_HEAD + text + REACTOR_TAIL for name, text in STUCK_ON_REACTOR.items()}
    output = run_stuck(tmp_path, texts, *ON_REACTOR)
    for name in STUCK_ON_REACTOR:
        assert outcomes(output, name) == ["FAILED test_it", "PASSED test_the_next_one"], output
        assert re.search(rf"crashed while running '.*test_{name}\.py::test_it'", output), output
