"""Measures what docs/replication.md says of master and slave.

    python tools/replication_campaign.py volume --mebibytes 1024
    python tools/replication_campaign.py throughput --seconds 20 --rounds 3

`volume`: ours and stock's as master and slave of each other; random bodies through the link, then
SHA-256 of both logs, then a stock consumer reads everything from the slave alone.
`throughput`: stock's producer (16 threads, bodies of a few bytes) on a SYNC_MASTER with its slave,
ours and stock's in turn, so that both see the same machine.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import psutil

from rocketmq_tw.testing.cluster import OURS, make_name_server
from rocketmq_tw.testing.java_client import JavaClients
from rocketmq_tw.testing.replicas import (
    Replicas,
    has_topic,
    log_digest,
    send_volume,
    slaves_in_sync,
)
from rocketmq_tw.testing.wait import wait_until

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


def volume(size: int, pairs: list[tuple[str, str]]) -> None:
    """One line for each pair of master and slave."""
    for master, slave in pairs:
        with tempfile.TemporaryDirectory() as directory:
            home = Path(directory)
            java = JavaClients(STOCK, home / "java")
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
        wait_until(lambda: has_topic(pair.slave, TOPIC), "the topic at the slave", limit=90)
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


def throughput(seconds: float, rounds: int) -> None:
    """Acknowledged sends a second of each kind's pair, round by round."""
    for number in range(rounds):
        for kind in (STOCK, OURS):
            with tempfile.TemporaryDirectory() as directory:
                home = Path(directory)
                java = JavaClients(STOCK, home / "java")
                try:
                    rate, master, slave = _sends_a_second(home, java, kind, seconds)
                finally:
                    java.close()
            print(
                f"round {number + 1}: SYNC_MASTER {kind}: {rate:.0f} msg/s; CPU a message:"
                f" master {master:.0f} us, slave {slave:.0f} us",
                flush=True,
            )


def _sends_a_second(
    home: Path, java: JavaClients, kind: str, seconds: float
) -> tuple[float, float, float]:
    """Messages a second, and the CPU of master and slave in microseconds a message."""
    # Stock 5.3.3 waits for a slave only where two replicas are asked for.
    settings = {**SETTINGS, "inSyncReplicas": "2"}
    with (
        make_name_server(OURS, home / "namesrv") as name_server,
        Replicas(
            "pair",
            home,
            [name_server],
            master=kind,
            slaves=[kind],
            role="SYNC_MASTER",
            settings=settings,
        ) as pair,
    ):
        pair.master.start()
        java.create_topic(name_server.address, pair.master.address, TOPIC, 8)
        pair.slave.start()
        wait_until(lambda: slaves_in_sync(pair.master) == 1, "the link")
        wait_until(lambda: name_server.routes(TOPIC, [pair.master]), "the route")
        with java.producer(name_server.address) as producer:
            producer.start_load(TOPIC, "m", threads=THREADS)
            # The warm-up is not counted.
            time.sleep(seconds / 2)
            before, start = producer.load_acked(), time.monotonic()
            cpu = [_cpu_seconds(broker.pid) for broker in (pair.master, pair.slave)]
            time.sleep(seconds)
            acked, spent = producer.load_acked() - before, time.monotonic() - start
            cpu = [
                1e6 * (_cpu_seconds(broker.pid) - former) / acked
                for broker, former in zip((pair.master, pair.slave), cpu, strict=True)
            ]
            producer.stop_load()
        pair.wait_equal(pair.slave)
        return acked / spent, cpu[0], cpu[1]


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
    throughput_options.add_argument("--seconds", type=float, default=20)
    throughput_options.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if options.command == "throughput":
        throughput(options.seconds, options.rounds)
        return
    pairs = [tuple(pair.split(",", 1)) for pair in options.pair or ()] or list(PAIRS)
    volume(options.mebibytes << 20, [(master, slave) for master, slave in pairs])


if __name__ == "__main__":
    main()
