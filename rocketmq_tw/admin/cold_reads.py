"""getColdDataFlowCtrInfo, updateColdDataFlowCtrGroupConfig, removeColdDataFlowCtrGroupConfig: how
much groups may read that is in no cache."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from rocketmq_tw.admin.brokers import all_addresses, master_addresses
from rocketmq_tw.admin.each_server import ask_each, on_each
from rocketmq_tw.admin.group import named_group_option
from rocketmq_tw.admin.known_names import check_has_group
from rocketmq_tw.admin.options import (
    ask_first,
    broker_option,
    check_broker_or_cluster,
    cluster_option,
    yes_option,
)
from rocketmq_tw.admin.output import Column, Listing, Report, plain
from rocketmq_tw.admin.tool import Servers, Tool

_group_option = named_group_option("consumerGroup")
_LIMITS = (
    Column("Broker", "address"),
    Column("Group", "group"),
    Column("Limit in bytes", "limit"),
    Column("Read in bytes", "read"),
)


@click.command("getColdDataFlowCtrInfo")
@broker_option
@click.option("-c", "--clusterName", "cluster", metavar="NAME", help="Of all brokers of a cluster.")
@click.pass_obj
def get_limits(tool: Tool, broker: str | None, cluster: str | None) -> None:
    """Shows how much groups may read from the disk, and what they read."""
    check_broker_or_cluster(broker, cluster)

    async def work(servers: Servers) -> Report:
        addresses = await all_addresses(servers, broker, cluster)
        answers = await ask_each(servers, addresses, servers.admin.cold_reads)
        told = [(each.address, each.value) for each in answers if each.value is not None]
        rows = [row for address, info in told for row in _rows(address, info)]
        lines = [
            f"{address}: {plain(info.get('cgColdReadThreshold'))} bytes for any other group,"
            f" {plain(info.get('globalColdReadThreshold'))} for all together"
            for address, info in told
        ]
        found = [
            {"address": each.address, "info": each.value, "error": each.error} for each in answers
        ]
        return Report({"brokers": found}, [Listing(_LIMITS, rows)], ["", *lines])

    tool.report(work)


def _rows(address: Any, info: Any) -> list[dict[str, Any]]:
    limits: Mapping[str, Any] = info.get("configTable") or {}
    reads: Mapping[str, Any] = info.get("runtimeTable") or {}
    return [
        {
            "address": address,
            "group": group,
            "limit": limits.get(group),
            "read": (reads.get(group) or {}).get("coldAcc"),
        }
        for group in sorted({*limits, *reads})
    ]


@click.command("updateColdDataFlowCtrGroupConfig")
@broker_option
@cluster_option
@_group_option
@click.option(
    "-v", "--threshold", type=click.IntRange(min=0), required=True, help="Bytes in a period."
)
@click.pass_obj
def set_limit(
    tool: Tool, broker: str | None, cluster: str | None, group: str, threshold: int
) -> None:
    """Sets how much a group may read from the disk."""
    check_broker_or_cluster(broker, cluster)

    async def work(servers: Servers) -> Report:
        async def limit(address: str) -> None:
            await check_has_group(servers, address, group)
            await servers.admin.limit_cold_reads(address, group, threshold)

        done = await on_each(await master_addresses(servers, broker, cluster), limit)
        return Report(
            {"group": group, "threshold": threshold, "brokers": done},
            lines=[f"{group} may read {threshold} bytes from the disk of {one}" for one in done],
        )

    tool.report(work)


@click.command("removeColdDataFlowCtrGroupConfig")
@broker_option
@cluster_option
@_group_option
@yes_option
@click.pass_obj
def remove_limit(
    tool: Tool, broker: str | None, cluster: str | None, group: str, yes: bool
) -> None:
    """Removes the limit of what a group may read from the disk."""
    check_broker_or_cluster(broker, cluster)
    ask_first(yes, f"Remove the limit of {group} on {broker or f'cluster {cluster}'}?")

    async def work(servers: Servers) -> Report:
        async def unlimit(address: str) -> None:
            # A limit may be left of a group that is deleted.
            info = await servers.admin.cold_reads(address)
            if group not in (info.get("configTable") or {}):
                await check_has_group(servers, address, group)
            await servers.admin.unlimit_cold_reads(address, group)

        done = await on_each(await master_addresses(servers, broker, cluster), unlimit)
        return Report(
            {"group": group, "brokers": done},
            lines=[f"{group} has no limit of its own on {address}" for address in done],
        )

    tool.report(work)
