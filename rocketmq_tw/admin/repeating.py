"""Commands that show something again and again."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from itertools import count
from typing import Any

import rich_click as click
from twisted.internet.task import deferLater

from rocketmq_tw.admin.output import Report
from rocketmq_tw.admin.tool import Servers, Tool

#: How often; once without it.
interval_option = click.option(
    "-i",
    "--interval",
    type=click.IntRange(min=1),
    metavar="SECONDS",
    help="Show it again and again, until Ctrl-C.",
)


def rounds_option(rounds: str) -> Callable[[Any], Any]:
    """Makes the option that ends a command after so many `rounds`, as its help calls them."""
    return click.option(
        "--rounds",
        type=click.IntRange(min=1),
        help=f"So many {rounds}; until Ctrl-C without it.",
    )


def show_repeatedly(
    tool: Tool,
    interval: int | None,
    look: Callable[[Servers], Coroutine[Any, Any, Report]],
    *,
    rounds: int | None = None,
    needs_names: bool = True,
) -> None:
    """Shows what `look` finds, every `interval` seconds where that is given, up to `rounds` times
    where those are, else once."""

    async def watch(servers: Servers) -> None:
        for shown in count(1):
            tool.show(await look(servers))
            if interval is None or shown == rounds:
                return
            await deferLater(servers.reactor, interval)

    tool.run(watch, needs_names=needs_names)
