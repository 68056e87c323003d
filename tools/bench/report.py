"""The table of a benchmark as text, and as a page that needs nothing beside itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from tools.bench.statistics import CEILING, OURS, STOCK, Row
from tools.bench.warming import Warming

_COLUMNS = ("case", "metric", "ours", "stock", "ceiling", "ours / stock", "spread", "goal")
_WARMING_COLUMNS = (
    "case",
    "subject",
    "cold: throughput (/s)",
    "cold: CPU a message (µs)",
    "cold: p99 (µs)",
    "seconds of load",
    "CPU a message by window (µs)",
    "steady",
)
_BAR_WIDTH = 420
_COLOURS = {OURS: "#2a6fdb", STOCK: "#b5651d", CEILING: "#9aa5b1"}
_STYLE = """
body{font:14px/1.4 system-ui,sans-serif;margin:2em auto;max-width:72em;padding:0 1em;color:#1c2430}
table{border-collapse:collapse}
td,th{padding:.2em .7em;text-align:right;border-bottom:1px solid #ddd}
td:first-child,td:nth-child(2),th:first-child,th:nth-child(2){text-align:left}
.met{color:#17752f}.missed{color:#b3261e}svg text{font:12px system-ui,sans-serif}
"""


def number(value: float | None) -> str:
    """Three figures that mean something, and no more."""
    if value is None:
        return ""
    if value >= 999.5:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _cells(row: Row) -> list[str]:
    goal = ""
    if row.metric.goal is not None:
        sign = "≥" if row.metric.more_is_better else "≤"
        verdict = {True: " met", False: " missed", None: ""}[row.met]
        goal = f"{sign} {row.metric.goal:g}{verdict}"
    spread = "" if row.ratio is None else f"{number(row.lowest)}..{number(row.highest)}"
    return [
        row.case,
        f"{row.metric.title} ({row.metric.unit})",
        *(number(row.medians.get(subject)) for subject in (OURS, STOCK, CEILING)),
        number(row.ratio),
        spread,
        goal,
    ]


def text_table(rows: Sequence[Row]) -> str:
    """The rows as Markdown, aligned for a terminal too."""
    return _aligned([list(_COLUMNS), *map(_cells, rows)])


def warming_table(warmings: Sequence[Warming]) -> str:
    """The load in front of each case: its first window, which is the cold one where the broker was
    just started, and how CPU time a message went on from there."""
    return _aligned([list(_WARMING_COLUMNS), *map(_warming_cells, warmings)])


def _warming_cells(warming: Warming) -> list[str]:
    first = warming.windows[0] if warming.windows else {}
    return [
        warming.case,
        warming.subject,
        *(number(first.get(key)) for key in ("throughput", "cpu_us", "p99_us")),
        f"{warming.seconds:.0f}",
        " ".join(map(number, warming.cpu_us)),
        "yes" if warming.is_steady else "no",
    ]


def _aligned(lines: Sequence[Sequence[str]]) -> str:
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]

    def joined(cells: Sequence[str]) -> str:
        return "| " + " | ".join(map(str.ljust, cells, widths)) + " |"

    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([joined(lines[0]), rule, *map(joined, lines[1:])]) + "\n"


def page(rows: Sequence[Row], about: Mapping[str, str], warmings: Sequence[Warming] = ()) -> str:
    """A whole HTML page: what was run, charts of each metric, the table, the warming."""
    facts = "".join(
        f"<tr><td>{escape(name)}</td><td>{escape(value)}</td></tr>" for name, value in about.items()
    )
    charts = "".join(
        f"<h2>{escape(title)}</h2>{_chart([row for row in rows if row.metric.title == title])}"
        for title in dict.fromkeys(row.metric.title for row in rows)
    )
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Benchmark</title>'
        f"<style>{_STYLE}</style><h1>Ours, stock and the ceiling</h1><table>{facts}</table>"
        f"<p>{_legend()}</p>{charts}<h2>All figures</h2>{_html_table(rows)}"
        f"<h2>Load in front of the figures</h2>{_warming_html(warmings)}</html>\n"
    )


def _legend() -> str:
    return " ".join(
        f'<span style="color:{colour}">■ {subject}</span>' for subject, colour in _COLOURS.items()
    )


def _chart(rows: Sequence[Row]) -> str:
    """Bars of one metric; each case has a scale of its own, since they differ by decades."""
    parts = []
    y = 0
    for row in rows:
        top = max(row.medians.values()) or 1
        parts.append(f'<text x="0" y="{y + 14}">{escape(row.case)}</text>')
        for subject, colour in _COLOURS.items():
            value = row.medians.get(subject)
            if value is None:
                continue
            width = max(value / top * _BAR_WIDTH, 1)
            label = f"{number(value)} {row.metric.unit}"
            parts.append(
                f'<rect x="190" y="{y + 4}" width="{width:.1f}" height="11" fill="{colour}"/>'
                f'<text x="{196 + width:.1f}" y="{y + 14}">{escape(label)}</text>'
            )
            y += 14
        y += 8
    return f'<svg width="{190 + _BAR_WIDTH + 120}" height="{y}">{"".join(parts)}</svg>'


def _html_table(rows: Sequence[Row]) -> str:
    head = "".join(f"<th>{escape(column)}</th>" for column in _COLUMNS)
    body = ""
    for row in rows:
        verdict = {True: "met", False: "missed", None: ""}[row.met]
        cells = "".join(f"<td>{escape(cell)}</td>" for cell in _cells(row))
        body += f'<tr class="{verdict}">{cells}</tr>'
    return f"<table><tr>{head}</tr>{body}</table>"


def _warming_html(warmings: Sequence[Warming]) -> str:
    head = "".join(f"<th>{escape(column)}</th>" for column in _WARMING_COLUMNS)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in _warming_cells(each)) + "</tr>"
        for each in warmings
    )
    return f"<table><tr>{head}</tr>{body}</table>"
