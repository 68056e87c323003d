"""Campaigns of simulations: many seeds in several processes, or one with its steps."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Generic, Protocol, TypeVar

#: Seeds between two lines that say how far it is.
PROGRESS = 200


class Outcome(Protocol):
    """What came of one seed; `broken` says which promise was, and is empty where none was."""

    @property
    def seed(self) -> int: ...

    @property
    def broken(self) -> str: ...


OutcomeT = TypeVar("OutcomeT", bound=Outcome)


def options_of(parser: argparse.ArgumentParser, seeds: int) -> argparse.Namespace:
    """Reads the command line: `parser`'s own options, and those of every campaign."""
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=seeds, help="how many")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--trace", action="store_true", help="show the steps of the first seed")
    return parser.parse_args()


class SeedCampaign(Generic[OutcomeT]):
    """Runs `chunk` seeds at a time.

    `run` returns the outcomes of some seeds in a row, from the first one and their number, in
    another process; `replay` appends the steps of one seed to a list, and returns what it broke,
    which is empty where it broke nothing; `sum_up` words the end of a campaign. `again` are the
    module and the options that replay a seed.
    """

    def __init__(
        self,
        again: str,
        chunk: int,
        run: Callable[[int, int], list[OutcomeT]],
        replay: Callable[[int, list[str]], str],
        sum_up: Callable[[Sequence[OutcomeT]], str],
    ) -> None:
        self._again = again
        self._chunk = chunk
        self._run = run
        self._replay = replay
        self._sum_up = sum_up

    def main(self, options: argparse.Namespace) -> int:
        """Does what the command line asks for; returns the exit status, 0 where every promise was
        kept."""
        if options.trace:
            return self._show(options.first)
        return self._run_all(options.first, options.seeds, options.jobs)

    def _show(self, seed: int) -> int:
        trace: list[str] = []
        broken = self._replay(seed, trace)
        print("\n".join([*trace, broken]))
        return 1 if broken else 0

    def _run_all(self, first: int, seeds: int, jobs: int) -> int:
        began = time.monotonic()
        outcomes: list[OutcomeT] = []
        starts = range(first, first + seeds, self._chunk)
        sizes = [min(self._chunk, first + seeds - start) for start in starts]
        with ProcessPoolExecutor(jobs) as pool:
            for some in pool.map(self._run, starts, sizes):
                outcomes += some
                for outcome in some:
                    if outcome.broken:
                        again = f"python -m {self._again} --first {outcome.seed} --trace"
                        print(f"{outcome.broken}\n  {again}", flush=True)
                if len(outcomes) % PROGRESS == 0:
                    print(f"{len(outcomes)} seeds in {time.monotonic() - began:.0f} s", flush=True)
        broken = sum(bool(outcome.broken) for outcome in outcomes)
        print(
            f"{len(outcomes)} seeds in {time.monotonic() - began:.0f} s: {self._sum_up(outcomes)},"
            f" {broken} broken promises"
        )
        return 1 if broken else 0
