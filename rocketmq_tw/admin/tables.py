"""Tables of text. The ones of rich need its console, which takes a tenth of a short command."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from rich.cells import cell_len

_GAP = "   "


def draw_table(
    titles: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[int], rule: str
) -> Iterator[str]:
    """Yields the lines of a table, which is as wide as it needs to be: a name or an id in pieces
    cannot be copied. `right` has the numbers of the columns that end at their right side, `rule` is
    the sign of the line below the titles."""
    widths = [
        max(map(cell_len, [title, *(row[number] for row in rows)]))
        for number, title in enumerate(titles)
    ]

    def line(cells: Sequence[str]) -> str:
        filled = []
        for number, cell in enumerate(cells):
            # A sign may take two places.
            space = " " * (widths[number] - cell_len(cell))
            filled.append(space + cell if number in right else cell + space)
        return _GAP.join(filled).rstrip()

    yield line(titles)
    yield rule * (sum(widths) + len(_GAP) * (len(widths) - 1))
    for row in rows:
        yield line(row)
