"""Shows what a command found as tables for people or as a line of JSON for programs.

Texts come from servers and messages, so nothing in them may act on the terminal: whatever is not
printable is shown escaped.
"""

from __future__ import annotations

import io
import json
import operator
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import dropwhile
from typing import Any, NamedTuple, TextIO, TypeVar

import attrs
import click

from rocketmq_tw.admin.tables import draw_table
from rocketmq_tw.structs import msgspec
from rocketmq_tw.wire.printable import printable

#: Texts of YAML are as wide as they need to be: a name or an id in pieces cannot be copied.
_UNBOUNDED = 100_000
#: What the line below the head of a table is made of, where the output can have it.
_RULE = "\N{BOX DRAWINGS LIGHT HORIZONTAL}"

#: Control characters behind the ASCII ones, and those that turn the direction of writing.
_CONTROLS = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")

#: What a JSON string may have and ASCII has not.
_BEYOND_ASCII = re.compile("[^\x00-\x7f]")

#: Takes away what a line has from the cursor on.
_TO_LINE_END = "\x1b[K"

Row = Mapping[str, Any]
T = TypeVar("T")


def is_terminal(stream: TextIO | None) -> bool:
    """Returns whether somebody sits there; of standard streams a process may have none."""
    return stream is not None and stream.isatty()


class StatusLine:
    """A line on stderr, where that is a terminal, that says how far the work is: each text takes
    the place of the one before. Leaving it as a context takes it away."""

    def __init__(self) -> None:
        self._stream = sys.stderr if is_terminal(sys.stderr) else None
        self._text = ""

    def __enter__(self) -> StatusLine:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.clear()

    def show(self, text: str) -> None:
        if self._stream is not None and text != self._text:
            self._write(text)

    def each(self, items: Collection[T], what: str) -> Iterator[T]:
        """Yields items, each of them a `what`, and shows how many are done."""
        for done, item in enumerate(items):
            self.show(f"{done} of {number_of(len(items), what)}")
            yield item
        self.clear()

    def clear(self) -> None:
        """Makes room for output; the next text that is shown brings the line back."""
        if self._text:
            self._write("")

    def _write(self, text: str) -> None:
        assert self._stream is not None
        self._text = text
        self._stream.write(f"\r{text}{_TO_LINE_END}")
        self._stream.flush()


def let_write_everything() -> None:
    """Lets stdout take texts of servers and messages whatever its encoding is: characters that it
    lacks are escaped as those are that are not printable."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _is_lacking(text: str) -> bool:
    """Returns whether the encoding of stdout has not all the characters of a text."""
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        return True
    return False


def plain(value: Any) -> str:
    """Makes one printable line of a value."""
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case float():
            return f"{value:.2f}"
    return printable(str(value))


def local_time(timestamp_ms: int | None) -> str:
    """Milliseconds since 1970 as the local date and time; nothing for none."""
    if not timestamp_ms or timestamp_ms < 0:
        return ""
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000)
    except (ValueError, OverflowError):
        return str(timestamp_ms)
    return moment.isoformat(" ", "milliseconds")


def number_of(count: int, what: str, many: str | None = None) -> str:
    """Returns "1 queue", "2 queues": `what` is one of them, `many` several where an s does not make
    them."""
    return f"{count} {what}" if count == 1 else f"{count} {many or what + 's'}"


class Column(NamedTuple):
    """A column: its title, the row's key, and how its value is shown, in a table and in a wide
    one."""

    title: str
    key: str
    show: Callable[[Any], str] = plain
    show_wide: Callable[[Any], str] | None = None


@attrs.frozen
class Listing:
    """A table of rows."""

    columns: Sequence[Column]
    rows: Sequence[Row]


@attrs.frozen
class Report:
    """What a command prints: `data` as JSON, or the listings and the lines beneath them as text.
    Where it was told how, the `formatted` lines in place of all that; they are escaped already.
    Where there is no text at all, `nothing` is said on stderr."""

    data: Any
    listings: Sequence[Listing] = ()
    lines: Sequence[str] = ()
    formatted: Sequence[str] | None = None
    nothing: str = "nothing found"

    @property
    def has_text(self) -> bool:
        """Whether there is anything to print as text."""
        if self.formatted is not None:
            return bool(self.formatted)
        return any(listing.rows for listing in self.listings) or any(self.lines)


def show(report: Report, form: str | None) -> None:
    """Prints a report as a table, the default, or as `form` says."""
    match form:
        case "json" if report.formatted is None:
            show_json(report)
        case "yaml" if report.formatted is None:
            show_yaml(report)
        case _ if not report.has_text:
            click.echo(f"rmqadmin: {plain(report.nothing)}", err=True)
        case _ if report.formatted is not None:
            for line in report.formatted:
                click.echo(line)
        case _:
            show_tables(report, wide=form == "wide")


def show_json(report: Report) -> None:
    """Writes one line. The encoder escapes what stands in front of the space; the other characters
    that act on a terminal stand in strings only, so they can be escaped behind it."""
    text = msgspec.json.encode(report.data).decode()
    escaped = _BEYOND_ASCII if _is_lacking(text) else _CONTROLS
    click.echo(escaped.sub(lambda match: json.dumps(match[0])[1:-1], text))


def show_yaml(report: Report) -> None:
    """Writes a document of YAML; characters that act on a terminal, or that stdout cannot take, are
    escaped."""
    import yaml

    value = msgspec.to_builtins(report.data, str_keys=True)

    def dumped(allow_unicode: bool) -> str:
        text: str = yaml.safe_dump(
            value,
            sort_keys=False,
            explicit_start=True,
            width=_UNBOUNDED,
            allow_unicode=allow_unicode,
        )
        return text

    text = dumped(allow_unicode=True)
    is_escaped = _CONTROLS.search(text) is not None or _is_lacking(text)
    click.echo(dumped(allow_unicode=False) if is_escaped else text, nl=False)


def show_tables(report: Report, *, wide: bool = False) -> None:
    """Writes tables that have rows, with lines beneath them; wide ones have all values of their
    rows."""
    listings = [listing for listing in report.listings if listing.rows]
    for listing in listings:
        _show_table(_widened(listing) if wide else listing)
    # A blank line parts them from a table.
    lines = report.lines if listings else dropwhile(operator.not_, report.lines)
    for line in lines:
        click.echo(plain(line))


def _widened(listing: Listing) -> Listing:
    """Adds a column for each value that has none, and shows long ones whole."""
    columns = [column._replace(show=column.show_wide or column.show) for column in listing.columns]
    shown = {column.key for column in columns}
    more = dict.fromkeys(key for row in listing.rows for key in row if key not in shown)
    return Listing([*columns, *(Column(key, key, _compact) for key in more)], listing.rows)


def _compact(value: Any) -> str:
    if isinstance(value, str | int | float | None):
        return plain(value)
    return plain(msgspec.json.encode(value).decode())


def _show_table(listing: Listing) -> None:
    right = set()
    for number, column in enumerate(listing.columns):
        values = [row.get(column.key) for row in listing.rows]
        if column.show is plain and all(
            isinstance(value, int | float) and not isinstance(value, bool) for value in values
        ):
            right.add(number)
    rows = [
        [printable(column.show(row.get(column.key))) for column in listing.columns]
        for row in listing.rows
    ]
    titles = [column.title for column in listing.columns]
    head, *lines = draw_table(titles, rows, right, "-" if _is_lacking(_RULE) else _RULE)
    click.secho(head, bold=True)
    click.echo("\n".join(lines))
