"""Whether a group keeps its master, and controllers their leader, on a machine with other work.

    SERVER_PYTHON=pypy3 python -m tools.busy_group --others 10 --seconds 120

Three controllers, a name server, and a master with a slave in sync, all of ours, get messages while
so many other processes would each keep a core busy. It is looked all the time whether the
controllers' term and the master's epoch are the first ones, whether both brokers are in sync, and
whether the name server leads to the master. The exit code is 1 where one of these changed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.cluster import OURS, make_name_server
from tests.support.controlled import ControlledGroup
from tests.support.controllers import running_controllers
from tests.support.load import Load
from tests.support.remoting import create_topic
from tests.support.wait import PeerFailed, wait_until
from tools.bench.others import other_work

NAME, TOPIC, QUEUES = "broker-a", "Busy", 4
#: Seconds between two looks.
_LOOK = 0.5


@dataclass
class Outcome:
    """What was seen of a group; `changes` are those that should not be."""

    seconds: float = 0.0
    acknowledged: int = 0
    looks: int = 0
    #: Looks that a controller or the name server did not answer in time.
    unanswered: int = 0
    changes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.seconds:.0f} s: {self.acknowledged} messages acknowledged, {self.looks} looks,"
            f" {self.unanswered} of them not answered in time, {len(self.changes)} changes"
        )


def run(home: Path, seconds: float, others: int) -> Outcome:
    """Runs servers under `home` beside `others` processes for so long."""
    outcome = Outcome()
    with ExitStack() as stack:
        name_server = stack.enter_context(make_name_server(OURS, home / "namesrv"))
        controllers = stack.enter_context(running_controllers(home / "controllers", [OURS] * 3))
        group = ControlledGroup(NAME, home, name_server, controllers, [OURS, OURS])
        stack.enter_context(group)
        group.start()
        master = group[1]
        create_topic(master.address, TOPIC, QUEUES)
        wait_until(lambda: name_server.routes(TOPIC, [master]), "the route")
        first = _state(group)
        stack.enter_context(other_work(others))
        load = Load(master.address, TOPIC, "busy")
        began = time.monotonic()
        while time.monotonic() < began + seconds:
            time.sleep(_LOOK)
            outcome.looks += 1
            try:
                state, is_led = _state(group), name_server.routes(TOPIC, [master])
            except (OSError, PeerFailed):
                outcome.unanswered += 1
                continue
            if state != first:
                outcome.changes.append(f"{state}, where it was {first}")
                first = state
            if not is_led:
                outcome.changes.append("the name server does not lead to the master")
        outcome.acknowledged = len(load.stop())
        outcome.seconds = time.monotonic() - began
    return outcome


def _state(group: ControlledGroup) -> tuple[object, ...]:
    """The controllers' terms, and what their leader says of the group."""
    terms = [member.term() for member in group.controllers.members.values()]
    return *terms, group.master


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--others", type=int, default=10, help="processes of other work (10)")
    parser.add_argument("--seconds", type=float, default=120, help="how long (120)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rmq-busy-") as home:
        outcome = run(Path(home), options.seconds, options.others)
    print(outcome)
    for change in outcome.changes:
        print(f"  {change}")
    return bool(outcome.changes)


if __name__ == "__main__":
    sys.exit(main())
