"""Many runs of simulated groups whose slaves act for their masters.

    python -m tools.acting_sim --seeds 10000
    python -m tools.acting_sim --first 123 --trace

A seed that breaks a promise is printed with the command that replays it.
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Sequence

from tests.support.sim.acting_world import Outcome, simulate
from tests.support.sim.runs import in_a_hurry
from tools.seed_campaign import SeedCampaign, options_of

CHUNK = 5


def run_chunk(first: int, count: int) -> list[Outcome]:
    """Returns the outcomes of some seeds in a row."""
    outcomes = []
    with in_a_hurry():
        for seed in range(first, first + count):
            outcomes.append(simulate(seed))
            gc.collect()
    return outcomes


def replay(seed: int, trace: list[str]) -> str:
    """Appends the steps of a seed to `trace`, and what came of it; returns what it broke."""
    with in_a_hurry():
        outcome = simulate(seed, trace)
    trace.append(str(outcome))
    return outcome.broken


def sum_up(outcomes: Sequence[Outcome]) -> str:
    """Words the end of a campaign."""
    return (
        f"{sum(outcome.acknowledged for outcome in outcomes)} acknowledged messages,"
        f" {sum(outcome.repeated for outcome in outcomes)} of them read more than once,"
        f" {sum(outcome.acts for outcome in outcomes)} acting masters,"
        f" two delivered for at most {max(outcome.longest_overlap for outcome in outcomes):.1f} s"
    )


def main() -> int:
    """Reads the arguments."""
    options = options_of(argparse.ArgumentParser(description=__doc__), seeds=10_000)
    return SeedCampaign("tools.acting_sim", CHUNK, run_chunk, replay, sum_up).main(options)


if __name__ == "__main__":
    sys.exit(main())
