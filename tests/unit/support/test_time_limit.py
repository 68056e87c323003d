"""A test that hits its time limit fails with these words, and the next one passes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
STUCK = {
    "a_loop": """
def test_it():
    while True:
        time.sleep(0.01)
""",
    "an_answer_that_never_comes": """
@on_reactor
async def test_it(reactor):
    await Deferred()
""",
    "a_reactor_that_is_busy": """
@on_reactor
async def test_it(reactor):
    while True:
        await deferLater(reactor, 0, time.sleep, 0.01)
""",
    "a_callback_whose_errors_are_dropped": """
def test_it():
    while True:
        called = Deferred()
        called.addCallback(time.sleep)
        called.addErrback(lambda failure: None)
        called.callback(0.4)
        for _ in range(20_000_000):
            pass
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
OPTIONS = [f"--config-file={ROOT / 'setup.cfg'}", "--timeout=1"]
OPTIONS += ["-v", "-p", "tests.conftest", "-p", "no:cacheprovider"]
HEAD = """
import time

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock, LoopingCall, deferLater

from tests.support.reactor import on_reactor
"""
TAIL = """

def test_the_next_one():
    pass

@on_reactor
async def test_the_next_one_with_a_reactor(reactor):
    await deferLater(reactor, 0)
"""


@pytest.mark.parametrize("stuck", STUCK)
def test_the_next_one_passes(stuck: str, tmp_path: Path) -> None:
    tests = tmp_path / "test_stuck.py"
    tests.write_text(HEAD + STUCK[stuck] + TAIL)
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *OPTIONS, str(tests)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    where = "ERROR" if "fixture" in stuck else "FAILED"
    assert re.search(rf"{where} .*::test_it - Failed: Timeout", ran.stdout), ran.stdout
    assert len(re.findall("^(?:FAILED|ERROR) ", ran.stdout, re.MULTILINE)) == 1, ran.stdout
    assert re.search(r"\b[23] passed", ran.stdout), ran.stdout
