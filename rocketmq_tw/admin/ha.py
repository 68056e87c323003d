"""haStatus: how far slaves are, as their master sees them, or how a slave follows."""

from __future__ import annotations

from typing import Any

import click

from rocketmq_tw.admin.brokers import master_addresses
from rocketmq_tw.admin.each_server import ask_each
from rocketmq_tw.admin.options import check_broker_or_cluster
from rocketmq_tw.admin.output import Column, Listing, Report, local_time, number_of, plain
from rocketmq_tw.admin.repeating import interval_option, show_repeatedly
from rocketmq_tw.admin.tool import Servers, Tool
from rocketmq_tw.wire.bodies.stats import HAClientInfo, HARuntimeInfo


def _kilobytes(count: int) -> str:
    return plain(count / 1024)


_SLAVES = (
    Column("Slave", "address"),
    Column("Acknowledged", "acknowledged"),
    Column("Behind", "behind"),
    Column("KB/s", "bytesPerSecond", _kilobytes),
    Column("In sync", "inSync"),
    Column("Sent up to", "sentUpTo"),
)
_MASTER = (
    Column("Master's HA address", "master"),
    Column("Log end", "logEnd"),
    Column("KB/s", "bytesPerSecond", _kilobytes),
    Column("Last read", "lastRead", local_time),
    Column("Last report", "lastReport", local_time),
)


@click.command("haStatus")
@click.option("-b", "--brokerAddr", "broker", metavar="HOST:PORT", help="This broker, any role.")
@click.option("-c", "--clusterName", "cluster", metavar="NAME", help="All masters of a cluster.")
@interval_option
@click.pass_obj
def ha_status(tool: Tool, broker: str | None, cluster: str | None, interval: int | None) -> None:
    """Shows how replication is doing."""
    check_broker_or_cluster(broker, cluster)

    show_repeatedly(tool, interval, lambda servers: _report(servers, broker, cluster))


async def _report(servers: Servers, broker: str | None, cluster: str | None) -> Report:
    addresses = await master_addresses(servers, broker, cluster)
    data: list[dict[str, Any]] = []
    listings: list[Listing] = []
    lines: list[str] = []
    for answer in await ask_each(servers, addresses, servers.admin.ha_status):
        address, info = answer.address, answer.value
        if info is None:
            data.append({"address": address, "role": None, "logEnd": None, "error": answer.error})
            continue
        status = _of_master(address, info) if info.master else _of_slave(address, info)
        data.append({**status, "error": None})
        if info.master:
            listings.append(Listing(_SLAVES, status["slaves"]))
            lines.append(
                f"{address} is a master: log end {status['logEnd']},"
                f" {number_of(len(status['slaves']), 'slave')}, {status['inSync']} in sync"
            )
        else:
            listings.append(Listing(_MASTER, [status]))
            lines.append(f"{address} is a slave")
    return Report({"brokers": data}, listings, lines)


def _of_master(address: str, info: HARuntimeInfo) -> dict[str, Any]:
    return {
        "address": address,
        "role": "master",
        "logEnd": info.master_commit_log_max_offset,
        "inSync": info.in_sync_slave_nums,
        "slaves": [
            {
                "address": slave.addr,
                "acknowledged": slave.slave_ack_offset,
                "behind": slave.diff,
                "bytesPerSecond": slave.transferred_byte_in_second,
                "inSync": slave.in_sync,
                "sentUpTo": slave.transfer_from_where,
            }
            for slave in info.ha_connection_info
        ],
    }


def _of_slave(address: str, info: HARuntimeInfo) -> dict[str, Any]:
    client = info.ha_client_runtime_info or HAClientInfo()
    return {
        "address": address,
        "role": "slave",
        "master": client.master_addr,
        "logEnd": client.max_offset,
        "bytesPerSecond": client.transferred_byte_in_second,
        "lastRead": client.last_read_timestamp,
        "lastReport": client.last_write_timestamp,
    }
