"""Runs stock's mqadmin on our servers and on stock's and shows where they differ.

    python -m tools.compare_mqadmin [--version 4.9.7] [--only brokerStatus]
    python -m tools.compare_mqadmin --page > docs/mqadmin.md

`--page` runs nothing: the page has what `tests/support/mqadmin_cases.py` says.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.support.jars import STOCK_VERSIONS
from tests.support.java_client import JavaClients
from tests.support.mqadmin_cases import CASES, ENDLESS, NEW
from tests.support.mqadmin_comparison import compare, page, report


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--version", choices=STOCK_VERSIONS, default=NEW, help="of the tools")
    parser.add_argument("--only", default="", help="calls with this text; earlier ones may matter")
    parser.add_argument("--page", action="store_true", help="print docs/mqadmin.md")
    arguments = parser.parse_args()
    if arguments.page:
        sys.stdout.write(page())
        return 0
    cases = [case for case in (*CASES, *ENDLESS) if arguments.only in case.line]
    with tempfile.TemporaryDirectory() as home:
        java = JavaClients(arguments.version, Path(home) / "java")
        try:
            outcomes = list(compare(java, Path(home), cases))
        finally:
            java.close()
    return 1 if report(outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
