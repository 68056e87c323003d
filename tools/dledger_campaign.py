"""Kills leaders of a DLedger group of brokers under load, and looks for what is lost.

    python -m tools.dledger_campaign --deaths 20 --kinds ours,ours,ours
    python -m tools.dledger_campaign --deaths 20 --kinds ours,4.9.7,5.3.3

Threads send through stock's producer; each time the master is killed with SIGKILL, another member
has to take over, and the dead one is started again. At the end every member must have each message
that was acknowledged, and all of them the same consume queues.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import Counter
from pathlib import Path
from statistics import median

from tests.support.cluster import OURS, make_name_server
from tests.support.dledger_group import DLedgerGroupProcesses
from tests.support.elected_brokers import SteadyLoad
from tests.support.java_client import JavaClients

STOCK = "5.3.3"
TOPIC = "campaign"
#: Messages between two deaths.
MESSAGES = 100


def campaign(home: Path, kinds: list[str], deaths: int) -> None:
    """One line for each death, and one for what was found."""
    java = JavaClients(STOCK, home / "java")
    try:
        with (
            make_name_server(OURS, home / "namesrv") as name_server,
            DLedgerGroupProcesses("group", home, name_server, kinds) as group,
        ):
            master = group.wait_master(len(kinds))
            java.create_topic(name_server.address, master.address, TOPIC, 4)
            gaps: list[float] = []
            killed: Counter[str] = Counter()
            with (
                java.producer(name_server.address, retries=0, timeoutMs=5000) as producer,
                SteadyLoad(producer, TOPIC) as load,
            ):
                for number in range(1, deaths + 1):
                    load.wait_more(MESSAGES)
                    start = time.monotonic()
                    dead = group.kill_master()
                    gaps.append(time.monotonic() - start)
                    kind = kinds[group.number_of(dead)]
                    killed[kind] += 1
                    print(
                        f"{number}: {kind} killed, next master after {gaps[-1]:.1f} s", flush=True
                    )
                    load.wait_more(MESSAGES)
                    dead.start()
                    group.wait_master(len(kinds))
                load.wait_more(MESSAGES)
                acknowledged = load.stop()
            group.wait_equal()
            for member in group.members:
                member.stop()
            stored = group.check_all(TOPIC, acknowledged)
            deaths_of = ", ".join(f"{kind} {times}" for kind, times in sorted(killed.items()))
            print(
                f"{deaths} deaths ({deaths_of}), next master after {median(gaps):.1f} s"
                f" ({min(gaps):.1f} to {max(gaps):.1f}); {len(acknowledged)} acknowledged,"
                f" {stored} stored, none lost, queues equal",
                flush=True,
            )
    finally:
        java.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--deaths", type=int, default=20)
    parser.add_argument("--kinds", default=f"{OURS},{OURS},{OURS}", help="ours, 4.9.7 or 5.3.3")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        campaign(Path(directory), options.kinds.split(","), options.deaths)


if __name__ == "__main__":
    main()
