"""Has brokers clean and set things right: cleanExpiredCQ, cleanUnusedTopic, deleteExpiredCommitLog,
resetMasterFlushOffset, exportPopRecord, setCommitLogReadAheadMode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
from twisted.internet.defer import Deferred

from rocketmq_tw.admin.brokers import all_addresses, in_cluster
from rocketmq_tw.admin.each_server import masters_of, on_each
from rocketmq_tw.admin.options import (
    SWITCH,
    ask_first,
    broker_option,
    check_broker_address,
    check_broker_or_cluster,
    yes_option,
)
from rocketmq_tw.admin.output import Report
from rocketmq_tw.admin.tool import Servers, Tool

_one_cluster_option = click.option(
    "-c", "--cluster", metavar="NAME", help="On each master of a cluster; of all without -b and -c."
)


@click.command("cleanExpiredCQ")
@broker_option
@_one_cluster_option
@click.pass_obj
def clean_queues(tool: Tool, broker: str | None, cluster: str | None) -> None:
    """Removes units of queues whose messages are gone."""
    _clean(
        tool,
        broker,
        cluster,
        lambda servers, address: servers.admin.clean_queues(address),
        "has no units of messages that are gone",
    )


@click.command("cleanUnusedTopic")
@broker_option
@_one_cluster_option
@yes_option
@click.pass_obj
def clean_topics(tool: Tool, broker: str | None, cluster: str | None, yes: bool) -> None:
    """Removes the queues of topics that brokers do not have any more."""
    ask_first(yes, f"Delete the queues of topics that are gone from {_where(broker, cluster)}?")
    _clean(
        tool,
        broker,
        cluster,
        lambda servers, address: servers.admin.clean_topics(address),
        "has no queues of topics that are gone",
    )


@click.command("deleteExpiredCommitLog")
@broker_option
@_one_cluster_option
@yes_option
@click.pass_obj
def clean_log(tool: Tool, broker: str | None, cluster: str | None, yes: bool) -> None:
    """Deletes the files of the log that are old enough, at once."""
    ask_first(yes, f"Delete the messages that are old enough from {_where(broker, cluster)}?")
    _clean(
        tool,
        broker,
        cluster,
        lambda servers, address: servers.admin.clean_log(address),
        "deletes the files that are old enough",
    )


def _where(broker: str | None, cluster: str | None) -> str:
    if broker is not None:
        return broker
    return "all clusters" if cluster is None else f"cluster {cluster}"


def _clean(
    tool: Tool,
    broker: str | None,
    cluster: str | None,
    clean: Callable[[Servers, str], Deferred[None]],
    result: str,
) -> None:
    if broker is not None and cluster is not None:
        raise click.UsageError("give one of -b, a broker's address, and -c, a cluster's name")
    if broker is not None:
        check_broker_address(broker)

    async def work(servers: Servers) -> Report:
        targets = [broker] if broker is not None else await _masters(servers, cluster)
        done = await on_each(targets, lambda address: clean(servers, address))
        return Report({"brokers": done}, lines=[f"{address} {result}" for address in done])

    tool.report(work)


async def _masters(servers: Servers, cluster: str | None) -> list[str]:
    info = await servers.admin.cluster_info()
    clusters = sorted(info.cluster_addr_table) if cluster is None else [cluster]
    brokers = [data for name in clusters for data in in_cluster(info, name)]
    return list(masters_of(servers, brokers).values())


@click.command("resetMasterFlushOffset")
@broker_option
@click.option(
    "-o", "--offset", type=click.IntRange(min=0), help="How far the master has flushed its log."
)
@click.pass_obj
def reset_flush_offset(tool: Tool, broker: str | None, offset: int | None) -> None:
    """Tells a slave how far its master has flushed the log."""
    if broker is None or offset is None:
        raise click.UsageError("give -b, the address of a slave, and -o, an offset of the log")
    check_broker_address(broker)
    slave, flushed = broker, offset

    async def work(servers: Servers) -> Report:
        await servers.admin.reset_master_flush_offset(slave, flushed)
        return Report(
            {"address": slave, "offset": flushed},
            lines=[f"{slave} takes it that its master has flushed up to {flushed}"],
        )

    tool.report(work)


@click.command("exportPopRecord")
@click.option("-c", "--clusterName", "cluster", metavar="NAME", help="On all brokers of a cluster.")
@broker_option
@click.option(
    "-d", "--dryRun", "dry", **SWITCH, default=False, show_default=True,
    help="Whether it only shows which brokers it would tell.",
)  # fmt: skip
@click.pass_obj
def export_pops(tool: Tool, broker: str | None, cluster: str | None, dry: bool) -> None:
    """Has brokers bring the records of pops back from their key-value store, as before 5.3.3."""
    check_broker_or_cluster(broker, cluster)

    async def work(servers: Servers) -> Report:
        addresses = await all_addresses(servers, broker, cluster, to_change=True)
        if not dry:
            addresses = await on_each(addresses, servers.admin.return_pops)
        state = "would be told" if dry else "has its records of pops in topics"
        return Report(
            {"dryRun": dry, "brokers": addresses},
            lines=[f"{address} {state}" for address in addresses],
        )

    tool.report(work)


@click.command("setCommitLogReadAheadMode")
@broker_option
@click.option("-c", "--clusterName", "cluster", metavar="NAME", help="On all brokers of a cluster.")
@click.option(
    "-m", "--commitLogReadAheadMode", "mode", type=click.IntRange(0, 1), required=True,
    help="0: as the system reads ahead; 1: not at all.",
)  # fmt: skip
@click.pass_obj
def set_read_ahead(tool: Tool, broker: str | None, cluster: str | None, mode: int) -> None:
    """Sets whether the log is read ahead."""
    check_broker_or_cluster(broker, cluster)

    async def work(servers: Servers) -> Report:
        said: dict[str, str] = {}

        def change(address: str) -> Deferred[Any]:
            told = servers.admin.set_read_ahead(address, mode)
            return told.addCallback(lambda remark: said.update({address: remark}))

        addresses = await all_addresses(servers, broker, cluster, to_change=True)
        await on_each(addresses, change, said)
        rows = [{"address": address, "remark": remark} for address, remark in said.items()]
        return Report(
            {"mode": mode, "brokers": rows},
            lines=[f"{address}: {remark}" for address, remark in said.items()],
        )

    tool.report(work)
