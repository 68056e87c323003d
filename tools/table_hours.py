"""Lets hours of clients, groups, topics, brokers, pops, timers and transactions come and go in
memory, and says which tables of the servers are longer then than after the first two.

    python -m tools.table_hours --hours 100

The hours are those of tests/sim/hours; `tests/support/sim/hours.py` says what may stay, and why.
The exit code is 1 where anything else did.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

from twisted.logger import globalLogBeginner

from rocketmq_tw.broker.broker import Broker
from tests.support.sim.broker_hours import BrokerHours
from tests.support.sim.controller_hours import ControllerHours
from tests.support.sim.hours import Hours, grown_in
from tests.support.sim.proxy_hours import ProxyHours

WORLDS: dict[str, Callable[[], Hours]] = {
    "broker": BrokerHours,
    "proxy": ProxyHours,
    "local-proxy": lambda: ProxyHours(is_local=True),
    "controllers": ControllerHours,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hours", type=int, default=100)
    parser.add_argument("--only", nargs="+", default=list(WORLDS), choices=list(WORLDS))
    options = parser.parse_args()
    # Twisted keeps events, with what logged them, until logging begins.
    globalLogBeginner.beginLoggingTo([], redirectStandardIO=False, discardBuffer=True)
    found = False
    for name in options.only:
        began = time.process_time()
        outside = (Broker,) if "proxy" in name else ()
        grown = grown_in(WORLDS[name](), options.hours, *outside)
        seconds = time.process_time() - began
        print(f"{name}: {options.hours} hours in {seconds:.0f} s of CPU", flush=True)
        for label, (before, after) in grown.items():
            found = True
            print(f"  {label}: {before} entries, {after} at the end")
    sys.exit(found)


if __name__ == "__main__":
    main()
