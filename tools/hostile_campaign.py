"""Attacks a name server and a broker, and says what that costs them and an honest client.

    python -m tools.hostile_campaign --seconds 10

Both are processes on loopback that the campaign starts and ends. One behaviour comes after the
other (`--only` takes those whose name has the text); the exit code is 1 where memory grew beyond
its limit, an honest request failed, or a traceback was logged.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tools.hostile.campaign import BEHAVIOURS, MIB, Campaign, Outcome

_HEAD = (
    "behaviour",
    "did",
    "MiB before",
    "peak",
    "honest",
    "p50 ms",
    "p99",
    "max",
    "errors",
    "stalls",
    "tracebacks",
)


def _row(outcome: Outcome) -> tuple[str, ...]:
    latencies = [outcome.latency(share) * 1000 for share in (0.5, 0.99, 1.0)]
    return (
        outcome.behaviour.name,
        f"{outcome.done:,}",
        f"{outcome.before / MIB:.0f}",
        f"{outcome.peak / MIB:.0f}",
        f"{len(outcome.seconds):,}",
        *(f"{latency:.1f}" for latency in latencies),
        str(outcome.errors),
        str(len(outcome.stalls) + outcome.unsaid),
        str(outcome.tracebacks),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=10.0, help="of each behaviour")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="+", default=[""], help="texts of behaviours' names")
    parser.add_argument("--growth", type=int, default=192, help="MiB that memory may grow in each")
    parser.add_argument("--timeout", type=float, default=10.0, help="s of an honest request")
    parser.add_argument("--logs", type=Path, help="where the servers' files stay")
    options = parser.parse_args()
    chosen = tuple(one for one in BEHAVIOURS if any(text in one.name for text in options.only))
    faults: list[str] = []
    print(f"| {' | '.join(_HEAD)} |\n|---{'|--:' * (len(_HEAD) - 1)}|", flush=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        home = options.logs or Path(directory)
        with Campaign(home, timeout=options.timeout, seed=options.seed) as campaign:
            for outcome in campaign.run(chosen, options.seconds):
                print(f"| {' | '.join(_row(outcome))} |", flush=True)
                for stall in outcome.stalls:
                    print(f"  held for {stall}", file=sys.stderr, flush=True)
                faults += outcome.faults(options.growth * MIB)
    print(f"{time.monotonic() - began:.0f} seconds")
    for fault in faults:
        print(fault)
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
