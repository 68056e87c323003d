"""A page of charts and tables in one HTML file: no script, no font, no address to load from."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

_WIDTH, _HEIGHT = 760, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 12, 12, 24
_FLOOR = _HEIGHT - _BOTTOM
_COLOURS = ("#2563eb", "#dc2626", "#16a34a", "#9333ea", "#ea580c", "#0891b2", "#4d7c0f", "#be185d")
_GRID_LINES = 4
#: More points than this are a line without dots.
_DOTTED = 120
_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#111}
h2 small{font-weight:normal;color:#555}
svg{width:100%;height:auto;background:#fafafa;border:1px solid #e5e5e5}
svg text{font:11px system-ui,sans-serif;fill:#555}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{padding:.25rem .6rem;border-bottom:1px solid #e5e5e5;text-align:left}
.n{text-align:right}
.key span{margin-right:1rem}
"""


@dataclass
class Chart:
    """Lines over time.

    `times` are seconds and rise; `lines` is name to one value for each of them, None where there
    is none, which interrupts the line. `labels` stand below the first and the last time. Of more
    lines than there are colours the first are drawn, so the ones that matter most come first.
    """

    title: str
    unit: str
    times: Sequence[float]
    labels: tuple[str, str]
    lines: Mapping[str, Sequence[float | None]]


@dataclass
class Table:
    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[object]]


@dataclass
class Page:
    title: str
    summary: str = ""
    parts: list[Chart | Table] = field(default_factory=list)

    def html(self) -> str:
        """Returns the whole file."""
        body = "\n".join(
            _chart(part) if isinstance(part, Chart) else _table(part) for part in self.parts
        )
        title = escape(self.title)
        return (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            f"<title>{title}</title><style>{_STYLE}</style></head>\n"
            f"<body><h1>{title}</h1>\n<p>{escape(self.summary)}</p>\n{body}\n</body></html>\n"
        )


def number_text(value: object) -> str:
    """Returns a cell of a table for a person."""
    if isinstance(value, float):
        return f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


@dataclass(frozen=True)
class _Scale:
    """From times and values to places in the picture."""

    first: float
    last: float
    top: float

    def x(self, time: float) -> float:
        if self.last == self.first:
            return (_LEFT + _WIDTH - _RIGHT) / 2
        whole = _WIDTH - _RIGHT - _LEFT
        return _LEFT + whole * (time - self.first) / (self.last - self.first)

    def y(self, value: float) -> float:
        return _FLOOR - (_FLOOR - _TOP) * value / self.top


def _chart(chart: Chart) -> str:
    drawn = list(chart.lines)[: len(_COLOURS)]
    highest = max((value or 0 for name in drawn for value in chart.lines[name]), default=0)
    step = _step(highest)
    begin, end = (chart.times[0], chart.times[-1]) if chart.times else (0.0, 0.0)
    scale = _Scale(begin, end, max(1, math.ceil(highest / step)) * step)
    shapes = list(_grid(scale, step))
    keys = []
    for name, colour in zip(drawn, _COLOURS, strict=False):
        shapes += _line(scale, chart, name, colour)
        keys.append(f'<span style="color:{colour}">&#9632; {escape(name)}</span>')
    if len(chart.lines) > len(drawn):
        keys.append(f"<span>and {len(chart.lines) - len(drawn)} more, not drawn</span>")
    first, last = map(escape, chart.labels)
    return (
        f"<h2>{escape(chart.title)} <small>{escape(chart.unit)}</small></h2>\n"
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(chart.title)}">'
        f'<text x="{_LEFT}" y="{_HEIGHT - 6}">{first}</text>'
        f'<text x="{_WIDTH - _RIGHT}" y="{_HEIGHT - 6}" text-anchor="end">{last}</text>'
        f'{"".join(shapes)}</svg>\n<p class="key">{"".join(keys)}</p>'
    )


def _grid(scale: _Scale, step: float) -> Iterator[str]:
    for number in range(round(scale.top / step) + 1):
        y, label = scale.y(number * step), _axis_text(number * step)
        yield (
            f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{_WIDTH - _RIGHT}" y2="{y:.1f}"'
            f' stroke="{"#bbb" if number == 0 else "#e5e5e5"}"/>'
            f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>'
        )


def _line(scale: _Scale, chart: Chart, name: str, colour: str) -> Iterator[str]:
    """Pieces between the interruptions, and what is alone as a dot."""
    pieces: list[list[tuple[float, float]]] = [[]]
    for time, value in zip(chart.times, chart.lines[name], strict=True):
        if value is None:
            pieces.append([])
        else:
            pieces[-1].append((time, value))
    for piece in filter(None, pieces):
        points = " ".join(f"{scale.x(time):.1f},{scale.y(value):.1f}" for time, value in piece)
        yield f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{points}"/>'
        if len(piece) == 1 or len(chart.times) <= _DOTTED:
            for time, value in piece:
                yield (
                    f'<circle cx="{scale.x(time):.1f}" cy="{scale.y(value):.1f}" r="3"'
                    f' fill="{colour}"><title>{escape(name)}: {value:,.0f}</title></circle>'
                )


def _step(highest: float) -> float:
    """Returns between grid lines: 1, 2 or 5 times a power of ten."""
    if highest <= _GRID_LINES:
        return 1.0
    power = 10.0 ** math.floor(math.log10(highest / _GRID_LINES))
    return next(
        power * factor for factor in (1, 2, 5, 10) if power * factor * _GRID_LINES >= highest
    )


def _axis_text(value: float) -> str:
    """Returns a number for an axis: 12, 3k, 1.5M."""
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def _table(table: Table) -> str:
    numbers = [
        all(isinstance(row[column], int | float) for row in table.rows)
        for column in range(len(table.header))
    ]
    kinds = [' class="n"' if number else "" for number in numbers]
    head = "".join(
        f"<th{kind}>{escape(name)}</th>" for kind, name in zip(kinds, table.header, strict=True)
    )
    rows = "\n".join(
        "<tr>"
        + "".join(
            f"<td{kind}>{escape(number_text(cell))}</td>"
            for kind, cell in zip(kinds, row, strict=True)
        )
        + "</tr>"
        for row in table.rows
    )
    return (
        f"<h2>{escape(table.title)}</h2>\n"
        f"<table><thead><tr>{head}</tr></thead><tbody>\n{rows}\n</tbody></table>"
    )
