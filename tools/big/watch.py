"""How long a server keeps others waiting: a process of its own asks it something small every few
milliseconds, and notes the longest answer."""

from __future__ import annotations

import multiprocessing
import time
from contextlib import suppress
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import NamedTuple

from rocketmq_tw.wire.command import RemotingCommand
from tests.support.remoting import Connection
from tests.support.running import Closing

_INTERVAL = 0.005


class Longest(NamedTuple):
    """The longest answer of a time, in milliseconds, and the most CPU time that the server's main
    thread took until one came: where others keep the machine busy, that is what is the server's."""

    wall_ms: float
    cpu_ms: float


class Watch(Closing):
    """Watches the server at `address` whose process is `pid`, by asking `code`."""

    def __init__(self, address: str, pid: int, code: int, fields: dict[str, str]) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, other = context.Pipe()
        self._process = context.Process(
            target=_watch, args=(other, address, pid, code, fields), daemon=True
        )
        self._process.start()
        other.close()
        self.take()

    def take(self) -> Longest:
        """The longest answer since the last call."""
        self._pipe.send(None)
        longest: Longest = self._pipe.recv()
        return longest

    def close(self) -> None:
        self._pipe.close()
        self._process.join()


def _watch(pipe: Pipe, address: str, pid: int, code: int, fields: dict[str, str]) -> None:
    schedule = Path(f"/proc/{pid}/task/{pid}/schedstat")
    wall = cpu = 0.0
    with suppress(EOFError, OSError), Connection(address, 600) as connection:
        while True:
            if pipe.poll(_INTERVAL):
                pipe.recv()
                pipe.send(Longest(wall * 1000, cpu * 1000))
                wall = cpu = 0.0
            request = RemotingCommand.request(code)
            request.ext_fields = fields
            before, busy = time.perf_counter(), _cpu_seconds(schedule)
            connection.request(request)
            wall = max(wall, time.perf_counter() - before)
            cpu = max(cpu, _cpu_seconds(schedule) - busy)


def _cpu_seconds(schedule: Path) -> float:
    return int(schedule.read_text().split()[0]) / 1e9
