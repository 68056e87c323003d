"""Many runs of the simulated group of controllers and brokers.

    python -m tools.controller_sim --seeds 20000
    python -m tools.controller_sim --first 123 --trace
    python -m tools.controller_sim --seeds 20000 --disks

A seed that breaks a promise is printed with the command that replays it.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat

from tests.support.sim.checks import Broken
from tests.support.sim.runs import Outcome, in_a_hurry, run_seeds
from tests.support.sim.world import simulate

CHUNK = 50
PROGRESS = 500


def run_chunk(first: int, count: int, disks: bool) -> list[Outcome]:
    """The outcomes of some seeds in a row."""
    return list(run_seeds(range(first, first + count), disks_fail=disks))


def replay(seed: int, disks: bool) -> int:
    """One seed with its trace on standard output."""
    trace: list[str] = []
    broken = ""
    with in_a_hurry():
        try:
            simulate(seed, trace=trace, disks_fail=disks)
        except Broken as error:
            broken = str(error)
    print("\n".join([*trace, broken]))
    return 1 if broken else 0


def campaign(first: int, seeds: int, jobs: int, disks: bool) -> int:
    """The exit status: 0 where every promise was kept."""
    began = time.monotonic()
    outcomes: list[Outcome] = []
    starts = range(first, first + seeds, CHUNK)
    sizes = [min(CHUNK, first + seeds - start) for start in starts]
    with ProcessPoolExecutor(jobs) as pool:
        for some in pool.map(run_chunk, starts, sizes, repeat(disks)):
            outcomes += some
            for outcome in some:
                if outcome.broken:
                    again = f"python -m tools.controller_sim --first {outcome.seed} --trace"
                    again += " --disks" if disks else ""
                    print(f"{outcome.broken}\n  {again}", flush=True)
            if len(outcomes) % PROGRESS == 0:
                print(f"{len(outcomes)} seeds in {time.monotonic() - began:.0f} s", flush=True)
    broken = sum(bool(outcome.broken) for outcome in outcomes)
    print(
        f"{len(outcomes)} groups in {time.monotonic() - began:.0f} s:"
        f" {sum(outcome.acknowledged for outcome in outcomes)} acknowledged messages,"
        f" {sum(outcome.masters for outcome in outcomes)} epochs, {broken} broken promises"
    )
    return 1 if broken else 0


def main() -> int:
    """Reads the arguments."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=20_000, help="how many")
    parser.add_argument("--disks", action="store_true", help="disks fail as well")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--trace", action="store_true", help="show the steps of the first seed")
    options = parser.parse_args()
    if options.trace:
        return replay(options.first, options.disks)
    return campaign(options.first, options.seeds, options.jobs, options.disks)


if __name__ == "__main__":
    sys.exit(main())
