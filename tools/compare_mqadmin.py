"""Runs stock's mqadmin on our servers and on stock's and shows where they differ.

    python -m tools.compare_mqadmin [--version 4.9.7] [--only brokerStatus]
    python -m tools.compare_mqadmin --page > docs/mqadmin.md

`--page` runs nothing: the page has what `tests/support/mqadmin_cases.py` says.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.support.elected_site import ElectedSite
from tests.support.jars import STOCK_VERSIONS
from tests.support.java_client import JavaClients
from tests.support.mqadmin_cases import CASES, ELECTED_CASES, ENDLESS, NEW, SLAVE_CASES, Case
from tests.support.mqadmin_comparison import MakeSite, Outcome, compare, page, report
from tests.support.mqadmin_site import Site
from tests.support.slave_site import SlaveSite

#: The calls of each kind of site.
SITES: list[tuple[str, MakeSite, Sequence[Case]]] = [
    ("broker", Site, (*CASES, *ENDLESS)),
    ("elected", ElectedSite, ELECTED_CASES),
    ("slave", SlaveSite, SLAVE_CASES),
]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--version", choices=STOCK_VERSIONS, default=NEW, help="of the tools")
    parser.add_argument("--only", default="", help="calls with this text; earlier ones may matter")
    parser.add_argument("--page", action="store_true", help="print docs/mqadmin.md")
    arguments = parser.parse_args()
    if arguments.page:
        sys.stdout.write(page())
        return 0
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory() as home:
        java = JavaClients(arguments.version, Path(home) / "java")
        try:
            for name, site, cases in SITES:
                chosen = [
                    case
                    for case in cases
                    if arguments.only in case.line and arguments.version in case.versions
                ]
                if chosen:
                    outcomes += compare(java, Path(home) / name, chosen, site)
        finally:
            java.close()
    return 1 if report(outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
