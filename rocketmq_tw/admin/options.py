"""Options that several commands have, and the checks of their values."""

from __future__ import annotations

import re
import sys
from typing import Any

import click

from rocketmq_tw.admin.output import is_terminal, plain
from rocketmq_tw.admin.tool import Tool
from rocketmq_tw.net.address import split_address

_change_of_attribute = re.compile(r"\+[^+=,\s-][^=,\s]*=[^=,]+|-[^+=,\s-][^=,\s]*").fullmatch

#: How an option is declared that takes `true` or `false`, which its help would not say.
SWITCH: dict[str, Any] = {"type": bool, "metavar": "true|false"}

broker_option = click.option(
    "-b", "--brokerAddr", "broker", metavar="HOST:PORT", help="On this broker."
)
cluster_option = click.option(
    "-c", "--clusterName", "cluster", metavar="NAME", help="On each master of a cluster."
)
of_cluster_option = click.option(
    "-c", "--cluster", metavar="NAME",
    help="Only in this cluster; for a light topic, whose route to take: its parent's or this"
    " cluster's.",
)  # fmt: skip
yes_option = click.option(
    "-y", "--yes", is_flag=True, help="Do not ask; needed where there is no terminal to ask at."
)


class PathType(click.Path):
    """A path. An empty one is refused: it would be the current directory, in place of what a
    variable of a script was to say."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, str) and not value.strip():
            self.fail("it is empty: give a path", param, ctx)
        return super().convert(value, param, ctx)


def check_broker_or_cluster(broker: str | None, cluster: str | None) -> None:
    """Checks that exactly one of them is given, and that the broker is an address."""
    if (broker is None) == (cluster is None):
        raise click.UsageError("give one of -b, a broker's address, and -c, a cluster's name")
    if broker is not None:
        check_broker_address(broker)


def check_broker_address(broker: str) -> None:
    """Checks that it is an address."""
    try:
        split_address(broker)
    except ValueError as error:
        raise click.UsageError(f"-b: {error}") from error


def check_attributes(
    context: click.Context, option: click.Parameter, text: str | None
) -> str | None:
    """Checks `+name=value,-name` without blanks; the callback of such an option."""
    if text is None:
        return None
    changes = [change.strip() for change in text.split(",")]
    for change in changes:
        if not _change_of_attribute(change):
            raise click.BadParameter(f"{change!r}: give +name=value to set one, -name to drop it")
    names = [change[1:].partition("=")[0] for change in changes]
    if len(set(names)) < len(names):
        raise click.BadParameter("an attribute is named twice")
    return ",".join(changes)


def ask_first(yes: bool, question: str) -> None:
    """Asks for a confirmation at a terminal, unless `yes` or `--dry-run`; ends the command where
    the answer is no, or where there is no terminal."""
    context = click.get_current_context(silent=True)
    tool = None if context is None else context.find_object(Tool)
    if tool is not None:
        tool.only_once("changes what there is")
    if yes or (tool is not None and tool.dry_run):
        return
    if not is_terminal(sys.stdin):
        raise click.UsageError(f"{plain(question)} Nobody can be asked here: give --yes")
    click.confirm(plain(question), abort=True, err=True)
