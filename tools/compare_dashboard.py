"""Sends stock's dashboard the same requests before ours and before stock's servers, and shows where
its answers differ.

    python -m tools.compare_dashboard [--source DIRECTORY] [--only /topic/]
    python -m tools.compare_dashboard --program

The dashboard is built from its source with Maven at the first time, and kept in build/dashboard.
`--program` asks the program that stands for it in `tests/interop/test_dashboard.py`, which is
faster and counts the order of lists too.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from functools import partial
from pathlib import Path

import attrs

from tests.support.built_dashboard import REPOSITORY, BuiltDashboardSite, dashboard_jar
from tests.support.dashboard_cases import CASES
from tests.support.dashboard_site import DashboardSite
from tests.support.java_client import JavaClients
from tests.support.mqadmin_cases import NEW
from tests.support.mqadmin_comparison import MakeSite, compare, report


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--source", default=REPOSITORY, help="a copy of its repository")
    parser.add_argument("--only", default="", help="requests with this text; earlier ones matter")
    parser.add_argument("--program", action="store_true", help="ask the program in its place")
    arguments = parser.parse_args()
    cases = [case for case in CASES if arguments.only in case.line]
    site: MakeSite = DashboardSite
    if not arguments.program:
        site = partial(BuiltDashboardSite, jar=dashboard_jar(arguments.source))
        # It makes lists of groups in threads, and of queues and messages as they come.
        cases = [attrs.evolve(case, unordered=True) for case in cases]
    with tempfile.TemporaryDirectory() as home:
        java = JavaClients(NEW, Path(home) / "java")
        try:
            outcomes = list(compare(java, Path(home), cases, site))
        finally:
            java.close()
    return 1 if report(outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
