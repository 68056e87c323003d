"""twistd as a user types it, in an empty directory."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.wait import LIMIT

PROJECT = Path(__file__).resolve().parents[3]


#: A background job of a shell ignores SIGINT, one of nohup(1) SIGHUP, and so would the servers that
#: it starts.
TWISTD = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
from twisted.scripts.twistd import run
run()
"""
#: Gives the process a terminal of its own.
WITH_TERMINAL = """
import fcntl, pty, termios
terminal = pty.openpty()
fcntl.ioctl(terminal[1], termios.TIOCSCTTY, 0)
"""


class Twistd:
    """`twistd -n ARGUMENTS`; its output is read line by line."""

    def __init__(self, home: Path, *arguments: str, terminal: bool = False, **environ: str) -> None:
        path = os.pathsep.join(filter(None, (str(PROJECT), os.environ.get("PYTHONPATH"))))
        inherited = {k: v for k, v in os.environ.items() if k != "NAMESRV_ADDR"}
        self.seen: list[str] = []
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                WITH_TERMINAL + TWISTD if terminal else TWISTD,
                "-n",
                *arguments,
            ],
            cwd=home,
            env=inherited | {"PYTHONPATH": path, "HOME": str(home)} | environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def wait_for(self, pattern: str) -> re.Match[str]:
        """The first line of the output that matches; fails when the output ends without it."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.seen.append(line)
            if found := re.search(pattern, line):
                return found
        raise AssertionError(f"no {pattern!r} in:\n{''.join(self.seen)}")

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def finish(self) -> tuple[int, str]:
        """The exit status and the whole output."""
        rest, _ = self.process.communicate(timeout=LIMIT)
        return self.process.returncode, "".join(self.seen) + rest

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def twistd(tmp_path: Path) -> Iterator[Callable[..., Twistd]]:
    started: list[Twistd] = []

    def start(*arguments: str, **more: Any) -> Twistd:
        started.append(Twistd(tmp_path, *arguments, **more))
        return started[-1]

    yield start
    for process in started:
        process.close()
