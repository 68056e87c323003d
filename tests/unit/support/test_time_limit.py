"""A test that hits its time limit fails with these words, and the next one passes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

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
OPTIONS += ["-v", "-p", "tests.conftest", "-p", "no:cacheprovider"]
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
#: As `make unit` runs tests/reactor.
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


def run_stuck(tmp_path: Path, text: str, *options: str) -> str:
    """The output of a test run of a file of this text, with a time limit of two seconds."""
    tests = tmp_path / "test_stuck.py"
    tests.write_text(text)
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *OPTIONS, *options, str(tests)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    return ran.stdout


@pytest.mark.parametrize("stuck", STUCK)
def test_the_next_one_passes(stuck: str, tmp_path: Path) -> None:
    output = run_stuck(tmp_path, HEAD + STUCK[stuck] + TAIL)
    where = "ERROR" if "fixture" in stuck else "FAILED"
    assert re.search(rf"{where} .*::test_it - Failed: Timeout", output), output
    assert len(re.findall("^(?:FAILED|ERROR) ", output, re.MULTILINE)) == 1, output
    assert re.search(r"\b[12] passed", output), output


@pytest.mark.parametrize("stuck", STUCK_ON_REACTOR)
def test_the_next_one_on_the_reactor_passes(stuck: str, tmp_path: Path) -> None:
    text = REACTOR_HEAD + STUCK_ON_REACTOR[stuck] + REACTOR_TAIL
    output = run_stuck(tmp_path, text, *ON_REACTOR)
    assert re.search("crashed while running '.*::test_it'", output), output
    assert re.search("^FAILED .*::test_it", output, re.MULTILINE), output
    assert re.search("1 failed, 1 passed", output), output
