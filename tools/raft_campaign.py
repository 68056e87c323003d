"""Many runs of the Raft simulation on all cores: `python -m tools.raft_campaign [--seeds N]`.

A seed that breaks a promise is printed with the command that replays it.
"""

import argparse
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor

from tests.support.raft_cluster import simulate
from tests.support.raft_invariants import Violation

CHUNK = 200
PROGRESS = 5000


def run_chunk(first: int, count: int) -> tuple[int, int, int, list[str]]:
    """Steps, answered operations and elections of the seeds, and what went wrong."""
    steps = answered = terms = 0
    broken = []
    for seed in range(first, first + count):
        try:
            outcome = simulate(seed)
        except Violation as violation:
            broken.append(str(violation))
            continue
        steps += outcome.steps
        answered += outcome.answered
        terms += outcome.terms
    return steps, answered, terms, broken


def replay(seed: int) -> int:
    """One seed with its trace on standard output."""
    trace: list[str] = []
    try:
        outcome = simulate(seed, trace=trace)
    except Violation as violation:
        print("\n".join(trace))
        print(violation)
        return 1
    print("\n".join(trace))
    print(outcome)
    return 0


def campaign(first: int, seeds: int, jobs: int) -> int:
    """The exit status: 0 where every promise was kept."""
    began = time.monotonic()
    totals = [0, 0, 0]
    broken: list[str] = []
    starts = range(first, first + seeds, CHUNK)
    with ProcessPoolExecutor(jobs) as pool:
        sizes = [min(CHUNK, first + seeds - start) for start in starts]
        results = pool.map(run_chunk, starts, sizes)
        for start, (*counts, failures) in zip(starts, results, strict=True):
            if (start - first) % PROGRESS == 0 and start > first:
                spent = time.monotonic() - began
                print(f"{start - first} seeds, {len(broken)} violations, {spent:.0f} s", flush=True)
            totals = [total + count for total, count in zip(totals, counts, strict=True)]
            broken += failures
            for failure in failures:
                print(failure, "- replay: python -m tools.raft_campaign --replay SEED", flush=True)
    print(
        f"{seeds} seeds from {first}: {totals[0]} steps, {totals[1]} operations answered,"
        f" {totals[2]} leaders, {len(broken)} violations, {time.monotonic() - began:.0f} s"
    )
    return 1 if broken else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--replay", type=int, metavar="SEED")
    arguments = parser.parse_args()
    if arguments.replay is not None:
        return replay(arguments.replay)
    return campaign(arguments.first, arguments.seeds, arguments.jobs)


if __name__ == "__main__":
    sys.exit(main())
