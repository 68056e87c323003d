"""Commands that show something again and again."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import rich_click as click
from twisted.internet.task import deferLater

from rocketmq_tw.admin.output import Report
from rocketmq_tw.admin.tool import Servers, Tool

interval_option = click.option(
    "-i",
    "--interval",
    type=click.IntRange(min=1),
    metavar="SECONDS",
    help="Show it again and again, until Ctrl-C.",
)


def show_repeatedly(
    tool: Tool,
    interval: int | None,
    look: Callable[[Servers], Coroutine[Any, Any, Report]],
    *,
    needs_names: bool = True,
) -> None:
    """Shows what `look` finds, every `interval` seconds where that is given, else once."""

    async def watch(servers: Servers) -> None:
        tool.show(await look(servers))
        while interval is not None:
            await deferLater(servers.reactor, interval)
            tool.show(await look(servers))

    tool.run(watch, needs_names=needs_names)
