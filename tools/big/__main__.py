"""How a server stands it that there is very much: `python -m tools.big broker|namesrv [stock]`.

Goes through the steps of a server's life with 100,000 queues, 5,000 topics, 10,000 connections and
a log of 200 GiB in sparse files, and prints for each how long it took, how long others waited
meanwhile, and the memory. Each of these numbers has an option.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from dataclasses import fields
from pathlib import Path

from tools.bench.subjects import OURS, STOCK
from tools.big.broker import BigBroker
from tools.big.namesrv import BigNameServer
from tools.big.store import Scale


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tools.big", description=__doc__)
    parser.add_argument("server", choices=("broker", "namesrv"))
    parser.add_argument("kind", nargs="?", choices=(OURS, STOCK), default=OURS)
    for field in fields(Scale):
        parser.add_argument(
            f"--{field.name.replace('_', '-')}", type=int, default=field.default, metavar="N"
        )
    parser.add_argument("--seconds", type=float, default=30, help="of the steps that only wait")
    parser.add_argument("--directory", help="where the store is kept while it runs")
    options = parser.parse_args(arguments)
    scale = Scale(**{field.name: getattr(options, field.name) for field in fields(Scale)})
    home = Path(tempfile.mkdtemp(prefix="rmq-big-", dir=options.directory))
    try:
        run: BigBroker | BigNameServer
        if options.server == "broker":
            run = BigBroker(options.kind, home, scale, {})
        else:
            run = BigNameServer(options.kind, home, scale)
        run.run(options.seconds)
        print(run.steps.table())
    finally:
        shutil.rmtree(home, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
