"""`make bench`: ours, stock 5.3.3 and the ceiling in turn, with the same clients.

    python -m tools.bench [--quick] [--case NAME]... [--pairs N] [--seconds S] [--warm S]

Writes bench/results/TIME.json, bench/table.md and bench/report.html.
"""

from __future__ import annotations

import argparse
import compileall
import json
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

import psutil

from tests.support.jars import PROJECT
from tests.support.processes import ServerFailed
from tools.bench.cases import CASES, Bench, Case
from tools.bench.client import LoadClient, LoadFailed
from tools.bench.report import page, text_table
from tools.bench.statistics import Run, summarise
from tools.bench.subjects import CEILING, OURS, STOCK, STOCK_VERSION, Subject

OUTPUT = Path(__file__).resolve().parents[2] / "bench"
#: What is no case but a property of the subject stands under this name.
SERVER = "server"
_IDLE_SECONDS = 8.0
_MIB = 1 << 20


def main() -> int:
    options = _options()
    chosen = [case for case in CASES if _is_chosen(case, options)]
    # As `pip install` does and stock's jars are; where PYTHONDONTWRITEBYTECODE is set, each start
    # of a source tree would compile it again.
    for package in ("rocketmq_tw", "twisted"):
        compileall.compile_dir(PROJECT / package, quiet=1)
    home = Path(tempfile.mkdtemp(prefix="rmq-bench-", dir=options.directory))
    runs: list[Run] = []
    client = LoadClient(STOCK_VERSION, home / "load")
    started = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - started:6.0f} s  {text}", file=sys.stderr, flush=True)

    busy, cores = psutil.getloadavg()[0], psutil.cpu_count() or 1
    if busy > cores / 4:
        say(f"others keep {busy:.1f} of {cores} cores busy: trust CPU a message, not throughput")
    try:
        for pair in range(options.pairs):
            for kind in (options.only,) if options.only else (STOCK, OURS, CEILING):
                for group in _groups(chosen, kind):
                    say(f"pair {pair + 1} of {options.pairs}: starting {kind}")
                    directory = home / f"{pair}-{kind}"
                    try:
                        runs += _run_group(kind, group, client, directory, pair, options, say)
                    except (LoadFailed, ServerFailed, TimeoutError) as error:
                        say(f"  {kind} FAILED: {error}")
                    shutil.rmtree(directory, ignore_errors=True)
    except KeyboardInterrupt:
        say("interrupted; what is measured so far follows")
    finally:
        client.close()
        shutil.rmtree(home, ignore_errors=True)
    _write(runs, options)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench", description="Ours beside stock's broker.")
    parser.add_argument("--quick", action="store_true", help="three minutes: few cases, one pair")
    parser.add_argument(
        "--case", action="append", choices=[case.name for case in CASES], help="only this case"
    )
    parser.add_argument("--pairs", type=int, help="how often each is run in turn (3; quick: 1)")
    parser.add_argument("--seconds", type=int, help="length of a timed case (10; quick: 4)")
    parser.add_argument(
        "--warm", type=int, help="seconds of load before (40 for the JVM; quick: 20)"
    )
    parser.add_argument("--scale", type=float, help="share of the counted cases' messages (1)")
    parser.add_argument("--only", choices=(STOCK, OURS, CEILING), help="one subject, to profile it")
    parser.add_argument("--directory", default=None, help="where the stores are kept while it runs")
    options = parser.parse_args()
    defaults = {"pairs": 3, "seconds": 10, "warm": 40, "scale": 1.0}
    if options.quick:
        defaults = {"pairs": 1, "seconds": 4, "warm": 20, "scale": 0.2}
    for name, value in defaults.items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    return options


def _is_chosen(case: Case, options: argparse.Namespace) -> bool:
    if options.case:
        return case.name in options.case
    return case.quick or not options.quick


def _groups(cases: Sequence[Case], kind: str) -> list[list[Case]]:
    """The cases for a subject, those with the same settings together."""
    groups: dict[tuple[type[Subject], tuple[tuple[str, str], ...]], list[Case]] = {}
    for case in cases:
        if kind in case.subjects:
            groups.setdefault((case.make, tuple(case.settings.items())), []).append(case)
    return list(groups.values())


def _run_group(
    kind: str,
    cases: Sequence[Case],
    client: LoadClient,
    directory: Path,
    pair: int,
    options: argparse.Namespace,
    say: Callable[[str], None],
) -> list[Run]:
    runs = []
    plain = not cases[0].settings and cases[0].make is Subject
    with cases[0].make(kind, directory, dict(cases[0].settings)) as subject:
        bench = Bench(subject, client, options.seconds, options.scale)
        start_seconds = subject.start_seconds
        # What follows with other settings meets a client that is warm already.
        fresh = plain or cases[0].make is not Subject
        warm = options.warm if kind == STOCK and fresh else max(options.warm // 4, 2)
        say(f"  ready after {start_seconds:.2f} s; warming for {warm} s")
        bench.load("sync", topic="bench-load", threads=16, seconds=warm)
        for case in cases:
            try:
                figures = case.measure(bench)
            except (LoadFailed, ServerFailed, TimeoutError) as error:
                # The others still tell something; this one is missing from the table.
                say(f"  {case.title}: FAILED: {error}")
                continue
            runs.append(Run(case.name, kind, pair, figures))
            shown = ", ".join(f"{key} {value:.4g}" for key, value in figures.items())
            say(f"  {case.title}: {shown}")
        if plain and kind != CEILING:
            figures = _server_figures(subject, start_seconds)
            runs.append(Run(SERVER, kind, pair, figures))
    return runs


def _server_figures(subject: Subject, start_seconds: float) -> dict[str, float]:
    """Memory after all cases, and CPU while nothing is asked of the broker."""
    process = psutil.Process(subject.broker.pid)
    memory = process.memory_info().rss / _MIB
    before = process.cpu_times()
    began = time.monotonic()
    time.sleep(_IDLE_SECONDS)
    after = process.cpu_times()
    busy = after.user + after.system - before.user - before.system
    return {
        "resident_mb": memory,
        "idle_cpu": busy / (time.monotonic() - began) * 100,
        "start_seconds": start_seconds,
    }


def _write(runs: Sequence[Run], options: argparse.Namespace) -> None:
    now = datetime.now().astimezone()
    about = {
        "time": f"{now:%Y-%m-%d %H:%M %Z}",
        "machine": f"{psutil.cpu_count()} cores, {psutil.virtual_memory().total >> 30} GiB",
        "python": platform.python_version(),
        "stock": STOCK_VERSION,
        "pairs": str(options.pairs),
        "seconds a case": str(options.seconds),
        "share of counted messages": str(options.scale),
        "load average at the end": f"{psutil.getloadavg()[0]:.1f}",
    }
    rows = summarise(runs)
    (OUTPUT / "results").mkdir(parents=True, exist_ok=True)
    result = OUTPUT / "results" / f"{now:%Y%m%dT%H%M%S}.json"
    result.write_text(json.dumps({"about": about, "runs": [asdict(run) for run in runs]}, indent=1))
    (OUTPUT / "table.md").write_text(text_table(rows))
    (OUTPUT / "report.html").write_text(page(rows, about))
    print(text_table(rows))
    print(f"{OUTPUT / 'report.html'}\n{result}")


if __name__ == "__main__":
    sys.exit(main())
