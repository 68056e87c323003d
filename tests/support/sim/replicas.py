"""Groups whose links are real and whose logs are models, in trouble by seed.

`ReplicaWorld` has what a schedule may do to any of them; the classic HA is in
`tests/sim/replication/test_classic_ha.py`, brokers that change places in `switched.py`.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from random import Random

from twisted.internet.defer import Deferred, succeed

from tests.support.network import Trouble, Weather
from tests.support.sim.simulation import Process, Simulation

FILE_SIZE = 512
HA_PORT = 10912
#: Bytes that a connection takes before its producer pauses.
BUFFER_SIZE = 600
CALM_SECONDS = 0.02


class ModelLog:
    """Bytes from `start` on; those in front of `durable` outlive a power loss. Empty, it ends at
    0."""

    start_offset = 0

    def __init__(self) -> None:
        self.start = 0
        self.durable = 0
        self.data = bytearray()
        self._syncing: list[Deferred[int]] = []

    @property
    def written(self) -> int:
        return self.start + len(self.data) if self.data else 0

    @property
    def end_offset(self) -> int:
        return self.durable

    def read(self, offset: int, size: int) -> bytes:
        end = min(offset + size, offset - offset % FILE_SIZE + FILE_SIZE, self.durable)
        return bytes(self.data[offset - self.start : end - self.start])

    def settled(self) -> Deferred[int]:
        return succeed(self.written) if self.durable == self.written else self.synced()

    def synced(self) -> Deferred[int]:
        """Fires with the end of the log once it is durable."""
        self._syncing.append(Deferred())
        return self._syncing[-1]

    def sync(self) -> None:
        self.durable = self.written
        waiting, self._syncing = self._syncing, []
        for waiter in waiting:
            waiter.callback(self.durable)

    def killed(self, kept: int) -> None:
        """The process is gone, with it all but the first `kept` of the bytes that are not safe."""
        self._syncing.clear()
        del self.data[self.durable - self.start + kept :]
        if not self.data:
            self.start = self.durable = 0


class ReplicaProcess(Process):
    """A log and what runs on it; `address` is where its HA port is."""

    def __init__(self, world: ReplicaWorld, host: str, log: ModelLog) -> None:
        super().__init__(world, host)
        self.log = log
        self.address = f"{host}:{HA_PORT}"

    def start(self) -> None:
        """What a start finds in the files is in order and safe before anyone is told of it."""
        self.log.sync()
        self.begin()

    def sync(self) -> None:
        """Its disk has all that was written."""
        self.log.sync()

    def kill(self, *, power: bool) -> None:
        """kill -9, or a power loss, which takes a part of what is not synced."""
        lost = self.log.written - self.log.durable
        self.log.killed(self.simulation.chance.randrange(lost + 1) if power else lost)
        self.end(power=power)


class ReplicaWorld(Simulation):
    """`processes`, and what may happen to them; `usual` are names of methods by their weight,
    `faults` those of what goes wrong, for a share of the steps."""

    usual: dict[str, int]
    faults: tuple[str, ...]

    def __init__(self, seed: int, share_of_faults: Callable[[Random], float]) -> None:
        chance = Random(seed)
        self.share_of_faults = share_of_faults(chance)
        weather = Trouble(
            chance, slowest=chance.choice([0.01, 0.1, 0.5]), latest=chance.choice([0.01, 0.3])
        )
        super().__init__(chance=chance, weather=weather)
        self.network.buffer_size = BUFFER_SIZE
        self.trace: list[tuple[object, ...]] = []

    @property
    def processes(self) -> list[ReplicaProcess]:
        raise NotImplementedError

    @property
    def now(self) -> float:
        """Seconds."""
        return self.clock.seconds()

    def digest(self) -> tuple[int, ...]:
        """Equal where all logs are."""
        return tuple(zlib.crc32(process.log.data) for process in self.processes)

    def step(self) -> None:
        """Something happens, and some time goes by."""
        if self.chance.random() < self.share_of_faults:
            name = self.chance.choice(self.faults)
        else:
            (name,) = self.chance.choices(list(self.usual), list(self.usual.values()))
        getattr(self, name)()
        self.trace.append((round(self.now, 3), name, self.digest()))
        self.run(self.chance.choice([0.0, 0.001, 0.02, 0.1]))

    def calm_down(self) -> None:
        """No more faults: all that is sent arrives at once, and all processes run."""
        self.network.weather = Weather()
        self.revive()

    # What may go wrong

    def cut(self) -> None:
        """A connection is lost."""
        self.network.reset(self.chance.choice(self.processes).host, self.chance)

    def freeze(self) -> None:
        """Nothing passes through a connection any more, and nobody is told."""
        ends = self.network.ends(self.chance.choice(self.processes).host)
        if ends:
            self.chance.choice(ends).freeze()

    def kill(self) -> None:
        """A process or a machine goes down."""
        process = self.chance.choice(self.processes)
        if process.is_running:
            process.kill(power=self.chance.random() < 0.5)

    def revive(self) -> None:
        """All that are down come up."""
        for process in self.processes:
            if not process.is_running:
                process.start()
