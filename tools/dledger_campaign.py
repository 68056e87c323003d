"""Kills leaders of a DLedger group of brokers under load, and looks for what is lost.

    python -m tools.dledger_campaign --deaths 20 --kinds ours,ours,ours
    python -m tools.dledger_campaign --deaths 20 --kinds ours,4.9.7,5.3.3
    python -m tools.dledger_campaign --deaths 20 --kinds ours,4.9.7,5.3.3 --outage SIGSTOP

Threads send through stock's producer; each time the master is killed, or stopped, another member
has to take over, and the gone one is started again, or goes on. At the end every member must have
each message that was acknowledged, and all of them the same consume queues. Where that is not so,
the files stay and it is said who wrote what is wrong; a group of stock's alone tells what to
compare with.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from statistics import median

from tests.support.cluster import OURS, make_name_server
from tests.support.dledger_findings import written
from tests.support.dledger_group import DLedgerGroupProcesses
from tests.support.elected_brokers import SteadyLoad
from tests.support.java_client import JavaClients
from tests.support.outages import Outage
from tests.support.processes import ServerFailed

STOCK = "5.3.3"
TOPIC = "campaign"
#: Messages between two deaths.
MESSAGES = 100


def campaign(
    home: Path, kinds: list[str], deaths: int, outage: Outage, settings: dict[str, str]
) -> list[str]:
    """Says a line for each death, and one for the whole; returns what is wrong."""
    java = JavaClients(STOCK, home / "java")
    try:
        with (
            make_name_server(OURS, home / "namesrv") as name_server,
            DLedgerGroupProcesses("group", home, name_server, kinds, settings) as group,
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
                    dead = group.fail_master(outage)
                    gaps.append(time.monotonic() - start)
                    killed[kinds[group.number_of(dead)]] += 1
                    _say(f"{number}: {outage} of {dead.home.name}, next after {gaps[-1]:.1f} s")
                    load.wait_more(MESSAGES)
                    outage.end(dead)
                    dead.wait_ready()
                    group.wait_master(len(kinds))
                load.wait_more(MESSAGES)
                acknowledged = load.stop()
            group.wait_equal()
            for member in group.members:
                member.stop()
            wrong, stored = [], 0
            try:
                stored = group.check_all(TOPIC, acknowledged)
            except AssertionError as error:
                wrong = [str(error), *_who_wrote_it(group, load)]
            deaths_of = ", ".join(f"{kind} {times}" for kind, times in sorted(killed.items()))
            print(
                f"{deaths} times {outage} ({deaths_of}), next master after {median(gaps):.1f} s"
                f" ({min(gaps):.1f} to {max(gaps):.1f}); {len(acknowledged)} acknowledged, "
                + ("FAILED" if wrong else f"{stored} stored, all queues equal"),
                flush=True,
            )
            return wrong
    finally:
        java.close()


def _who_wrote_it(group: DLedgerGroupProcesses, load: SteadyLoad) -> list[str]:
    """What each member's log has twice or lacks, and who wrote in which term."""
    lines: list[str] = []
    for member in group.members:
        log = list(written(group.entries(member)))
        found = group.writers.doubled(log) + group.writers.lost(log, load.message_ids)
        found += group.writers.terms(log)
        lines += [f"{member.home.name}: {line}" for line in found]
    return lines


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--deaths", type=int, default=20)
    parser.add_argument("--kinds", default=f"{OURS},{OURS},{OURS}", help="ours, 4.9.7 or 5.3.3")
    parser.add_argument("--outage", type=Outage, choices=(Outage.KILL, Outage.PAUSE))
    parser.set_defaults(outage=Outage.KILL)
    parser.add_argument("--directory", help="where stores are kept while it runs")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="of all brokers"
    )
    options = parser.parse_args()
    settings = dict(one.split("=", 1) for one in options.set)
    home = Path(tempfile.mkdtemp(prefix="dledger-campaign-", dir=options.directory))
    _say(f"{options.kinds} in {home}")
    try:
        wrong = campaign(home, options.kinds.split(","), options.deaths, options.outage, settings)
    except (AssertionError, TimeoutError, ServerFailed) as error:
        wrong = [str(error)]
    if not wrong:
        shutil.rmtree(home, ignore_errors=True)
        return 0
    print("\n".join(wrong))
    print(f"FAILED; its files are in {home}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
