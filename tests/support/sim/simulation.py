"""One clock, one network, and processes on hosts that can be killed, paused and started again."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from random import Random
from typing import Any, TypeVar
from unittest.mock import patch

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from rocketmq_tw.files.faulty import FaultyFiles
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.wire import command
from tests.support.broker import Threads
from tests.support.network import MemoryNetwork, Weather
from tests.support.sim.clock import EventClock, ProcessClock

T = TypeVar("T")
#: Seconds between two looks at a condition.
STEP = 0.005


@contextmanager
def reproducible(seed: int) -> Iterator[None]:
    """What is chosen by chance follows from the seed, whatever the process did before."""
    state = random.getstate()
    random.seed(seed)
    try:
        # The numbers of requests go into their length, and so on into everything.
        with patch.object(command, "_next_opaque", count(1).__next__):
            yield
    finally:
        random.setstate(state)


class SlowThreads(Threads):
    """A pool whose work is done after a while, in any order; `slowest` is in seconds."""

    def __init__(self, clock: ProcessClock, chance: Random, slowest: float) -> None:
        super().__init__(eager=False)
        self._clock = clock
        self._chance = chance
        self._slowest = slowest

    def __call__(self, job: Callable[[], Any]) -> Deferred[Any]:
        if self.eager:
            return super().__call__(job)
        done: Deferred[Any] = Deferred()

        def run() -> None:
            try:
                value = job()
            except Exception:
                done.errback(Failure())
            else:
                done.callback(value)

        slow = self._chance.random() < 0.1
        delay = self._chance.random() * (self._slowest if slow else 0.002)
        self._clock.callLater(delay, run)
        return done


class Simulation:
    """`chance` decides all that is left to it; with `slowest_disk` (seconds) what threads do takes
    a while. `on` is another one whose clock and network this one shares."""

    def __init__(
        self,
        on: Simulation | None = None,
        *,
        chance: Random | None = None,
        weather: Weather | None = None,
        slowest_disk: float = 0.0,
    ) -> None:
        self.chance = chance or Random(0)
        self.slowest_disk = slowest_disk
        if on is None:
            self.clock = EventClock()
            self.clock.rightNow = 1000.0
            self.network = MemoryNetwork(self.clock, weather)
        else:
            self.clock, self.network = on.clock, on.network

    def run(self, seconds: float) -> None:
        """Time goes on."""
        self.clock.advance(seconds)

    def run_until(self, condition: Callable[[], Any], limit: float = 60.0) -> float:
        """The seconds until `condition` held."""
        began = self.clock.seconds()
        while not condition():
            assert self.clock.seconds() - began < limit, "not in time"
            self.run(STEP)
        return self.clock.seconds() - began

    def result(self, deferred: Deferred[T]) -> T:
        """What the Deferred fires with; raises what it fails with."""
        found: list[Any] = []
        deferred.addBoth(found.append)
        self.run_until(lambda: found)
        if isinstance(found[0], Failure):
            found[0].raiseException()
        result: T = found[0]
        return result


class Process:
    """Runs on one host; `files` outlive it, `disk` may fail them on the way."""

    def __init__(self, simulation: Simulation, host: str, files: MemoryFiles | None = None) -> None:
        self.simulation = simulation
        self.host = host
        self.files = files or MemoryFiles()
        #: What its disks refused: error, operation, path -> how often.
        self.struck: Counter[tuple[int, str, str]] = Counter()
        #: What all its processes asked of their disks: operation, path.
        self.asked: set[tuple[str, str]] = set()
        self.disk = self._new_disk()
        self.clock: ProcessClock | None = None
        self.is_paused = False
        #: A power loss took what was not synced.
        self.lost_power = False

    @property
    def is_running(self) -> bool:
        """Whether there is a process, paused or not."""
        return self.clock is not None

    @property
    def is_able(self) -> bool:
        """Whether there is a process that can do something."""
        return self.clock is not None and not self.is_paused

    def begin(self) -> tuple[ProcessClock, Threads]:
        """A new process begins."""
        simulation = self.simulation
        simulation.network.came_up(self.host)
        self.lost_power = False
        self.clock = clock = ProcessClock(simulation.clock, simulation.network, self.host)
        if simulation.slowest_disk:
            return clock, SlowThreads(clock, simulation.chance, simulation.slowest_disk)
        return clock, Threads()

    def end(self, *, power: bool = False, seed: int | None = None) -> None:
        """kill -9, or the machine loses its power and with it a part of what was not synced, which
        `seed` decides."""
        assert self.clock is not None
        self.clock.die(power=power)
        self.clock, self.is_paused, self.lost_power = None, False, power
        if power:
            chance = self.simulation.chance
            self.files = self.files.crash(chance.randrange(1 << 30) if seed is None else seed)
        else:
            self.files = self.files.kill()
        self.disk = self._new_disk()

    def _new_disk(self) -> FaultyFiles:
        disk = FaultyFiles(self.files, self.struck)
        disk.asked = self.asked
        return disk

    def pause(self) -> None:
        """SIGSTOP."""
        assert self.clock is not None
        self.is_paused = True
        self.clock.pause()

    def go_on(self) -> None:
        """SIGCONT."""
        assert self.clock is not None
        self.is_paused = False
        self.clock.go_on()
