"""clusterList: the brokers that are registered and how they are doing."""

from __future__ import annotations

from typing import Any

import click

from rocketmq_tw.admin.brokers import in_cluster
from rocketmq_tw.admin.each_server import ask_each
from rocketmq_tw.admin.output import Column, Listing, Report, Row, plain
from rocketmq_tw.admin.repeating import interval_option, show_repeatedly
from rocketmq_tw.admin.tool import Servers, Tool
from rocketmq_tw.runtime.clock import wall_clock_ms
from rocketmq_tw.wire.bodies.route import BrokerData

_HOUR_MS = 3_600_000


def _percent(ratio: float | None) -> str:
    return "" if ratio is None else f"{100 * ratio:.1f}%"


def _tps(load: dict[str, Any] | None) -> str:
    return "" if load is None else plain(load["tps"])


_WHO = (
    Column("Cluster", "cluster"),
    Column("Broker", "brokerName"),
    Column("ID", "brokerId"),
    Column("Address", "address"),
)
_BASE = (
    *_WHO,
    Column("Version", "version"),
    Column("In TPS", "in", _tps),
    Column("Out TPS", "out", _tps),
    Column("Hours", "hours"),
    Column("Disk", "diskRatio", _percent),
    Column("Active", "active"),
)
_TOTALS = (
    *_WHO,
    Column("In yesterday", "inYesterday"),
    Column("Out yesterday", "outYesterday"),
    Column("In today", "inToday"),
    Column("Out today", "outToday"),
)


@click.command("clusterList")
@click.option("-m", "--moreStats", "more", is_flag=True, help="Messages of yesterday and today.")
@interval_option
@click.option("-c", "--clusterName", "cluster", metavar="NAME", help="Only this cluster.")
@click.pass_obj
def cluster_list(tool: Tool, more: bool, interval: int | None, cluster: str | None) -> None:
    """Lists clusters, their brokers and how these are doing."""
    show_repeatedly(tool, interval, lambda servers: _report(servers, cluster, more))


async def _report(servers: Servers, cluster: str | None, more: bool) -> Report:
    info = await servers.admin.cluster_info()
    clusters = sorted(info.cluster_addr_table) if cluster is None else [cluster]
    rows = [
        await _row(servers, name, data, broker_id, more)
        for name in clusters
        for data in in_cluster(info, name)
        for broker_id in sorted(data.broker_addrs)
    ]
    listing = Listing(_TOTALS if more else _BASE, rows)
    return Report({"brokers": rows}, [listing], nothing="no broker is registered: start one")


async def _row(
    servers: Servers, cluster: str, data: BrokerData, broker_id: int, more: bool
) -> dict[str, Any]:
    """Makes the row of a broker; one that does not answer has only what its name server says."""
    address = data.broker_addrs[broker_id]
    ask = servers.admin.runtime_info
    (answer,) = await ask_each(servers, [address], ask, all_may_fail=True)
    table = {} if answer.value is None else answer.value.table
    return {
        "cluster": cluster,
        "brokerName": data.broker_name,
        "brokerId": broker_id,
        "address": address,
        **(_totals(table) if more else _base(table)),
        "error": answer.error,
    }


def _base(table: dict[str, str]) -> Row:
    earliest = _number(table, "earliestMessageTimeStamp")
    hours = None if earliest is None else 0.0
    if earliest is not None and earliest > 0:
        hours = max(wall_clock_ms() - earliest, 0) / _HOUR_MS
    # 4.9 spells the second one with a letter less.
    pulled = table.get("getTransferredTps") or table.get("getTransferedTps")
    return {
        "version": table.get("brokerVersionDesc"),
        "in": _rate(table, table.get("putTps"), "sendThreadPool"),
        "out": _rate(table, pulled, "pullThreadPool"),
        "hours": hours,
        "diskRatio": _number(table, "commitLogDiskRatio"),
        "pageCacheLockMs": _number(table, "pageCacheLockTimeMills"),
        "timerReadBehind": _number(table, "timerReadBehind"),
        "timerOffsetBehind": _number(table, "timerOffsetBehind"),
        "timerCongestion": _number(table, "timerCongestNum"),
        # 4.9 does not say so, but it does answer.
        "active": bool(table) and table.get("brokerActive", "true") == "true",
    }


def _totals(table: dict[str, str]) -> Row:
    return {
        "inYesterday": _difference(table, "msgPutTotalTodayMorning", "msgPutTotalYesterdayMorning"),
        "outYesterday": _difference(
            table, "msgGetTotalTodayMorning", "msgGetTotalYesterdayMorning"
        ),
        "inToday": _difference(table, "msgPutTotalTodayNow", "msgPutTotalTodayMorning"),
        "outToday": _difference(table, "msgGetTotalTodayNow", "msgGetTotalTodayMorning"),
    }


def _rate(table: dict[str, str], averages: str | None, pool: str) -> Row | None:
    """Returns the first of three averages, over ten seconds, and how its thread pool keeps up."""
    if not table:
        return None
    # Stock has no averages in its first seconds.
    words = (averages or "").split() or ["0.0"]
    return {
        "tps": _number({"tps": words[0]}, "tps"),
        "queue": _number(table, f"{pool}QueueSize"),
        "waitMs": _number(table, f"{pool}QueueHeadWaitTimeMills"),
    }


def _difference(table: dict[str, str], end: str, start: str) -> float | None:
    upper, lower = _number(table, end), _number(table, start)
    return None if upper is None or lower is None else upper - lower


def _number(table: dict[str, str], key: str) -> int | float | None:
    text = table.get(key, "")
    try:
        return int(text)
    except ValueError:
        try:
            return float(text)
        except ValueError:
            return None
