"""topicList, topicRoute, topicStatus, updateTopic, deleteTopic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from rocketmq_tw.admin.brokers import (
    addresses_of,
    brokers_of,
    known_route,
    masters_in,
    name_of,
    only_in,
    owner_addresses,
)
from rocketmq_tw.admin.each_server import on_each, told_by_each, unfinished
from rocketmq_tw.admin.logic_offsets import logic_ends, logic_queues
from rocketmq_tw.admin.options import (
    SWITCH,
    ask_first,
    broker_option,
    check_attributes,
    check_broker_or_cluster,
    cluster_option,
    of_cluster_option,
    yes_option,
)
from rocketmq_tw.admin.output import Column, Listing, Report, Row, local_time, number_of, plain
from rocketmq_tw.admin.tool import Servers, Tool, fail
from rocketmq_tw.client.errors import BrokerError, ClientError
from rocketmq_tw.message.names import DLQ_PREFIX, RETRY_PREFIX, check_topic
from rocketmq_tw.net.errors import RemotingError
from rocketmq_tw.wire.bodies.base import MAX_TOPIC_QUEUES
from rocketmq_tw.wire.bodies.queues import TopicStatsTable
from rocketmq_tw.wire.bodies.route import ClusterInfo, TopicRouteData
from rocketmq_tw.wire.bodies.topics import TopicConfig
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError

#: Where name servers keep the queue counts of ordered topics.
ORDER_NAMESPACE = "ORDER_TOPIC_CONFIG"
_UNIT, _UNIT_SUBSCRIBED = 1, 2
#: Queues that a request can name; it has 32 bits for them.
_MOST_ON_THE_WIRE = 2**31 - 1

topic_option = click.option("-t", "--topic", required=True, metavar="NAME", help="The topic.")


@click.command("topicList")
@click.option(
    "-c", "--clusterModel", "details", is_flag=True, help="With cluster and consumer groups."
)
@click.pass_obj
def topic_list(tool: Tool, details: bool) -> None:
    """Lists all topics that the name servers know."""
    tool.report(_topics_in_detail if details else _topics)


_NO_TOPIC = "no name server knows a topic: start a broker, which has some by itself"


async def _topics(servers: Servers) -> Report:
    names = sorted((await servers.admin.topic_list()).topic_list)
    return Report({"topics": [{"topic": name} for name in names]}, lines=names, nothing=_NO_TOPIC)


async def _topics_in_detail(servers: Servers) -> Report:
    info = await servers.admin.cluster_info()
    names = [
        topic
        for topic in sorted((await servers.admin.topic_list()).topic_list)
        if not topic.startswith((RETRY_PREFIX, DLQ_PREFIX))
    ]
    topics = [
        await _topic_in_detail(servers, info, topic)
        for topic in servers.status.each(names, "topic")
    ]
    columns = (
        Column("Cluster", "cluster"), Column("Topic", "topic"), Column("Consumer group", "group")
    )  # fmt: skip
    rows = [
        {"cluster": ", ".join(topic["clusters"]), "topic": topic["topic"], "group": group}
        for topic in topics
        for group in topic["consumerGroups"] or [""]
    ]
    return Report({"topics": topics}, [Listing(columns, rows)], nothing=_NO_TOPIC)


async def _topic_in_detail(servers: Servers, info: ClusterInfo, topic: str) -> dict[str, Any]:
    route = await servers.admin.topic_route(topic) or TopicRouteData()
    names = {data.broker_name for data in route.broker_datas}
    told = await told_by_each(
        servers,
        addresses_of(route.broker_datas),
        lambda address: servers.admin.groups_of_topic(address, topic),
        all_may_fail=True,
    )
    groups = {group for each in told for group in each.group_list}
    return {
        "topic": topic,
        "clusters": sorted(
            cluster
            for cluster, members in info.cluster_addr_table.items()
            if names.intersection(members)
        ),
        "consumerGroups": sorted(groups),
    }


@click.command("topicRoute")
@topic_option
@click.option("-l", "--list", "as_list", is_flag=True, help="The table, which is the default here.")
@click.pass_obj
def topic_route(tool: Tool, topic: str, as_list: bool) -> None:
    """Shows which brokers have a topic, with how many queues."""

    async def work(servers: Servers) -> Report:
        return _route_report(await known_route(servers, topic))

    tool.report(work)


def _addresses_by_id(by_id: Mapping[int, str]) -> str:
    return plain(", ".join(f"{broker_id}: {address}" for broker_id, address in by_id.items()))


def _permission(perm: int | None) -> str:
    """Stock's number with the letters that it stands for."""
    if perm is None:
        return ""
    letters = "".join(letter for bit, letter in ((4, "R"), (2, "W"), (1, "X")) if perm & bit)
    return f"{perm} ({letters or '-'})"


_ROUTE = (
    Column("Cluster", "cluster"),
    Column("Broker", "brokerName"),
    Column("Addresses by ID", "addresses", _addresses_by_id),
    Column("Read queues", "readQueues"),
    Column("Write queues", "writeQueues"),
    Column("Perm", "perm", _permission),
)


def _route_report(route: TopicRouteData) -> Report:
    queues = {data.broker_name: data for data in route.queue_datas}
    rows: list[Row] = []
    for broker in sorted(route.broker_datas, key=lambda data: data.broker_name):
        data = queues.get(broker.broker_name)
        rows.append(
            {
                "cluster": broker.cluster,
                "brokerName": broker.broker_name,
                "addresses": dict(sorted(broker.broker_addrs.items())),
                "readQueues": data.read_queue_nums if data else 0,
                "writeQueues": data.write_queue_nums if data else 0,
                "perm": data.perm if data else None,
            }
        )
    totals = (
        f"{number_of(len(rows), 'broker')},"
        f" {number_of(sum(row['readQueues'] for row in rows), 'queue')} to read,"
        f" {sum(row['writeQueues'] for row in rows)} to write"
    )
    lines = ["", totals]
    if route.order_topic_conf:
        lines.append(f"ordered: {route.order_topic_conf}")
    return Report(route, [Listing(_ROUTE, rows)], lines)


@click.command("topicStatus")
@topic_option
@of_cluster_option
@click.pass_obj
def topic_status(tool: Tool, topic: str, cluster: str | None) -> None:
    """Shows the offsets of each queue of a topic and when it last changed.

    Of a static topic also those of its logic queues, whose broker is called __syslo__global__."""

    async def work(servers: Servers) -> Report:
        stats = TopicStatsTable()
        addresses = list((await brokers_of(servers, topic, cluster)).values())
        for part in await told_by_each(
            servers, addresses, lambda address: servers.admin.topic_stats(address, topic)
        ):
            stats.offset_table.update(part.offset_table)
            stats.topic_put_tps = (stats.topic_put_tps or 0.0) + (part.topic_put_tps or 0.0)
        route = await servers.admin.topic_route(topic)
        queues = await logic_queues(servers, topic, route, addresses)
        stats.offset_table.update(logic_ends(queues, stats.offset_table))
        return _status_report(topic, stats)

    tool.report(work)


_STATUS = (
    Column("Broker", "brokerName"),
    Column("Queue", "queueId"),
    Column("Min offset", "minOffset"),
    Column("Max offset", "maxOffset"),
    Column("Last updated", "lastUpdateTimestamp", local_time),
)


def _status_report(topic: str, stats: TopicStatsTable) -> Report:
    rows: list[Row] = [
        {
            "brokerName": queue.broker_name,
            "queueId": queue.queue_id,
            "minOffset": offset.min_offset,
            "maxOffset": offset.max_offset,
            "lastUpdateTimestamp": offset.last_update_timestamp,
        }
        for queue, offset in sorted(stats.offset_table.items())
    ]
    tps = stats.topic_put_tps or 0.0
    return Report(
        {"topic": topic, "queues": rows, "putTps": tps},
        [Listing(_STATUS, rows)],
        ["", f"Put TPS: {tps:.2f}"],
    )


@click.command("updateTopic")
@broker_option
@cluster_option
@click.option(
    "-a",
    "--attributes",
    metavar="+A=B,-C",
    callback=check_attributes,
    help="Attributes to set and to drop.",
)
@topic_option
@click.option(
    "-r", "--readQueueNums", "read_queues", type=click.IntRange(min=1), default=8,
    show_default=True, help="Queues to read from.",
)  # fmt: skip
@click.option(
    "-w", "--writeQueueNums", "write_queues", type=click.IntRange(min=1), default=8,
    show_default=True, help="Queues to write to.",
)  # fmt: skip
@click.option(
    "-p", "--perm", type=click.IntRange(0, 7), default=6, show_default=True,
    help="2: write, 4: read, 6: both.",
)  # fmt: skip
@click.option("-o", "--order", **SWITCH, default=False, help="Whether it is an ordered topic.")
@click.option("-u", "--unit", **SWITCH, default=False, help="Whether it is a unit topic.")
@click.option(
    "-s", "--hasUnitSub", "unit_subscribed", **SWITCH, default=False,
    help="Whether units subscribe to it.",
)  # fmt: skip
@click.pass_obj
def update_topic(
    tool: Tool,
    broker: str | None,
    cluster: str | None,
    attributes: str | None,
    topic: str,
    read_queues: int,
    write_queues: int,
    perm: int,
    order: bool,
    unit: bool,
    unit_subscribed: bool,
) -> None:
    """Creates a topic, or gives one the settings of this call; what is left out becomes the
    default."""
    check_broker_or_cluster(broker, cluster)
    try:
        check_topic(topic)
    except RequestError as error:
        raise click.UsageError(error.remark) from error
    for letter, queues in (("-r", read_queues), ("-w", write_queues)):
        if queues > _MOST_ON_THE_WIRE:
            # Fewer may be too many too, but stock's brokers have no limit.
            raise click.UsageError(f"{letter} {queues}: give 1 to {MAX_TOPIC_QUEUES}")
    config = TopicConfig(
        topic_name=topic,
        read_queue_nums=read_queues,
        write_queue_nums=write_queues,
        perm=perm,
        order=order,
        topic_sys_flag=(_UNIT if unit else 0) | (_UNIT_SUBSCRIBED if unit_subscribed else 0),
    )

    async def work(servers: Servers) -> Report:
        return await _update(servers, config, attributes, broker, cluster)

    tool.report(work)


async def _update(
    servers: Servers,
    config: TopicConfig,
    attributes: str | None,
    broker: str | None,
    cluster: str | None,
) -> Report:
    targets: Mapping[str, str]
    if cluster is not None:
        targets = await masters_in(servers, cluster)
    else:
        assert broker is not None
        # The name matters to ordered topics only; a broker may be without a name server.
        name = name_of(await servers.admin.cluster_info(), broker) if config.order else ""
        (address,) = await owner_addresses(servers, broker, None)
        targets = {name: address}
    done = await on_each(
        targets.values(),
        lambda address: servers.admin.update_topic(address, config, attributes=attributes),
    )
    order_conf = None
    if config.order:
        counts = dict.fromkeys(targets, config.write_queue_nums)
        is_part = cluster is None or bool(servers.missing)
        order_conf = await _keep_order(servers, config.topic_name, counts, merge=is_part)
    lines = [f"topic {config.topic_name} is on {address}" for address in done]
    settings = {
        "topic": config.topic_name,
        "readQueues": config.read_queue_nums,
        "writeQueues": config.write_queue_nums,
        "perm": config.perm,
        "order": config.order,
        "sysFlag": config.topic_sys_flag,
        "attributes": attributes,
    }
    shown = [f"{name}={plain(value)}" for name, value in settings.items() if value is not None]
    lines.append("  " + " ".join(shown[1:]))
    if order_conf is not None:
        lines.append(f"  order configuration: {order_conf}")
    return Report(
        {**settings, "brokers": done, "orderConf": order_conf},
        lines=lines,
    )


async def _keep_order(
    servers: Servers, topic: str, counts: Mapping[str, int], *, merge: bool
) -> str:
    """Tells the name servers `broker:queues;...`; with `merge` other brokers' counts stay."""
    entries = {name: f"{name}:{count}" for name, count in counts.items()}
    if merge:
        try:
            present = await servers.admin.kv_config(ORDER_NAMESPACE, topic) or ""
        except BrokerError as error:
            if error.code != ResponseCode.QUERY_NOT_FOUND:
                raise
            present = ""
        kept = {entry.partition(":")[0]: entry for entry in present.split(";") if entry}
        entries = kept | entries
    text = ";".join(entries[name] for name in sorted(entries))
    await servers.admin.put_kv_config(ORDER_NAMESPACE, topic, text)
    return text


@click.command("deleteTopic")
@topic_option
@click.option("-c", "--clusterName", "cluster", required=True, metavar="NAME", help="From where.")
@yes_option
@click.pass_obj
def delete_topic(tool: Tool, topic: str, cluster: str, yes: bool) -> None:
    """Deletes a topic with its messages from a cluster's brokers and from the name servers."""
    ask_first(yes, f"Delete topic {topic} with all its messages from cluster {cluster}?")

    async def work(servers: Servers) -> Report:
        return await _delete(servers, topic, cluster)

    tool.report(work)


async def _delete(servers: Servers, topic: str, cluster: str) -> Report:
    targets = await masters_in(servers, cluster)
    route = await known_route(servers, topic)
    await only_in(servers, cluster, route.broker_datas, f"topic {topic}")
    done = await on_each(
        targets.values(), lambda address: servers.admin.delete_topic(address, topic)
    )
    lines = [f"topic {topic} is deleted from {address}" for address in done]
    if servers.missing:
        # By its route a second call finds what is left of it.
        lines.append(f"topic {topic} stays with the name servers: delete it again")
    else:
        try:
            await servers.admin.delete_topic_in_names(topic, cluster)
        except (RemotingError, ClientError) as error:
            fail(unfinished(error, done), error)
        lines.append(f"topic {topic} is deleted from the name servers")
    return Report({"topic": topic, "cluster": cluster, "brokers": done}, lines=lines)
