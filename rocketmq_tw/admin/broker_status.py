"""brokerStatus and brokerConsumeStats: how brokers are doing, and the groups on one."""

from __future__ import annotations

from typing import Any

import click

from rocketmq_tw.admin.brokers import all_addresses
from rocketmq_tw.admin.each_server import ask_each
from rocketmq_tw.admin.logic_offsets import physical_progress
from rocketmq_tw.admin.options import (
    SWITCH,
    broker_option,
    check_broker_address,
    check_broker_or_cluster,
    cluster_option,
)
from rocketmq_tw.admin.output import Column, Listing, Report, local_time
from rocketmq_tw.admin.tool import Servers, Tool

_GROUPS = (
    Column("Topic", "topic"),
    Column("Group", "group"),
    Column("Broker", "brokerName"),
    Column("Queue", "queueId"),
    Column("Broker offset", "brokerOffset"),
    Column("Consumer offset", "consumerOffset"),
    Column("Diff", "diff"),
    Column("Last time", "lastTimestamp", local_time),
)


@click.command("brokerStatus")
@broker_option
@cluster_option
@click.pass_obj
def broker_status(tool: Tool, broker: str | None, cluster: str | None) -> None:
    """Shows everything that brokers say of how they are doing; of a cluster slaves too."""
    check_broker_or_cluster(broker, cluster)

    async def work(servers: Servers) -> Report:
        found: list[dict[str, Any]] = []
        listings = []
        addresses = await all_addresses(servers, broker, cluster)
        for answer in await ask_each(servers, addresses, servers.admin.runtime_info):
            table = {} if answer.value is None else dict(sorted(answer.value.table.items()))
            found.append({"address": answer.address, "status": table, "error": answer.error})
            columns = (Column(f"Name at {answer.address}", "name"), Column("Value", "value"))
            rows = [{"name": name, "value": value} for name, value in table.items()]
            listings.append(Listing(columns, rows))
        return Report({"brokers": found}, listings)

    tool.report(work)


@click.command("brokerConsumeStats")
@click.option("-b", "--brokerAddr", "broker", required=True, metavar="HOST:PORT", help="On it.")
@click.option(
    "-t", "--timeoutMillis", "timeout_ms", type=click.IntRange(min=1), default=50_000,
    show_default=True, help="Milliseconds for the answer.",
)  # fmt: skip
@click.option(
    "-l", "--level", type=click.IntRange(min=0), default=0, show_default=True,
    help="Only queues in which a group is so many messages behind.",
)  # fmt: skip
@click.option(
    "-o", "--order", "ordered", **SWITCH, default=False, show_default=True,
    help="Only ordered topics.",
)  # fmt: skip
@click.pass_obj
def consume_stats(tool: Tool, broker: str, timeout_ms: int, level: int, ordered: bool) -> None:
    """Shows how far all groups of a broker are behind, queue by queue."""
    check_broker_address(broker)

    async def work(servers: Servers) -> Report:
        told = await servers.admin.progress_of_all(
            broker, ordered=ordered, timeout=timeout_ms / 1000
        )
        rows = [
            {
                "topic": queue.topic,
                "group": group,
                "brokerName": queue.broker_name,
                "queueId": queue.queue_id,
                "brokerOffset": offset.broker_offset,
                "consumerOffset": offset.consumer_offset,
                "diff": physical_progress(offset).behind,
                "lastTimestamp": offset.last_timestamp,
            }
            for entry in told.consume_stats_list
            for group, parts in sorted(entry.items())
            for part in parts
            for queue, offset in sorted(part.offset_table.items())
            if physical_progress(offset).behind >= level
        ]
        value = {"address": broker, "queues": rows, "diffTotal": told.total_diff}
        return Report(value, [Listing(_GROUPS, rows)], ["", f"Diff total: {told.total_diff}"])

    tool.report(work)
