"""The tables of docs/performance-reports.md, one row for each case, of a run's results.

python -m tools.bench.whole_report bench/results/TIME.json
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tools.bench.__main__ import EVERY
from tools.bench.report import number
from tools.bench.statistics import METRICS, OURS, STOCK, Metric, Row, Run, summarise
from tools.bench.warming import Warming

_NONE = "-"
_TITLES = {case.name: case.title for case in EVERY} | {
    "server": "a broker",
    "proxy": "a proxy before a broker",
    "local-proxy": "a broker with a proxy in its process",
}
#: Columns of the cases that count messages: with both values, and the ratio alone.
_VALUES, _RATIOS = ("throughput", "cpu_us"), ("p50_us", "p99_us")
_BY_TITLE = {metric.key: metric.title for metric in METRICS}


def tables(runs: Sequence[Run], warmings: Sequence[Warming]) -> str:
    """Returns the table of cases with a throughput, that of all others, and that of the first
    windows, in which stock's compiler had hardly begun."""
    rows: dict[str, dict[str, Row]] = {}
    for row in summarise(runs):
        rows.setdefault(row.case, {})[row.metric.key] = row
    cases = {name: of_case for name, of_case in rows.items() if "throughput" in of_case}
    others = [
        row for name, of_case in rows.items() if name not in cases for row in of_case.values()
    ]
    parts = [
        _table(
            ["case", "ours /s", "stock /s", "throughput", "CPU µs ours", "stock", "CPU"]
            + [_BY_TITLE[key] for key in _RATIOS],
            (_case_cells(name, of_case) for name, of_case in cases.items()),
        )
    ]
    if others:
        head = ["case", "figure", "ours", "stock", "ours / stock"]
        parts.append(_table(head, map(_other_cells, others)))
    if warmings:
        head = ["case", "throughput", "CPU µs ours", "stock", "CPU", "p99"]
        parts.append(_table(head, _cold_cells(warmings)))
    return "\n".join(parts)


def _case_cells(name: str, of_case: Mapping[str, Row]) -> list[str]:
    cells = [_TITLES.get(name, name)]
    for key in _VALUES:
        row = of_case.get(key)
        cells += [*_medians(row), _ratio(row)]
    return cells + [_ratio(of_case.get(key)) for key in _RATIOS]


def _other_cells(row: Row) -> list[str]:
    figure = f"{row.metric.title} ({row.metric.unit})"
    return [_TITLES.get(row.case, row.case), figure, *_medians(row), _ratio(row)]


def _medians(row: Row | None) -> list[str]:
    values = [None if row is None else row.medians.get(kind) for kind in (OURS, STOCK)]
    return [_NONE if value is None else number(value) for value in values]


def _ratio(row: Row | None) -> str:
    """Returns the ratio and its spread, in bold where ours is worse."""
    if row is None or row.ratio is None:
        return _NONE
    spread = "" if row.lowest == row.highest else f" ({row.lowest:.2f}..{row.highest:.2f})"
    return _bold(row.metric, row.ratio) + spread


def _bold(metric: Metric, ratio: float) -> str:
    shown = f"{ratio:.2f}"
    is_worse = float(shown) < 1 if metric.more_is_better else float(shown) > 1
    return f"**{shown}**" if is_worse else shown


def _cold_cells(warmings: Sequence[Warming]) -> Iterator[list[str]]:
    """Yields the ratios of the first window of each case in which stock's broker was fresh: the
    first case of a start."""
    by_case: dict[str, dict[str, Warming]] = {}
    for warming in warmings:
        if warming.windows:
            by_case.setdefault(warming.case, {})[warming.subject] = warming
    longest = max(warming.seconds for warming in warmings)
    for name, of_case in by_case.items():
        if not {OURS, STOCK} <= of_case.keys() or of_case[STOCK].seconds < longest / 2:
            continue
        ours, stock = of_case[OURS].windows[0], of_case[STOCK].windows[0]
        ratios = {
            metric.key: _bold(metric, ours[metric.key] / stock[metric.key])
            for metric in METRICS
            if metric.key in ours and stock.get(metric.key)
        }
        cells = [ratios.get(key, _NONE) for key in ("throughput", "cpu_us", "p99_us")]
        values = [number(window.get("cpu_us")) or _NONE for window in (ours, stock)]
        yield [_TITLES.get(name, name), cells[0], *values, *cells[1:]]


def _table(head: Sequence[str], lines: Iterator[list[str]]) -> str:
    rule = ["---", *["--:"] * (len(head) - 1)]
    return "".join("| " + " | ".join(cells) + " |\n" for cells in (head, rule, *lines))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path, help="bench/results/TIME.json")
    found = json.loads(parser.parse_args().results.read_text())
    runs = [Run(**run) for run in found["runs"]]
    print(tables(runs, [Warming(**warming) for warming in found["warmings"]]), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
