"""exportMetadata, exportConfigs, exportMetrics: what a cluster has, as files of JSON."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import click

from rocketmq_tw.admin.brokers import in_cluster, master_addresses
from rocketmq_tw.admin.each_server import masters_of
from rocketmq_tw.admin.known_names import is_of_users
from rocketmq_tw.admin.members import members_at
from rocketmq_tw.admin.options import PathType, broker_option, check_broker_or_cluster
from rocketmq_tw.admin.output import Report
from rocketmq_tw.admin.tool import Servers, Tool, fail
from rocketmq_tw.admin.traffic import PUT, counted
from rocketmq_tw.message.names import (
    DLQ_PREFIX,
    HALF_TOPIC,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    SYSTEM_TOPIC_PREFIX,
    SYSTEM_TOPICS,
)
from rocketmq_tw.structs import msgspec
from rocketmq_tw.wire.bodies.base import DataVersion
from rocketmq_tw.wire.bodies.groups import SubscriptionGroupConfig
from rocketmq_tw.wire.bodies.topics import TopicConfig
from rocketmq_tw.wire.command import version_name

#: The keys of brokers that stock's exportConfigs writes.
_KEYS = (
    "brokerClusterName", "brokerId", "brokerName", "brokerRole", "fileReservedTime",
    "filterServerNums", "flushDiskType", "maxMessageSize", "messageDelayLevel",
    "msgTraceTopicName", "slaveReadEnable", "traceOn", "traceTopicEnable", "useTLS",
    "autoCreateTopicEnable", "autoCreateSubscriptionGroup",
)  # fmt: skip

_directory_option = click.option(
    "-f", "--filePath", "directory", metavar="DIR", default=".", show_default=True,
    type=PathType(file_okay=False), help="The directory of the file, which is made.",
)  # fmt: skip
_cluster_option = click.option(
    "-c", "--clusterName", "cluster", metavar="NAME", required=True, help="The cluster."
)


def _write(tool: Tool, servers: Servers, directory: str, name: str, value: Any) -> Report:
    """Writes a file, unless with `--dry-run`, and returns the report of it; ends the command where
    it cannot be written, or where a server's part is missing: it would stand for the whole."""
    if servers.missing:
        fail(f"{name} is not written: a part of it is missing")
    path = os.path.join(directory, name)
    data = msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"
    if tool.dry_run:
        lines = [f"nothing is changed; {path} would be written, {len(data)} bytes"]
        return Report({"dryRun": True, "path": path, "bytes": len(data)}, lines=lines)
    tool.only_once("writes a file")
    try:
        os.makedirs(directory, exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)
    except FileExistsError as error:
        fail(f"-f {directory} is no directory: give one for {name}", error)
    except OSError as error:
        fail(f"{path}: {error.strerror}", error)
    return Report({"path": path}, lines=[f"{path} is written"])


@click.command("exportMetadata")
@click.option("-c", "--clusterName", "cluster", metavar="NAME", help="Of each master of a cluster.")
@broker_option
@_directory_option
@click.option("-t", "--topic", "topics_only", is_flag=True, help="Topics only, in topic.json.")
@click.option(
    "-g", "--subscriptionGroup", "groups_only", is_flag=True,
    help="Groups only, in subscriptionGroup.json.",
)  # fmt: skip
@click.option(
    "-s", "--specialTopic", "special", is_flag=True, help="Retry and dead-letter topics too."
)
@click.pass_obj
def export_metadata(
    tool: Tool,
    cluster: str | None,
    broker: str | None,
    directory: str,
    topics_only: bool,
    groups_only: bool,
    special: bool,
) -> None:
    """Writes the topics and groups of users to metadata.json."""
    check_broker_or_cluster(broker, cluster)
    if topics_only and groups_only:
        raise click.UsageError("give one of -t and -g, or none for both")

    async def work(servers: Servers) -> Report:
        topics: dict[str, TopicConfig] = {}
        groups: dict[str, SubscriptionGroupConfig] = {}
        for address in await master_addresses(servers, broker, cluster):
            if not groups_only:
                _add_topics(topics, await _topics_of(servers, address, special))
            if not topics_only:
                _add_groups(groups, await _groups_of(servers, address))
        value: dict[str, Any] = {}
        if not groups_only:
            value["topicConfigTable"] = dict(sorted(topics.items()))
        if not topics_only:
            value["subscriptionGroupTable"] = dict(sorted(groups.items()))
        if broker is not None:
            value["dataVersion"] = DataVersion()
        kind = "topic" if topics_only else "subscriptionGroup" if groups_only else "metadata"
        return _write(tool, servers, directory, f"{kind}.json", value)

    tool.report(work)


async def _topics_of(servers: Servers, address: str, special: bool) -> dict[str, TopicConfig]:
    """Returns the topics that users made."""
    system = {*(await servers.admin.system_topics(address)).topic_list, *SYSTEM_TOPICS}
    left_out = () if special else (RETRY_PREFIX, DLQ_PREFIX)
    table = (await servers.admin.topics(address)).topic_config_table
    return {
        name: topic
        for name, topic in table.items()
        if name not in system and not name.startswith((SYSTEM_TOPIC_PREFIX, *left_out))
    }


async def _groups_of(servers: Servers, address: str) -> dict[str, SubscriptionGroupConfig]:
    """Returns the groups that users made."""
    table = (await servers.admin.groups(address)).subscription_group_table
    return {name: group for name, group in table.items() if is_of_users(name)}


def _add_topics(topics: dict[str, TopicConfig], more: Mapping[str, TopicConfig]) -> None:
    """Adds another broker's topics; queues of the same topic are summed up, as in stock."""
    for name, topic in more.items():
        if name in topics:
            topic.read_queue_nums += topics[name].read_queue_nums
            topic.write_queue_nums += topics[name].write_queue_nums
        topics[name] = topic


def _add_groups(
    groups: dict[str, SubscriptionGroupConfig], more: Mapping[str, SubscriptionGroupConfig]
) -> None:
    for name, group in more.items():
        if name in groups:
            group.retry_queue_nums += groups[name].retry_queue_nums
        groups[name] = group


@click.command("exportConfigs")
@_cluster_option
@_directory_option
@click.pass_obj
def export_configs(tool: Tool, cluster: str, directory: str) -> None:
    """Writes how large a cluster is, and how its masters are configured, to configs.json."""

    async def work(servers: Servers) -> Report:
        brokers = in_cluster(await servers.admin.cluster_info(), cluster)
        configs = {}
        for name, master in masters_of(servers, brokers).items():
            config = await servers.admin.broker_config(master)
            configs[name] = {key: config[key] for key in _KEYS if key in config}
        slaves = sum(len(data.broker_addrs) for data in brokers) - len(configs)
        scale = {
            "namesrvSize": len(servers.admin.names.addresses),
            "masterBrokerSize": len(configs),
            "slaveBrokerSize": slaves,
        }
        return _write(
            tool,
            servers,
            directory,
            "configs.json",
            {"brokerConfigs": configs, "clusterScale": scale},
        )

    tool.report(work)


@click.command("exportMetrics")
@_cluster_option
@_directory_option
@click.pass_obj
def export_metrics(tool: Tool, cluster: str, directory: str) -> None:
    """Writes what a cluster's masters have to do, and with what, to metrics.json."""

    async def work(servers: Servers) -> Report:
        brokers = in_cluster(await servers.admin.cluster_info(), cluster)
        reports: dict[str, Any] = {
            name: await _metrics_of(servers, master)
            for name, master in masters_of(servers, brokers).items()
        }
        quotas = [report["runtimeQuota"] for report in reports.values()]
        totals = {
            "totalTps": _totals([quota["tps"] for quota in quotas]),
            "totalOneDayNum": _totals([quota["oneDayNum"] for quota in quotas]),
        }
        return _write(
            tool,
            servers,
            directory,
            "metrics.json",
            {"evaluateReport": reports, "totalData": totals},
        )

    tool.report(work)


async def _metrics_of(servers: Servers, address: str) -> dict[str, Any]:
    table = (await servers.admin.runtime_info(address)).table
    config = await servers.admin.broker_config(address)
    groups = await _groups_of(servers, address)
    half_tps, half_day = await counted(servers, [address], PUT, HALF_TOPIC)
    delayed_tps, delayed_day = await counted(servers, [address], PUT, SCHEDULE_TOPIC)
    quota = {
        "diskRatio": {
            key: table.get(key) for key in ("commitLogDiskRatio", "consumeQueueDiskRatio")
        },
        "tps": {
            "normalInTps": _first(table.get("putTps")),
            "normalOutTps": _first(table.get("getTransferredTps")),
            "transInTps": half_tps,
            "scheduleInTps": delayed_tps,
        },
        "oneDayNum": {
            "normalOneDayInNum": _day(table, "msgPutTotal"),
            "normalOneDayOutNum": _day(table, "msgGetTotal"),
            "transOneDayInNum": half_day,
            "scheduleOneDayInNum": delayed_day,
        },
        "messageAverageSize": table.get("putMessageAverageSize"),
        "topicSize": len(await _topics_of(servers, address, special=False)),
        "groupSize": len(groups),
    }
    return {
        "runtimeEnv": {
            "cpuNum": config.get("clientCallbackExecutorThreads"),
            "totalMemKBytes": table.get("totalMemKBytes"),
        },
        "runtimeQuota": quota,
        "runtimeVersion": {
            "rocketmqVersion": table.get("brokerVersionDesc"),
            "clientInfo": await _clients_of(servers, address, list(groups)),
        },
    }


async def _clients_of(servers: Servers, address: str, groups: Sequence[str]) -> list[str]:
    """Returns language and version of each kind of consumer that is connected."""
    kinds = set()
    for group in servers.status.each(groups, "group"):
        for _, connected in await members_at(servers, [address], group, all_may_fail=True):
            for each in connected.connection_set:
                kinds.add(f"{each.language}%{version_name(each.version)}")
    return sorted(kinds)


def _first(averages: str | None) -> float:
    """Returns the average of the last ten seconds, which is the first one."""
    try:
        return float((averages or "").split()[0])
    except (IndexError, ValueError):
        return 0.0


def _day(table: Mapping[str, str], name: str) -> int:
    """Returns how many messages there were yesterday."""
    try:
        return int(table[f"{name}TodayMorning"]) - int(table[f"{name}YesterdayMorning"])
    except (KeyError, ValueError):
        return 0


def _totals(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Sums the same names of all brokers up, with stock's name of each total."""
    totals: dict[str, float] = {}
    for part in parts:
        for name, value in part.items():
            key = f"total{name[0].upper()}{name[1:]}"
            totals[key] = totals.get(key, 0) + value
    return totals
