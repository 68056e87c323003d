"""Commands that show something again and again."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from itertools import count
from typing import Any

import click
from twisted.internet.task import deferLater

from rocketmq_tw.admin.output import Report
from rocketmq_tw.admin.tool import Servers, Tool, concluding, explain, warn
from rocketmq_tw.client.errors import ClientError, NoRouteError, UnknownTopicError
from rocketmq_tw.net.errors import RemotingError

Look = Callable[[Servers], Coroutine[Any, Any, Report]]

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
    look: Look,
    *,
    rounds: int | None = None,
    needs_names: bool = True,
) -> None:
    """Shows what `look` finds, every `interval` seconds where that is given, up to `rounds` times
    where those are, else as any report; a plan once."""
    if interval is None or tool.dry_run:
        tool.report(look, needs_names=needs_names)
        return
    seconds = interval

    async def watch(servers: Servers) -> None:
        await look_again(servers, concluding(look), tool.show, seconds, rounds)

    tool.run(watch, needs_names=needs_names)


async def look_again(
    servers: Servers,
    look: Look,
    show: Callable[[Report], object],
    interval: float,
    rounds: int | None = None,
) -> None:
    """Shows what `look` finds every `interval` seconds, `rounds` times or without end. A server
    that does not answer is told of and asked again. Raises what else goes wrong until something was
    shown, since that is a mistake in the call; what was there once may come back."""
    was_shown = False
    for done in count(1):
        servers.missing.clear()
        try:
            report = await look(servers)
        except click.UsageError:
            raise
        except (ClientError, RemotingError, click.ClickException) as error:
            if not was_shown and not _is_outage(error):
                raise
            servers.status.clear()
            warn(explain(error))
        else:
            show(report)
            was_shown = True
        if done == rounds:
            return
        await deferLater(servers.reactor, interval)


def _is_outage(error: Exception) -> bool:
    """Returns whether no server answered, or no broker is registered."""
    cause = error.__cause__ if isinstance(error, click.ClickException) else error
    return isinstance(cause, RemotingError) or (
        isinstance(cause, NoRouteError) and not isinstance(cause, UnknownTopicError)
    )
