"""What is measured of each step: how long it took, how long others waited meanwhile, memory."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil

from tools.big.watch import Longest, Watch

_MIB = 1 << 20


class Step(NamedTuple):
    """`longest`: the longest answer that others got meanwhile, None where nobody could ask."""

    name: str
    seconds: float
    #: Of the process, all threads.
    cpu_seconds: float
    longest: Longest | None
    resident_mib: float
    #: Without what is mapped from files, as stock maps its store.
    anonymous_mib: float


class Steps:
    """Measures one step after the other of the process `pid`, which may change."""

    def __init__(self) -> None:
        self.taken: list[Step] = []
        self.pid = 0
        self.watch: Watch | None = None

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Measures what is done inside."""
        if self.watch is not None:
            self.watch.take()
        began, busy = time.perf_counter(), cpu_seconds(self.pid)
        yield
        self.note(
            name,
            time.perf_counter() - began,
            cpu_seconds(self.pid) - busy,
            self.watch.take() if self.watch is not None else None,
        )

    def note(self, name: str, seconds: float, cpu: float, longest: Longest | None = None) -> None:
        """Notes a step that was measured elsewhere."""
        memory = _memory(self.pid)
        step = Step(
            name,
            seconds,
            cpu,
            longest,
            memory.get("VmRSS", 0) / _MIB,
            memory.get("RssAnon", 0) / _MIB,
        )
        self.taken.append(step)
        print(_line(step), file=sys.stderr, flush=True)

    def table(self) -> str:
        """All steps as a table of Markdown."""
        head = (
            "| step | s | CPU s | longest answer ms | of it CPU ms | memory MiB | without maps |\n"
            "|---|--:|--:|--:|--:|--:|--:|\n"
        )
        return head + "".join(f"{_line(step)}\n" for step in self.taken)


def _line(step: Step) -> str:
    waits = "- | -" if step.longest is None else f"{step.longest[0]:.0f} | {step.longest[1]:.0f}"
    # Of a process that is gone nobody knows it.
    cpu = "-" if step.cpu_seconds < 0 else f"{step.cpu_seconds:.2f}"
    return (
        f"| {step.name} | {step.seconds:.2f} | {cpu} | {waits} |"
        f" {step.resident_mib:.0f} | {step.anonymous_mib:.0f} |"
    )


def cpu_seconds(pid: int) -> float:
    """User and system time of the process; 0 where it is gone."""
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system)


def _memory(pid: int) -> dict[str, int]:
    """Bytes by name; nothing of a process that is gone."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return {}
    lines = (line.split() for line in text.splitlines())
    return {words[0][:-1]: int(words[1]) * 1024 for words in lines if words[-1:] == ["kB"]}
