"""Measures what docs/replication.md says of master and slave.

    python -m tools.replication_campaign volume --mebibytes 1024
    python -m tools.replication_campaign throughput --seconds 20 --rounds 3

`volume`: ours and stock's as master and slave of each other; random bodies through the link, then
SHA-256 of both logs, then a stock consumer reads everything from the slave alone.
`throughput`: the benchmark's load generator (stock's producer, 16 threads, bodies of 128 bytes) on
a SYNC_MASTER with its slave, ours and stock's in turn, so that both see the same machine. Stock's
brokers have the settings, the JVM flags and the warm-up of `tools/bench`.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import psutil

from tests.support.cluster import OURS, make_broker, make_name_server
from tests.support.java_client import JavaClients
from tests.support.load import send_request
from tests.support.processes import BrokerProcess, NameServerProcess
from tests.support.remoting import ask
from tests.support.replicas import (
    Replicas,
    log_digest,
    send_volume,
    slaves_in_sync,
    wait_topic,
)
from tests.support.wait import wait_until
from tools.bench.client import LoadClient
from tools.bench.subjects import SETTINGS as BENCH_SETTINGS
from tools.bench.subjects import WarmStockBroker

STOCK = "5.3.3"
PAIRS = (("4.9.7", OURS), ("5.3.3", OURS), (OURS, "4.9.7"), (OURS, "5.3.3"))
#: Sizes of real use; the tests' own are small.
SETTINGS = {
    "mappedFileSizeCommitLog": str(1 << 30),
    "mappedFileSizeConsumeQueue": "6000000",
    "messageIndexEnable": "false",
}
TOPIC = "campaign"
THREADS = 16
#: A push consumer holds 100 MiB of each queue, which the tests' JVM has no room for.
CLIENT_HEAP_MB = 2048


def volume(size: int, pairs: list[tuple[str, str]]) -> None:
    """One line for each pair of master and slave."""
    for master, slave in pairs:
        with tempfile.TemporaryDirectory() as directory:
            home = Path(directory)
            java = JavaClients(STOCK, home / "java", CLIENT_HEAP_MB)
            try:
                _copy_volume(home, java, master, slave, size)
            finally:
                java.close()


def _copy_volume(home: Path, java: JavaClients, master: str, slave: str, size: int) -> None:
    with (
        make_name_server(OURS, home / "namesrv") as name_server,
        Replicas(
            "pair", home, [name_server], master=master, slaves=[slave], settings=SETTINGS
        ) as pair,
    ):
        pair.master.start()
        java.create_topic(name_server.address, pair.master.address, TOPIC, 4)
        pair.slave.start()
        start = time.monotonic()
        messages = send_volume(pair.master.address, TOPIC, size)
        sent = time.monotonic() - start
        end = pair.wait_equal(pair.slave, limit=1200)
        copied = time.monotonic() - start
        equal = log_digest(pair.slave, 0, end) == log_digest(pair.master, 0, end)
        wait_topic(pair.slave, TOPIC)
        pair.master.kill()
        wait_until(lambda: not name_server.knows(pair.master), "the master to be gone")
        start = time.monotonic()
        with java.consumer(name_server.address, "campaign-group", {TOPIC: "*"}) as consumer:
            received = consumer.received(messages, limit=1200)
        ids = {(message["queue"], message["offset"]) for message in received}
        print(
            f"master {master}, slave {slave}: {end >> 20} MiB of log, {messages} messages;"
            f" sent in {sent:.1f} s, on the slave after {copied:.1f} s;"
            f" SHA-256 {'equal' if equal else 'DIFFERENT'};"
            f" the slave alone served {len(ids)} of {messages}"
            f" in {time.monotonic() - start:.1f} s",
            flush=True,
        )


def throughput(seconds: int, rounds: int, warm: int) -> None:
    """Acknowledged sends a second of each kind's pair, round by round."""
    ratios = []
    with tempfile.TemporaryDirectory() as directory:
        client = LoadClient(STOCK, Path(directory))
        try:
            for number in range(rounds):
                rates = {}
                # The second run finds the machine as the first one left it.
                for kind in (STOCK, OURS) if number % 2 == 0 else (OURS, STOCK):
                    figures = _sends_a_second(client, kind, seconds, warm)
                    rates[kind] = figures.rate
                    print(f"round {number + 1}: SYNC_MASTER {kind}: {figures}", flush=True)
                ratios.append(rates[OURS] / rates[STOCK])
                print(f"round {number + 1}: ours / stock {ratios[-1]:.2f}", flush=True)
        finally:
            client.close()
    print(f"median of ours / stock: {median(ratios):.2f} ({min(ratios):.2f}..{max(ratios):.2f})")


class PairFigures(NamedTuple):
    """What a pair did: SEND_OK a second, others, and CPU in microseconds an acknowledged send."""

    rate: float
    failed: int
    p99_ms: float
    master_us: float
    slave_us: float

    def __str__(self) -> str:
        return (
            f"{self.rate:.0f} msg/s, {self.failed} not answered with SEND_OK, p99"
            f" {self.p99_ms:.1f} ms; CPU a message: master {self.master_us:.0f} us, slave"
            f" {self.slave_us:.0f} us"
        )


def _make_warm(
    kind: str, name: str, home: Path, name_servers: list[NameServerProcess], **options: Any
) -> BrokerProcess:
    """As `make_broker`, stock with its users' JVM flags instead of the tests'."""
    if kind == OURS:
        return make_broker(kind, name, home, name_servers, **options)
    return WarmStockBroker(kind, name, home, name_servers, **options)


def _sends_a_second(client: LoadClient, kind: str, seconds: int, warm: int) -> PairFigures:
    # Stock 5.3.3 waits for a slave only where two replicas are asked for.
    settings = {**BENCH_SETTINGS, "inSyncReplicas": "2"}
    with (
        tempfile.TemporaryDirectory() as directory,
        make_name_server(OURS, Path(directory) / "namesrv") as name_server,
        Replicas(
            "pair",
            Path(directory),
            [name_server],
            master=kind,
            slaves=[kind],
            role="SYNC_MASTER",
            settings=settings,
            make=_make_warm,
        ) as pair,
    ):
        pair.master.start()
        ask(pair.master.address, send_request(TOPIC, 0, b"makes the topic", queues=8))
        pair.slave.start()
        wait_until(lambda: slaves_in_sync(pair.master) == 1, "the link")
        wait_until(lambda: name_server.routes(TOPIC, [pair.master]), "the route")

        def load(length: int) -> dict[str, Any]:
            return client.run(
                "sync", namesrv=name_server.address, topic=TOPIC, threads=THREADS, seconds=length
            )

        # The warm-up is not counted; a JVM compiles for longer.
        load(warm if kind == STOCK else max(warm // 4, 2))
        brokers = (pair.master, pair.slave)
        before = [_cpu_seconds(broker.pid) for broker in brokers]
        result = load(seconds)
        spent = [
            _cpu_seconds(broker.pid) - former
            for broker, former in zip(brokers, before, strict=True)
        ]
        pair.wait_equal(pair.slave)
    count = max(result["count"], 1)
    master, slave = (1e6 * cpu / count for cpu in spent)
    return PairFigures(
        count / result["seconds"], result["failed"], result["p99_us"] / 1000, master, slave
    )


def _cpu_seconds(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    volume_options = commands.add_parser("volume")
    volume_options.add_argument("--mebibytes", type=int, default=1024)
    volume_options.add_argument("--pair", action="append", help="MASTER,SLAVE; all without it")
    throughput_options = commands.add_parser("throughput")
    throughput_options.add_argument("--seconds", type=int, default=20)
    throughput_options.add_argument("--warm", type=int, default=40, help="stock's; ours: a quarter")
    throughput_options.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if options.command == "throughput":
        throughput(options.seconds, options.rounds, options.warm)
        return
    pairs = [tuple(pair.split(",", 1)) for pair in options.pair or ()] or list(PAIRS)
    volume(options.mebibytes << 20, [(master, slave) for master, slave in pairs])


if __name__ == "__main__":
    main()
