"""`make run` as a user types it: what it shows, and that nothing of it is left."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.rmqadmin import answer
from tests.support.wait import LIMIT, wait_until

PROJECT = Path(__file__).resolve().parents[3]
#: twistd of the Python that runs the tests, in the place of an installed one.
TWISTD = """#!{python}
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.path.insert(0, {project!r})
from twisted.scripts.twistd import run
run()
"""


class MakeRun:
    """`make run` with ports of the kernel's choice and its files in `home`."""

    def __init__(self, home: Path, *options: str) -> None:
        (home / "twistd").write_text(TWISTD.format(python=sys.executable, project=str(PROJECT)))
        (home / "twistd").chmod(0o755)
        proxy = home / "proxy.json"
        proxy.write_text(json.dumps({"grpcServerPort": 0, "remotingListenPort": 0}))
        keys = {
            "namesrvListenPort": "0",
            "listenPort": "0",
            "storePathRootDir": f"{home}/store",
            "kvConfigPath": f"{home}/kv.json",
            "configStorePath": f"{home}/namesrv.properties",
        }
        settings = " ".join(f"-o {key}={value}" for key, value in keys.items())
        arguments = " ".join([f"-pc {proxy}", settings, *options])
        self.seen = ""
        self.process = subprocess.Popen(
            ["make", "-o", ".venv/.stamp-run", "run", f"BIN={home}", f"ARGS={arguments}"],
            cwd=PROJECT,
            env={k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "NAMESRV"))},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def wait_for(self, pattern: str) -> str:
        """Everything that is shown up to the first line that matches."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.seen += line
            if re.search(pattern, line):
                return self.seen
        raise AssertionError(f"no {pattern!r} in:\n{self.seen}")

    def finish(self) -> int:
        """The exit status; what was shown after `wait_for` is in `seen`."""
        rest, _ = self.process.communicate(timeout=LIMIT)
        self.seen += rest
        return self.process.returncode

    def is_alive(self) -> bool:
        """Whether any process of it is left."""
        try:
            os.killpg(self.process.pid, 0)
        except ProcessLookupError:
            return False
        return True

    def close(self) -> None:
        if self.is_alive():
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MakeRun]:
    """One that runs; its end is for the last test that has it."""
    run = MakeRun(tmp_path_factory.mktemp("made"))
    run.wait_for("consumeMessage")
    yield run
    run.close()


@pytest.fixture
def own(tmp_path: Path) -> Iterator[MakeRun]:
    """One that the test ends."""
    run = MakeRun(tmp_path)
    run.wait_for("consumeMessage")
    yield run
    run.close()


def test_it_says_what_to_do_next_in_lines_that_can_be_pasted(made: MakeRun) -> None:
    shown = made.seen.splitlines()
    first = next(number for number, line in enumerate(shown) if "rocketmq_tw" in line)
    assert len(shown) - first <= 12 and "factory" not in made.seen.lower()
    *_, listing, sending, reading = [line.strip().split() for line in shown]
    assert {words[0].rpartition("/")[2] for words in (listing, sending, reading)} == {"rmqadmin"}
    address = listing[listing.index("-n") + 1]
    assert len(answer(address, " ".join(listing[1:]))["brokers"]) == 1
    assert answer(address, " ".join(sending[1:]))["sendStatus"] == "SEND_OK"
    (message,) = answer(address, " ".join(reading[1:]))["messages"]
    assert message["body"] == "hello"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_all_of_it_is_no_error(own: MakeRun, number: signal.Signals) -> None:
    os.killpg(own.process.pid, number)
    own.finish()
    assert "Error" not in own.seen and "Traceback" not in own.seen
    wait_until(lambda: not own.is_alive(), "the end of all its processes")


def test_the_end_of_the_server_by_a_signal_is_no_error(own: MakeRun, tmp_path: Path) -> None:
    (server,) = _processes_with(str(tmp_path / "twistd"))
    os.kill(server, signal.SIGTERM)
    assert own.finish() == 0, own.seen


def test_make_takes_its_server_along(own: MakeRun) -> None:
    own.process.terminate()
    own.finish()
    wait_until(lambda: not own.is_alive(), "the end of all its processes")


def test_a_port_that_is_taken_is_all_that_a_second_one_says(
    made: MakeRun, tmp_path_factory: pytest.TempPathFactory
) -> None:
    taken = re.search(r"name server: listening on 127\.0\.0\.1:(\d+)", made.seen)
    assert taken is not None
    home = tmp_path_factory.mktemp("second")
    second = MakeRun(home, f"-o namesrvListenPort={taken[1]}")
    assert second.finish() != 0
    lines = [line for line in second.seen.splitlines() if not line.startswith("make")]
    assert len(lines) == 2 and "change namesrvListenPort" in lines[1], second.seen
    second.close()


def _processes_with(argument: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().decode().split("\0")
            except OSError:
                continue
            if words[1:2] == [argument]:
                found.append(int(entry.name))
    return found
