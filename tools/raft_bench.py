"""Three nodes of ours beside three of stock: appends a second by stock's client, CPU when idle,
how long the group is without a leader after kill -9.

python tools/raft_bench.py [--seconds 5] [--idle 20] [--size 128] [--deaths 5]
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from tests.support.dledger import DLedgerGroup, StockDLedgerClient, Timing, running_group

_TICKS = os.sysconf("SC_CLK_TCK")
_THREADS = (1, 16, 64)


def cpu_seconds(group: DLedgerGroup) -> dict[str, float]:
    """User and system time of each member so far."""
    used = {}
    for name, member in group.members.items():
        fields = Path(f"/proc/{member.pid}/stat").read_text().rsplit(")", 1)[1].split()
        used[name] = (int(fields[11]) + int(fields[12])) / _TICKS
    return used


def load(client: StockDLedgerClient, threads: int, seconds: float, size: int) -> float:
    return client.load(threads, seconds, size) / seconds


def measure(kind: str, seconds: float, idle: float, size: int) -> None:
    """Prints one group's figures."""
    with (
        tempfile.TemporaryDirectory() as home,
        running_group(Path(home), [kind] * 3, Timing(2000, 300, 1000)) as (group, client),
    ):
        load(client, 16, min(seconds, 3), size)
        rates = [f"{load(client, threads, seconds, size):7.0f}" for threads in _THREADS]
        leader = group.wait_leader().name
        before = cpu_seconds(group)
        time.sleep(idle)
        after = cpu_seconds(group)
        memory = {name: member.resident_bytes() for name, member in group.members.items()}
    shares = {name: (after[name] - before[name]) / idle * 100 for name in before}
    others = max(share for name, share in shares.items() if name != leader)
    print(
        f"{kind:6}"
        + "".join(f" {rate}/s" for rate in rates)
        + f"   idle: leader {shares[leader]:.2f} %, followers {others:.2f} %"
        + f"   resident: {max(memory.values()) / 1e6:.0f} MB",
        flush=True,
    )


def measure_deaths(kind: str, deaths: int) -> None:
    """Prints the seconds from a leader's kill -9 to the next leader that a majority follows."""
    took = []
    with (
        tempfile.TemporaryDirectory() as home,
        running_group(Path(home), [kind] * 3, Timing(100, 50, 150)) as (group, _),
    ):
        for _ in range(deaths):
            leader = group.wait_leader()
            leader.kill()
            began = time.monotonic()
            group.wait_leader()
            took.append(time.monotonic() - began)
            leader.start()
    print(
        f"{kind:6} a new leader after {statistics.median(took):.2f} s,"
        f" at most {max(took):.2f} s, of {deaths} deaths",
        flush=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--idle", type=float, default=20)
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--deaths", type=int, default=5)
    arguments = parser.parse_args()
    print("appends a second with", ", ".join(map(str, _THREADS)), "threads of stock's client")
    for kind in ("ours", "stock"):
        measure(kind, arguments.seconds, arguments.idle, arguments.size)
    print("a leader's death, with heartbeats of 100 ms")
    for kind in ("ours", "stock"):
        measure_deaths(kind, arguments.deaths)
    return 0


if __name__ == "__main__":
    sys.exit(main())
