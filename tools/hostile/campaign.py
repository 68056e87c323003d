"""Servers, an honest client, one hostile behaviour after the other, and what each did to both."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import attrs

from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import RemotingCommand
from tests.support.processes import ServerProcess
from tests.support.remoting import ask
from tests.support.running import Running
from tests.support.servers import OurBroker, OurNameServer
from tests.support.wait import wait_until
from tools.hostile import connections, filtering, reading, tables
from tools.hostile.attack import Attack, Target
from tools.hostile.honest import BROKER, NAME_SERVER, HonestClient

MIB = 1 << 20
#: What the broker's connections may hold together.
BUDGET = 64 * MIB
#: Files and sockets that the broker may have open: few, so that connections reach the limit.
DESCRIPTORS = 2048
_SETTINGS = {
    "maxBytesInFlight": str(BUDGET),
    "enablePropertyFilter": "true",
    "mappedFileSizeCommitLog": str(64 * MIB),
    "maxHashSlotNum": "50000",
    "maxIndexNum": "2000000",
}
_STALL = re.compile(r"the reactor was held for ([0-9.]+) s by ([^\n]*)")
_UNSAID = re.compile(r"; (\d+) stalls before were not logged")
_UNHANDLED = re.compile(r"Traceback|Unhandled")


@attrs.frozen
class Behaviour:
    """What a hostile peer does, and to which of the servers."""

    name: str
    run: Callable[[Attack], None]
    server: str = BROKER


BEHAVIOURS = (
    Behaviour("nobody else", Attack.hold),
    Behaviour("held pulls with bodies of 4 MiB", reading.held_bodies),
    Behaviour("held pulls with one opaque", reading.held_opaques),
    Behaviour("oneway messages", connections.oneway_messages),
    Behaviour("oneway pulls with bodies of 4 MiB", connections.oneway_bodies),
    Behaviour("half frames and slow bytes", connections.torn_frames),
    Behaviour("frames that announce a huge length", connections.announced_lengths),
    Behaviour("idle connections up to the limit", connections.idle_connections),
    Behaviour("readers that never read", reading.never_reading),
    Behaviour("heartbeats of new groups", tables.new_groups),
    Behaviour("messages to new topics", tables.new_topics),
    Behaviour("offsets of new groups", tables.new_offsets),
    Behaviour("locks of thousands of queues", tables.many_locks),
    Behaviour("batches of 32,000 empty messages", tables.tiny_messages),
    Behaviour("queries for a key of very many", reading.shared_key),
    Behaviour("pulls with 50,000 tags", reading.many_tags),
    Behaviour("held pulls of 100,000 subscribed tags", reading.subscribed_tags),
    Behaviour("new SQL92 texts of 200 connections", filtering.new_texts),
    Behaviour("held pulls with slow expressions", filtering.slow_pulls),
    Behaviour("held pops with slow expressions", filtering.slow_pops),
    Behaviour("whole tables in a loop", reading.whole_tables),
    Behaviour("random fields in every code", connections.random_requests),
    Behaviour("strange or silent slaves", connections.strange_slaves),
    Behaviour("TLS handshakes that hang", connections.hung_handshakes),
    Behaviour("registrations of new topics", tables.registrations, NAME_SERVER),
    Behaviour("registrations that inflate", tables.inflating_registrations, NAME_SERVER),
)


@attrs.frozen
class Outcome:
    """What a behaviour did: memory of the attacked server in bytes, times in seconds."""

    behaviour: Behaviour
    #: Requests, pieces or connections of the hostile peers.
    done: int
    before: int
    peak: int
    #: How long each honest request to the attacked server took.
    seconds: list[float]
    #: Honest requests that failed, of both servers, and what was wrong with the first ones.
    errors: int
    texts: list[str]
    #: What the servers' logs say of a held reactor, and how many more they only counted.
    stalls: list[str]
    unsaid: int
    tracebacks: int

    def latency(self, share: float) -> float:
        """The latency in seconds that this share of the honest requests did not exceed."""
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0

    def faults(self, growth: int) -> list[str]:
        """What must not be; memory may peak `growth` bytes above where it stood before."""
        faults = []
        if self.peak - self.before > growth:
            grown = (self.peak - self.before) // MIB
            faults.append(f"memory grew by {grown} MiB, {growth // MIB} are allowed")
        if self.errors:
            faults.append(f"{self.errors} honest requests failed: {'; '.join(self.texts)}")
        if not self.seconds:
            faults.append("no honest request was served")
        if self.tracebacks:
            faults.append(f"{self.tracebacks} tracebacks were logged")
        return [f"{self.behaviour.name}: {fault}" for fault in faults]


class _LimitedBroker(OurBroker):
    """A broker that may open few files."""

    def command(self) -> list[str]:
        limited = f'ulimit -n {DESCRIPTORS} && exec "$@"'
        return ["/bin/sh", "-c", limited, "sh", *super().command()]


class Campaign(Running):
    """A name server, a broker and an honest client, to be attacked."""

    def __init__(self, home: Path, *, timeout: float, seed: int) -> None:
        """`timeout` seconds is what an honest request may take."""
        self._timeout = timeout
        self._seeds = random.Random(seed)
        self._name_server = OurNameServer(home / "namesrv")
        self._broker = _LimitedBroker(
            "attacked", home / "broker", [self._name_server], settings=_SETTINGS
        )
        self._honest: HonestClient | None = None
        self._read: dict[str, int] = {}

    @property
    def _servers(self) -> dict[str, ServerProcess]:
        return {BROKER: self._broker, NAME_SERVER: self._name_server}

    def start(self) -> None:
        self._name_server.start()
        self._broker.start()
        self._honest = HonestClient(self._broker.address, self._name_server.address, self._timeout)
        self._wait_for_honest()

    def run(self, behaviours: tuple[Behaviour, ...], seconds: float) -> Iterator[Outcome]:
        """Each behaviour for so many seconds, and what it did."""
        for behaviour in behaviours:
            yield self._measure(behaviour, seconds)

    def close(self) -> None:
        if self._honest is not None:
            self._honest.close()
        self._broker.close()
        self._name_server.close()

    def _measure(self, behaviour: Behaviour, seconds: float) -> Outcome:
        assert self._honest is not None
        attacked = self._servers[behaviour.server]
        target = Target(
            self._broker.address, self._name_server.address, f"127.0.0.1:{self._broker.ha_port}"
        )
        self._honest.lap()
        self._new_lines()
        _forget_peak(attacked.pid)
        before = attacked.resident_bytes()
        with Attack(target, seconds, self._seeds.getrandbits(32)) as attack:
            behaviour.run(attack)
            # A worker that is done early leaves its results to be seen.
            attack.hold()
        self._still_serves()
        lap = self._honest.lap()
        lines = self._new_lines()
        return Outcome(
            behaviour=behaviour,
            done=attack.done,
            before=before,
            peak=_peak(attacked.pid),
            seconds=lap.seconds[behaviour.server],
            errors=sum(lap.errors.values()),
            texts=lap.texts,
            stalls=[f"{took} s by {what}" for took, what in _STALL.findall(lines)],
            unsaid=sum(map(int, _UNSAID.findall(lines))),
            tracebacks=len(_UNHANDLED.findall(lines)),
        )

    def _wait_for_honest(self) -> None:
        """Until the honest client is served by both: its topic has a route by then."""

        def served() -> bool:
            assert self._honest is not None
            lap = self._honest.lap()
            return bool(lap.seconds[BROKER] and lap.seconds[NAME_SERVER] and not lap.texts)

        wait_until(served, "the honest client to be served")

    def _still_serves(self) -> None:
        """Both servers take new connections."""
        for server in self._servers.values():
            command = RemotingCommand.request(
                RequestCode.GET_BROKER_RUNTIME_INFO
                if server is self._broker
                else RequestCode.GET_BROKER_CLUSTER_INFO
            )
            wait_until(partial(ask, server.address, command), "a new connection")

    def _new_lines(self) -> str:
        """What both logs have got since the last call."""
        new = []
        for server in self._servers.values():
            for path in server.log_files():
                data = path.read_bytes()
                start = self._read.get(str(path), 0)
                self._read[str(path)] = len(data)
                new.append(data[start:].decode(errors="replace"))
        return "\n".join(new)


def _forget_peak(pid: int) -> None:
    """Lets the kernel begin anew with the largest resident set of a process."""
    with open(f"/proc/{pid}/clear_refs", "w", encoding="ascii") as file:
        file.write("5")


def _peak(pid: int) -> int:
    """The largest resident set since `_forget_peak`."""
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        for line in status:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    raise OSError(f"process {pid} has no memory left to measure")
