"""A page of charts and tables in one HTML file: no script, no font, no address to load from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 760, 220, 64, 24
_COLOURS = ("#2563eb", "#dc2626", "#16a34a", "#9333ea", "#ea580c", "#0891b2", "#4d7c0f", "#be185d")
_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#111}
svg{width:100%;height:auto;background:#fafafa;border:1px solid #e5e5e5}
svg text{font:11px system-ui,sans-serif;fill:#555}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{padding:.25rem .6rem;border-bottom:1px solid #e5e5e5;text-align:right}
th:first-child,td:first-child{text-align:left}
.key span{margin-right:1rem}
"""


@dataclass
class Chart:
    """Lines over the same steps; `lines` is name to one value for each of `labels`."""

    title: str
    unit: str
    labels: Sequence[str]
    lines: Mapping[str, Sequence[float]]


@dataclass
class Table:
    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[object]]


@dataclass
class Page:
    title: str
    parts: list[Chart | Table] = field(default_factory=list)

    def html(self) -> str:
        """The whole file."""
        body = "\n".join(
            _chart(part) if isinstance(part, Chart) else _table(part) for part in self.parts
        )
        title = escape(self.title)
        return (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            f"<title>{title}</title><style>{_STYLE}</style></head>\n"
            f"<body><h1>{title}</h1>\n{body}\n</body></html>\n"
        )


def _chart(chart: Chart) -> str:
    top = max((value for line in chart.lines.values() for value in line), default=0) or 1
    steps = max(1, len(chart.labels) - 1)

    def point(index: int, value: float) -> str:
        x = _LEFT + (_WIDTH - _LEFT - 10) * index / steps
        y = 10 + (_HEIGHT - _BOTTOM - 10) * (1 - value / top)
        return f"{x:.1f},{y:.1f}"

    shapes, keys = [], []
    for number, (name, values) in enumerate(chart.lines.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        points = [point(index, value) for index, value in enumerate(values)]
        shapes.append(
            f'<polyline fill="none" stroke="{colour}" stroke-width="2"'
            f' points="{" ".join(points)}"/>'
        )
        for at in points:
            x, y = at.split(",")
            shapes.append(f'<circle cx="{x}" cy="{y}" r="2.5" fill="{colour}"/>')
        keys.append(f'<span style="color:{colour}">&#9632; {escape(name)}</span>')
    floor = _HEIGHT - _BOTTOM
    first, last = (chart.labels[0], chart.labels[-1]) if chart.labels else ("", "")
    return (
        f"<h2>{escape(chart.title)}</h2>\n"
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(chart.title)}">'
        f'<line x1="{_LEFT}" y1="{floor}" x2="{_WIDTH}" y2="{floor}" stroke="#bbb"/>'
        f'<text x="4" y="18">{_number(top)} {escape(chart.unit)}</text>'
        f'<text x="4" y="{floor}">0</text>'
        f'<text x="{_LEFT}" y="{_HEIGHT - 6}">{escape(first)}</text>'
        f'<text x="{_WIDTH - 6}" y="{_HEIGHT - 6}" text-anchor="end">{escape(last)}</text>'
        f'{"".join(shapes)}</svg>\n<p class="key">{"".join(keys)}</p>'
    )


def _table(table: Table) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in table.header)
    rows = "\n".join(
        "<tr>" + "".join(f"<td>{escape(_number(cell))}</td>" for cell in row) + "</tr>"
        for row in table.rows
    )
    return (
        f"<h2>{escape(table.title)}</h2>\n"
        f"<table><thead><tr>{head}</tr></thead><tbody>\n{rows}\n</tbody></table>"
    )


def _number(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
