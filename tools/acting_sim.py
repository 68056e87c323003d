"""Many runs of simulated groups whose slaves act for their masters.

    python -m tools.acting_sim --seeds 10000
    python -m tools.acting_sim --first 123 --trace

A seed that breaks a promise is printed with the command that replays it.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor

from tests.support.sim.acting_world import Outcome, simulate
from tests.support.sim.runs import in_a_hurry

CHUNK = 5
PROGRESS = 100


def run_chunk(first: int, count: int) -> list[Outcome]:
    """The outcomes of some seeds in a row."""
    outcomes = []
    with in_a_hurry():
        for seed in range(first, first + count):
            outcomes.append(simulate(seed))
            gc.collect()
    return outcomes


def replay(seed: int) -> int:
    """One seed with its trace on standard output."""
    trace: list[str] = []
    with in_a_hurry():
        outcome = simulate(seed, trace)
    print("\n".join([*trace, str(outcome)]))
    return 1 if outcome.broken else 0


def campaign(first: int, seeds: int, jobs: int) -> int:
    """The exit status: 0 where every promise was kept."""
    began = time.monotonic()
    outcomes: list[Outcome] = []
    starts = range(first, first + seeds, CHUNK)
    sizes = [min(CHUNK, first + seeds - start) for start in starts]
    with ProcessPoolExecutor(jobs) as pool:
        for some in pool.map(run_chunk, starts, sizes):
            outcomes += some
            for outcome in some:
                if outcome.broken:
                    again = f"python -m tools.acting_sim --first {outcome.seed} --trace"
                    print(f"{outcome.broken}\n  {again}", flush=True)
            if len(outcomes) % PROGRESS == 0:
                print(f"{len(outcomes)} seeds in {time.monotonic() - began:.0f} s", flush=True)
    broken = sum(bool(outcome.broken) for outcome in outcomes)
    print(
        f"{len(outcomes)} seeds in {time.monotonic() - began:.0f} s:"
        f" {sum(outcome.acknowledged for outcome in outcomes)} acknowledged messages,"
        f" {sum(outcome.repeated for outcome in outcomes)} of them read more than once,"
        f" {sum(outcome.acts for outcome in outcomes)} acting masters,"
        f" two delivered for at most {max(outcome.longest_overlap for outcome in outcomes):.1f} s,"
        f" {broken} broken promises"
    )
    return 1 if broken else 0


def main() -> int:
    """Reads the arguments."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=10_000, help="how many")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--trace", action="store_true", help="show the steps of the first seed")
    options = parser.parse_args()
    if options.trace:
        return replay(options.first)
    return campaign(options.first, options.seeds, options.jobs)


if __name__ == "__main__":
    sys.exit(main())
