"""`make bench`: ours, stock 5.3.3 and the ceiling by turns, with one client.

    python -m tools.bench [--quick] [--case NAME]... [--turns N] [--seconds S] [--warm S]

The brokers that are compared run at the same time, each on a store of its own, and one client JVM
sends to them by turns. A case counts once CPU time a message no longer falls (`warming.py`). Writes
bench/results/TIME.json, bench/table.md and bench/report.html.
"""

from __future__ import annotations

import argparse
import compileall
import json
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

import psutil

from rocketmq_tw.interpreter import python_version
from tests.support.jars import PROJECT
from tests.support.processes import ServerFailed
from tests.support.wait import PeerFailed
from tools.bench.cases import CASES, Bench, Case
from tools.bench.client import LoadClients, LoadFailed
from tools.bench.others import other_work
from tools.bench.proxies import LocalProxySubject, ProxySubject
from tools.bench.proxy_cases import PROXY_CASES
from tools.bench.report import page, text_table, warming_table
from tools.bench.statistics import Run, summarise
from tools.bench.subjects import CEILING, OURS, STOCK, STOCK_VERSION, Subject, cpu_seconds
from tools.bench.warming import Warming

OUTPUT = Path(__file__).resolve().parents[2] / "bench"
#: What is no case but a property of the subject stands under these names.
SERVERS: dict[type[Subject], str] = {
    Subject: "server",
    ProxySubject: "proxy",
    LocalProxySubject: "local-proxy",
}
#: All of them; proxies last.
EVERY = (*CASES, *PROXY_CASES)
TOO_SHORT = "too short to compare: a quick run only shows that the cases work"
_IDLE_SECONDS = 8.0
_MIB = 1 << 20

#: What a case may fail with; the others go on.
FAILURES = (LoadFailed, ServerFailed, PeerFailed, TimeoutError)

Say = Callable[[str], None]


def main() -> int:
    options = _options()
    chosen = [case for case in EVERY if _is_chosen(case, options)]
    # As `pip install` does and stock's jars are; where PYTHONDONTWRITEBYTECODE is set, each start
    # of a source tree would compile it again.
    for package in ("rocketmq_tw", "twisted"):
        compileall.compile_dir(PROJECT / package, quiet=1)
    home = Path(tempfile.mkdtemp(prefix="rmq-bench-", dir=options.directory))
    results = Results()
    clients = LoadClients(STOCK_VERSION, home / "load")
    started = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - started:6.0f} s  {text}", file=sys.stderr, flush=True)

    busy, cores = psutil.getloadavg()[0], psutil.cpu_count() or 1
    if busy > cores / 4:
        say(f"others keep {busy:.1f} of {cores} cores busy: trust CPU a message, not throughput")
    if options.quick:
        say(TOO_SHORT)
    # In the background a shell has SIGINT ignored; both end the run with what is measured so far.
    for interruption in (signal.SIGINT, signal.SIGTERM):
        signal.signal(interruption, signal.default_int_handler)
    try:
        with other_work(options.others):
            for number, group in enumerate(_groups(chosen)):
                directory = home / str(number)
                try:
                    Comparison(group, clients, directory, options, say, results).run()
                except FAILURES as error:
                    say(f"  {', '.join(case.name for case in group)} FAILED: {error}")
                shutil.rmtree(directory, ignore_errors=True)
    except KeyboardInterrupt:
        say("interrupted; what is measured so far follows")
    finally:
        clients.close()
        shutil.rmtree(home, ignore_errors=True)
        _write(results, options)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench", description="Ours beside stock's broker.")
    parser.add_argument("--quick", action="store_true", help="three minutes; too short to compare")
    parser.add_argument(
        "--case", action="append", choices=[case.name for case in EVERY], help="only this case"
    )
    parser.add_argument("--turns", type=int, help="turns of each broker in a case (3; quick: 1)")
    parser.add_argument("--seconds", type=int, help="length of a timed case (10; quick: 4)")
    parser.add_argument(
        "--warm",
        type=int,
        help="most seconds of load on stock's broker until its CPU time a message no longer falls,"
        " in the first case of a start (300; quick: 20)",
    )
    parser.add_argument("--warm-more", type=int, help="most of them in each later case (60; 4)")
    parser.add_argument("--scale", type=float, help="share of the counted cases' messages (1)")
    parser.add_argument("--only", choices=(STOCK, OURS, CEILING), help="one subject, to profile it")
    parser.add_argument(
        "--others", type=int, default=0, help="processes of other work beside, a core each (0)"
    )
    parser.add_argument("--directory", default=None, help="where the stores are kept while it runs")
    options = parser.parse_args()
    defaults = {"turns": 3, "seconds": 10, "warm": 300, "warm_more": 60, "scale": 1.0}
    if options.quick:
        defaults = {"turns": 1, "seconds": 4, "warm": 20, "warm_more": 4, "scale": 0.1}
    for name, value in defaults.items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    return options


def _is_chosen(case: Case, options: argparse.Namespace) -> bool:
    if options.case:
        return case.name in options.case
    return case.quick or not options.quick


def _groups(cases: Sequence[Case]) -> list[list[Case]]:
    """The cases with the same settings together: they share brokers."""
    groups: dict[tuple[type[Subject], tuple[tuple[str, str], ...]], list[Case]] = {}
    for case in cases:
        groups.setdefault((case.make, tuple(case.settings.items())), []).append(case)
    return list(groups.values())


class Results:
    """What was measured, and the windows of load in front of it."""

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.warmings: list[Warming] = []


class Comparison:
    """Cases that share brokers: starts them side by side and measures each case by turns."""

    def __init__(
        self,
        cases: Sequence[Case],
        clients: LoadClients,
        directory: Path,
        options: argparse.Namespace,
        say: Say,
        results: Results,
    ) -> None:
        self._cases = cases
        self._clients = clients
        self._directory = directory
        self._options = options
        self._say = say
        self._results = results
        self._benches: dict[str, Bench] = {}

    def run(self) -> None:
        """Raises what keeps the brokers from starting; a case that fails is said and left out."""
        first, options = self._cases[0], self._options
        kinds = [
            kind
            for kind in (STOCK, OURS, CEILING)
            if options.only in (None, kind) and any(kind in case.subjects for case in self._cases)
        ]
        with ExitStack() as stack:
            for kind in kinds:
                self._say(f"starting {kind}: {', '.join(case.name for case in self._cases)}")
                made = first.make(kind, self._directory / kind, dict(first.settings))
                subject = stack.enter_context(made)
                client = self._clients.get(first.generator)
                self._benches[kind] = Bench(subject, client, options.seconds, options.scale)
            for case in self._cases:
                try:
                    self._measure(case, options.warm if case is first else options.warm_more)
                except FAILURES as error:
                    # The others still tell something; this one is missing from the table.
                    self._say(f"  {case.title}: FAILED: {error}")
            server = SERVERS.get(first.make)
            if server is not None and not first.settings:
                for kind, bench in self._benches.items():
                    if kind != CEILING:
                        self._results.runs.append(
                            Run(server, kind, 0, _server_figures(bench.subject))
                        )

    def _measure(self, case: Case, warm_seconds: float) -> None:
        self._say(f"  {case.title}")
        benches = {kind: self._benches[kind] for kind in self._benches if kind in case.subjects}
        if case.warms:
            self._warm(case, benches, warm_seconds)
        for turn in range(self._options.turns):
            for kind, bench in benches.items():
                figures = case.measure(bench)
                self._results.runs.append(Run(case.name, kind, turn, figures))
                shown = ", ".join(f"{key} {value:.4g}" for key, value in figures.items())
                self._say(f"    turn {turn + 1}, {kind}: {shown}")

    def _warm(self, case: Case, benches: dict[str, Bench], limit: float) -> None:
        """By turns as well, until all are steady, or have had `limit` seconds of load each. The
        ceiling has nothing to compile and gets one window."""
        warmings = {kind: Warming(case.name, kind) for kind in benches}
        self._results.warmings += [each for each in warmings.values() if each.subject != CEILING]
        pending = list(benches)
        while pending:
            for kind in tuple(pending):
                began = time.monotonic()
                warmings[kind].add(case.measure(benches[kind]), time.monotonic() - began)
                over = warmings[kind].is_steady or warmings[kind].seconds >= limit
                if over or kind == CEILING:
                    pending.remove(kind)
        for kind, warming in warmings.items():
            if kind == CEILING:
                continue
            state = "steady" if warming.is_steady else "NOT steady"
            shown = " ".join(f"{value:.3g}" for value in warming.cpu_us)
            self._say(f"    {kind} {state} after {warming.seconds:.0f} s: {shown} us a message")


def _server_figures(subject: Subject) -> dict[str, float]:
    """Memory after all cases, and CPU while nothing is asked of the broker."""
    servers = subject.servers
    memory = sum(psutil.Process(each.pid).memory_info().rss for each in servers) / _MIB
    before = cpu_seconds(servers)
    began = time.monotonic()
    time.sleep(_IDLE_SECONDS)
    busy = cpu_seconds(servers) - before
    return {
        "resident_mb": memory,
        "idle_cpu": busy / (time.monotonic() - began) * 100,
        "start_seconds": subject.start_seconds,
    }


def _write(results: Results, options: argparse.Namespace) -> None:
    now = datetime.now().astimezone()
    about = {
        "time": f"{now:%Y-%m-%d %H:%M %Z}",
        "machine": f"{psutil.cpu_count()} cores, {psutil.virtual_memory().total >> 30} GiB",
        "python": python_version(),
        "stock": STOCK_VERSION,
        "turns": str(options.turns),
        "seconds a turn": str(options.seconds),
        "most seconds of warming": f"{options.warm}, later cases {options.warm_more}",
        "share of counted messages": str(options.scale),
        "other processes beside": str(options.others),
        "load average at the end": f"{psutil.getloadavg()[0]:.1f}",
    }
    if options.quick:
        about["note"] = TOO_SHORT
    rows = summarise(results.runs)
    tables = text_table(rows) + "\n" + warming_table(results.warmings)
    (OUTPUT / "results").mkdir(parents=True, exist_ok=True)
    result = OUTPUT / "results" / f"{now:%Y%m%dT%H%M%S}.json"
    document = {
        "about": about,
        "runs": [asdict(run) for run in results.runs],
        "warmings": [asdict(warming) for warming in results.warmings],
    }
    result.write_text(json.dumps(document, indent=1))
    (OUTPUT / "table.md").write_text(tables)
    (OUTPUT / "report.html").write_text(page(rows, about, results.warmings))
    print(tables)
    if options.quick:
        print(TOO_SHORT)
    print(f"{OUTPUT / 'report.html'}\n{result}")


if __name__ == "__main__":
    sys.exit(main())
