"""Many runs of the simulated group of controllers and brokers.

    python -m tools.controller_sim --seeds 20000
    python -m tools.controller_sim --first 123 --trace
    python -m tools.controller_sim --seeds 20000 --disks

With --disks the end of a campaign tells each call that a disk refused: error, operation, file, how
often. A seed that breaks a promise is printed with the command that replays it.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from functools import partial

from tests.support.sim.checks import Broken
from tests.support.sim.disks import Struck
from tests.support.sim.runs import Outcome, in_a_hurry, run_seeds
from tests.support.sim.world import simulate
from tools.seed_campaign import SeedCampaign, options_of

CHUNK = 50


def run_chunk(first: int, count: int, *, disks: bool) -> list[Outcome]:
    """Returns the outcomes of some seeds in a row."""
    return list(run_seeds(range(first, first + count), disks_fail=disks))


def replay(seed: int, trace: list[str], *, disks: bool) -> str:
    """Appends the steps of a seed to `trace`; returns what it broke."""
    with in_a_hurry():
        try:
            simulate(seed, trace=trace, disks_fail=disks)
        except Broken as error:
            return str(error)
    return ""


def sum_up(outcomes: Sequence[Outcome]) -> str:
    """Words the end of a campaign."""
    acknowledged = sum(outcome.acknowledged for outcome in outcomes)
    epochs = sum(outcome.masters for outcome in outcomes)
    text = f"{acknowledged} acknowledged messages, {epochs} epochs"
    struck: Counter[Struck] = Counter()
    for outcome in outcomes:
        struck.update(outcome.struck)
    if not struck:
        return text
    kinds = len({file for _, _, file in struck})
    lines = [
        f"{error:7} {operation:10} {file} {count}"
        for (error, operation, file), count in sorted(struck.items())
    ]
    return "\n  ".join([f"{text}, calls on {kinds} kinds of files refused:", *lines]) + "\n"


def main() -> int:
    """Reads the arguments."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--disks", action="store_true", help="disks fail as well")
    options = options_of(parser, seeds=20_000)
    again = "tools.controller_sim --disks" if options.disks else "tools.controller_sim"
    run = partial(run_chunk, disks=options.disks)
    return SeedCampaign(again, CHUNK, run, partial(replay, disks=options.disks), sum_up).main(
        options
    )


if __name__ == "__main__":
    sys.exit(main())
