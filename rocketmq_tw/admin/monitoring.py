"""startMonitoring: groups that are behind, away or at odds, again and again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

from rocketmq_tw.admin.consumer import NO_GROUP, group_row
from rocketmq_tw.admin.known_names import known_groups
from rocketmq_tw.admin.members import members_of
from rocketmq_tw.admin.output import Column, Listing, Report
from rocketmq_tw.admin.repeating import rounds_option, show_repeatedly
from rocketmq_tw.admin.tool import Servers, Tool
from rocketmq_tw.client.errors import BrokerError
from rocketmq_tw.net.errors import RemotingError
from rocketmq_tw.wire.bodies.route import BrokerData

_GROUPS = (
    Column("Group", "group"),
    Column("Clients", "count"),
    Column("Diff total", "diffTotal"),
    Column("Subscriptions", "sameSubscriptions", lambda same: {False: "DIFFERENT"}.get(same, "")),
    Column("Error", "error"),
)


@click.command("startMonitoring")
@click.option(
    "--interval", type=click.IntRange(min=1), default=60, show_default=True,
    help="Seconds between two looks.",
)  # fmt: skip
@rounds_option("looks")
@click.pass_obj
def start_monitoring(tool: Tool, interval: int, rounds: int | None) -> None:
    """Shows all groups again and again: how far they are behind, and whether members subscribe
    alike."""

    async def look(servers: Servers) -> Report:
        groups = (await known_groups(servers)).items()
        rows = [
            await _row(servers, group, brokers)
            for group, brokers in servers.status.each(groups, "group")
        ]
        return Report({"groups": rows}, [Listing(_GROUPS, rows)], nothing=NO_GROUP)

    show_repeatedly(tool, interval, look, rounds=rounds)


async def _row(servers: Servers, group: str, brokers: Iterable[BrokerData]) -> dict[str, Any]:
    row = await group_row(servers, group, brokers)
    row["sameSubscriptions"] = await _subscribe_alike(servers, group) if row["count"] else None
    return row


async def _subscribe_alike(servers: Servers, group: str) -> bool | None:
    """Returns whether all members subscribe to the same; None where one does not say."""
    told = []
    try:
        for address, connection in await members_of(servers, group, None):
            info = await servers.admin.consumer_running_info(
                address, group, connection.client_id or ""
            )
            told.append({each.topic: each.sub_string for each in info.subscription_set})
    except (BrokerError, RemotingError, click.ClickException):
        return None
    return all(each == told[0] for each in told)
