"""Other work on the machine: processes that would each keep a core busy."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def other_work(processes: int) -> Iterator[None]:
    """Has so many processes compute until the end, at the priority of this one."""
    started = [
        subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"]) for _ in range(processes)
    ]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()
