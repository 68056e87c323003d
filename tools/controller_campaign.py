"""Measures what docs/controller.md says of groups that elect their master.

    python -m tools.controller_campaign matrix --cell ours,mixed --rounds 20 --seed 7
    python -m tools.controller_campaign hand-overs --number 100
    python -m tools.controller_campaign gap --rounds 20

`matrix`: controllers and brokers, three of each, ours, stock 5.3.3 or mixed. The leader of the
controllers, or the master, is killed, paused or cut off, so often each, while a stock producer
sends. Then every acknowledged message is once in every log, and the logs are SHA-256-equal. A cell
of stock's alone tells only what to compare with.
`hand-overs`: a stock and our broker follow each other as the master, killed or by the controllers'
word, and each time the former one has a tail that the other never got; logs equal after each.
`gap`: how long a producer cannot send when the master is killed, ours and stock's in turn.

Servers run on hosts of their own: Linux with `unshare`, `nsenter` and `ip`, root or not.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from tests.support import tails
from tests.support.cluster import OURS, make_name_server
from tests.support.controlled import ControlledGroup
from tests.support.controllers import STOCK_VERSION, running_controllers
from tests.support.elected_brokers import STOCK_IS_STUCK
from tests.support.hosts import HostNetwork, can_enter_own_network, enter_own_network
from tests.support.jars import driver_class_path
from tests.support.java_client import JavaClients
from tests.support.outage_cell import kinds, make_rounds, run_cell
from tests.support.outages import Outage
from tests.support.processes import NameServerProcess, ServerFailed
from tests.support.send_gaps import GapGroup

_KINDS = ("ours", "mixed", "stock")
_CELLS = [f"{controllers},{brokers}" for controllers in _KINDS for brokers in _KINDS]
_MODULE = "tools.controller_campaign"


def matrix(options: argparse.Namespace) -> int:
    """The exit status: 0 where every cell kept what was acknowledged."""
    failed = 0
    for cell in options.cell or _CELLS:
        controllers, brokers = cell.split(",")
        seed = options.seed if options.seed is not None else random.randrange(1 << 30)
        replay = f"python -m {_MODULE} matrix --cell {cell} --rounds {options.rounds} --seed {seed}"
        rounds = make_rounds(dict.fromkeys(Outage, options.rounds), seed)
        home = Path(tempfile.mkdtemp(prefix="rmq-cell-", dir=options.directory))
        java = JavaClients(STOCK_VERSION, home / "java")
        _say(f"{cell}, seed {seed}, in {home}")
        try:
            with HostNetwork() as network:
                figures = run_cell(
                    home,
                    kinds(controllers, controllers=True),
                    kinds(brokers, controllers=False),
                    java,
                    rounds,
                    network=network,
                    restart_after=STOCK_IS_STUCK if brokers == "stock" else None,
                    say=_say,
                )
        except (AssertionError, TimeoutError, ServerFailed) as error:
            failed += 1
            _say(f"{cell} FAILED: {error}\n  its files are in {home}; again with: {replay}")
        else:
            print(f"controllers {controllers}, brokers {brokers}, seed {seed}: {figures}")
            sys.stdout.flush()
            shutil.rmtree(home, ignore_errors=True)
        finally:
            java.close()
    return 1 if failed else 0


def hand_overs(options: argparse.Namespace) -> int:
    """The exit status: 0 where both logs were equal after each hand-over."""
    seed = options.seed if options.seed is not None else random.randrange(1 << 30)
    replay = f"python -m {_MODULE} hand-overs --number {options.number} --seed {seed}"
    dice = random.Random(seed)
    home = Path(tempfile.mkdtemp(prefix="rmq-tails-", dir=options.directory))
    _say(f"{options.number} hand-overs, seed {seed}, in {home}")
    began = time.monotonic()
    cut, kills = 0, 0
    try:
        with (
            HostNetwork() as network,
            running_controllers(home, [OURS] * 3, network=network) as controllers,
            _name_server(home, network) as name_server,
            ControlledGroup(
                "tails",
                home,
                name_server,
                controllers,
                [STOCK_VERSION, OURS],
                tails.SETTINGS,
                network=network,
            ) as group,
        ):
            group.start()
            group.wait_accepts(1, "tails")
            for number in range(1, options.number + 1):
                killed = dice.random() < options.killed
                kills += killed
                gone = tails.hand_over_with_tail(group, "tails", killed=killed, batches=tails.FEW)
                cut += gone
                how = "killed" if killed else "elected"
                _say(f"hand-over {number}, {how}: {gone} bytes cut off, logs equal")
    except (AssertionError, TimeoutError, ServerFailed) as error:
        _say(f"FAILED: {error}\n  its files are in {home}; again with: {replay}")
        return 1
    shutil.rmtree(home, ignore_errors=True)
    print(
        f"{options.number} hand-overs between stock and ours, {kills} of them by kill -9, seed"
        f" {seed}: {cut >> 10} KiB cut off, SHA-256 equal after each;"
        f" {time.monotonic() - began:.0f} s"
    )
    return 0


def gap(options: argparse.Namespace) -> int:
    """Prints the seconds that a producer could not send, and the median of each kind."""
    home = Path(tempfile.mkdtemp(prefix="rmq-gap-", dir=options.directory))
    java = JavaClients(STOCK_VERSION, home / "java")
    gaps: dict[str, list[float]] = {OURS: [], STOCK_VERSION: []}
    try:
        with (
            GapGroup(OURS, home / "ours", java) as ours,
            GapGroup(STOCK_VERSION, home / "stock", java) as stock,
        ):
            for number in range(1, options.rounds + 1):
                for group in (ours, stock) if number % 2 else (stock, ours):
                    gaps[group.kind].append(group.gap())
                    _say(f"round {number}, {group.kind}: {gaps[group.kind][-1]:.2f} s")
    finally:
        java.close()
        shutil.rmtree(home, ignore_errors=True)
    for kind, seconds in gaps.items():
        print(
            f"{kind}: median of {len(seconds)} {median(seconds):.2f} s"
            f" ({min(seconds):.2f}..{max(seconds):.2f})"
        )
    return 0


def _name_server(home: Path, network: HostNetwork) -> NameServerProcess:
    server = make_name_server(OURS, home / "names")
    server.place(network.add_host())
    return server


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog=f"python -m {_MODULE}", description=__doc__.splitlines()[0]
    )
    parser.add_argument(
        "--directory", type=Path, help="where stores are kept while it runs; made where it is not"
    )
    commands = parser.add_subparsers(dest="command", required=True)
    cells = commands.add_parser("matrix")
    cells.add_argument("--cell", action="append", choices=_CELLS, help="controllers,brokers; all")
    cells.add_argument("--rounds", type=int, default=20, help="of each outage")
    cells.add_argument("--seed", type=int, help="the order of outages")
    cells.set_defaults(run=matrix)
    overs = commands.add_parser("hand-overs")
    overs.add_argument("--number", type=int, default=100)
    overs.add_argument(
        "--killed", type=float, default=0.25, help="share of masters that are killed"
    )
    overs.add_argument("--seed", type=int)
    overs.set_defaults(run=hand_overs)
    gaps = commands.add_parser("gap")
    gaps.add_argument("--rounds", type=int, default=20)
    gaps.set_defaults(run=gap)
    options = parser.parse_args()
    if not can_enter_own_network():
        parser.error("needs unshare, nsenter and ip, and a kernel that lets you make namespaces")
    if options.directory is not None:
        options.directory.mkdir(parents=True, exist_ok=True)
    # What is downloaded must be there before nothing but the servers is on the network.
    driver_class_path(STOCK_VERSION)
    enter_own_network(_MODULE, sys.argv[1:])
    status: int = options.run(options)
    return status


if __name__ == "__main__":
    sys.exit(main())
