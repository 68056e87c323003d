"""Breaks message stores at random, and says what they lost: nothing, or the seed that shows it.

    python -m tools.store_campaign --restarts 20000 --seed 1

Each seed is one store in memory that lives through a number of restarts (see
`tests/support/store_life.py`); `--restarts` is how many there are in all. The end tells each call
that a disk refused: error, operation, file or directory of the store, how often.
"""

from __future__ import annotations

import argparse
import errno
import sys
import time
from collections import Counter

from tests.support.store_life import StoreLife


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--restarts", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1, help="the first; each store has the next")
    parser.add_argument("--life", type=int, default=10, help="restarts of one store")
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    struck: Counter[tuple[str, str, str]] = Counter()
    broken: list[int] = []
    started = time.monotonic()
    seed = options.seed
    while counts["restarts"] < options.restarts:
        life = StoreLife(seed)
        try:
            life.run(options.life)
        except Exception as error:
            broken.append(seed)
            print(f"seed {seed}: {type(error).__name__}: {error}", flush=True)
        counts += life.counts
        for (code, operation, path), times in life.struck.items():
            struck[errno.errorcode[code], operation, [*path.split("/"), ""][2]] += times
        counts["stores"] += 1
        seed += 1
    for name, count in sorted(counts.items()):
        print(f"{name:28} {count:12,}")
    print("calls that the disk refused:")
    for (name, operation, place), count in sorted(struck.items()):
        print(f"  {name:7} {operation:9} {place:20} {count:10,}")
    print(f"{'seconds':28} {time.monotonic() - started:12,.0f}")
    print(f"{'stores that lost something':28} {len(broken):12,}")
    sys.exit(bool(broken))


if __name__ == "__main__":
    main()
