"""consumerProgress: how far consumer groups are behind."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

from rocketmq_tw.admin.brokers import addresses_of, known_route, only_in
from rocketmq_tw.admin.each_server import ask_each, told_by_each
from rocketmq_tw.admin.known_names import group_hint, is_known, known_groups
from rocketmq_tw.admin.logic_offsets import KnownRoutes, Progress, group_progress, physical_progress
from rocketmq_tw.admin.members import members_at
from rocketmq_tw.admin.options import SWITCH, of_cluster_option
from rocketmq_tw.admin.output import Column, Listing, Report, local_time
from rocketmq_tw.admin.tool import Servers, Tool, warn
from rocketmq_tw.client.errors import BrokerError, UnknownTopicError
from rocketmq_tw.message.names import LMQ_PREFIX, retry_topic
from rocketmq_tw.net.errors import RemotingError
from rocketmq_tw.wire.bodies.clients import ConsumerConnection
from rocketmq_tw.wire.bodies.queues import ConsumeStats, MessageQueue, OffsetWrapper
from rocketmq_tw.wire.bodies.route import BrokerData
from rocketmq_tw.wire.command import version_name


@click.command("consumerProgress")
@click.option("-g", "--groupName", "group", metavar="NAME", help="One group, queue by queue.")
@click.option("-t", "--topicName", "topic", metavar="NAME", help="Only this topic; wants -g.")
@click.option(
    "-s", "--showClientIP", "show_clients", **SWITCH, default=False,
    help="With the client that has each queue; wants -g.",
)  # fmt: skip
@of_cluster_option
@click.pass_obj
def consumer_progress(
    tool: Tool, group: str | None, topic: str | None, show_clients: bool, cluster: str | None
) -> None:
    """Shows how far a consumer group is behind, or all groups in short."""
    if group is None:
        if topic is not None or show_clients or cluster is not None:
            raise click.UsageError("-t, -s and -c are about one group: name that with -g")
        tool.report(_all_groups)
        return
    name = group

    async def work(servers: Servers) -> Report:
        return await _one_group(servers, name, topic, cluster, show_clients)

    tool.report(work)


# One group


_QUEUES = (
    Column("Topic", "topic"),
    Column("Broker", "brokerName"),
    Column("Queue", "queueId"),
    Column("Broker offset", "brokerOffset"),
    Column("Consumer offset", "consumerOffset"),
    Column("Client", "client"),
    Column("Diff", "diff"),
    Column("Inflight", "inflight"),
    Column("Last time", "lastTimestamp", local_time),
)
_QUEUES_WITHOUT_CLIENT = tuple(column for column in _QUEUES if column.key != "client")


async def _one_group(
    servers: Servers, group: str, topic: str | None, cluster: str | None, show_clients: bool
) -> Report:
    brokers = await _brokers_of(servers, group, topic, cluster)
    stats = ConsumeStats()
    for part in await told_by_each(
        servers, brokers, lambda address: servers.admin.consume_stats(address, group, topic)
    ):
        stats.offset_table.update(part.offset_table)
        stats.consume_tps += part.consume_tps
    if topic is None and not stats.offset_table:
        await _check_has_consumed(servers, group)
    # Brokers say 0 where there is no offset, too.
    if topic is not None and not any(
        done.consumer_offset > 0 for done in stats.offset_table.values()
    ):
        await _tell_unknown(servers, group)
    if cluster is None:
        progress = await group_progress(servers, group, stats.offset_table)
    else:
        # Logic queues of static topics may lie in several clusters.
        progress = {queue: physical_progress(done) for queue, done in stats.offset_table.items()}
    clients = await _clients_of_queues(servers, brokers, group) if show_clients else {}
    rows = [_queue_row(queue, done, clients.get(queue)) for queue, done in sorted(progress.items())]
    diff, inflight = (sum(row[key] for row in rows) for key in ("diff", "inflight"))
    return Report(
        {
            "group": group,
            "queues": rows,
            "consumeTps": stats.consume_tps,
            "diffTotal": diff,
            "inflightTotal": inflight,
        },
        [Listing(_QUEUES if show_clients else _QUEUES_WITHOUT_CLIENT, rows)],
        [
            "",
            f"Consume TPS: {stats.consume_tps:.2f}",
            f"Diff total: {diff}",
            f"Inflight total: {inflight}",
        ],
    )


async def _brokers_of(
    servers: Servers, group: str, topic: str | None, cluster: str | None
) -> list[str]:
    """Returns the brokers that have the topic, or those that know the group, also of a light topic
    without a route; with `cluster` those in it alone, or where there are none those of its
    route."""
    groups = await known_groups(servers, cluster) if topic is None else {}
    if topic is None and cluster is not None and group not in groups:
        groups = await known_groups(servers)
    if topic is None:
        route = None
    elif topic.startswith(LMQ_PREFIX):
        route = await servers.admin.topic_route(topic)
    else:
        route = await known_route(servers, topic)
    if route is not None:
        brokers, what = route.broker_datas, f"topic {topic}"
    else:
        brokers, what = await _that_know(servers, group, groups.get(group, ())), f"group {group}"
    if brokers:
        if cluster is not None:
            brokers = await only_in(servers, cluster, brokers, what)
        return addresses_of(brokers)
    if cluster is not None and (topic is not None or group in groups):
        return addresses_of((await known_route(servers, cluster)).broker_datas)
    if topic is not None:
        await known_route(servers, topic)
    unknown = (
        f"no broker has a group {group}, neither settings nor a retry topic of it (-t names a topic"
        f" that it reads): {await group_hint(servers, group)}"
    )
    raise UnknownTopicError(servers.conclusion(unknown))


async def _that_know(
    servers: Servers, group: str, with_settings: Iterable[BrokerData]
) -> list[BrokerData]:
    """Returns the brokers of the group's retry topic, and those that have settings of it: a group
    that only pulls, or pops, has no retry topic."""
    found = {data.broker_name: data for data in with_settings}
    route = await servers.admin.topic_route(retry_topic(group))
    if route is not None:
        found |= {data.broker_name: data for data in route.broker_datas}
    return [found[name] for name in sorted(found)]


async def _check_has_consumed(servers: Servers, group: str) -> None:
    """Raises `UnknownTopicError` for a group without offsets that never had a consumer."""
    if await servers.admin.topic_route(retry_topic(group)) is None:
        none_yet = (
            f"group {group} is there, and has no offsets yet: start a consumer of it, or name with"
            " -t a topic that it is to read"
        )
        raise UnknownTopicError(servers.conclusion(none_yet))


async def _tell_unknown(servers: Servers, group: str) -> None:
    """Says on stderr where nobody knows a group. It may be about to pull: how far it would be
    behind is shown."""
    if not await is_known(servers, group):
        hint = await group_hint(servers, group)
        servers.status.clear()
        warn(servers.conclusion(f"no broker has a group {group}: {hint}"))


def _queue_row(queue: MessageQueue, done: Progress, client: str | None) -> dict[str, Any]:
    return {
        "topic": queue.topic,
        "brokerName": queue.broker_name,
        "queueId": queue.queue_id,
        "brokerOffset": done.broker_offset,
        "consumerOffset": done.consumer_offset,
        "diff": done.behind,
        "inflight": done.in_flight,
        "lastTimestamp": done.last_timestamp,
        "client": client,
    }


async def _clients_of_queues(
    servers: Servers, brokers: list[str], group: str
) -> dict[MessageQueue, str]:
    """Returns the IP of the client that has each queue, as the clients report."""
    owners = {}
    for address, found in await members_at(servers, brokers, group):
        for connection in servers.status.each(found.connection_set, "member"):
            client_id = connection.client_id or ""
            try:
                info = await servers.admin.consumer_running_info(address, group, client_id)
            except (BrokerError, RemotingError):
                # A client that only pulls, or is not Java's, need not know of such questions.
                continue
            owners.update(dict.fromkeys(info.mq_table, client_id.partition("@")[0]))
    return owners


async def _connections(
    servers: Servers, brokers: list[str], group: str
) -> ConsumerConnection | None:
    """Returns the group's members at the first broker that has any."""
    for address in brokers:
        for _, found in await members_at(servers, [address], group, all_may_fail=True):
            if found.connection_set:
                return found
    return None


# All groups


NO_GROUP = "there is no consumer group yet: updateSubGroup makes one, a consumer's start too"
_GROUPS = (
    Column("Group", "group"),
    Column("Clients", "count"),
    Column("Version", "version", lambda version: version or "OFFLINE"),
    Column("Type", "type"),
    Column("Model", "model"),
    Column("TPS", "tps"),
    Column("Diff total", "diffTotal"),
)
_GROUPS_WITH_ERRORS = (*_GROUPS, Column("Without", "error"))


async def _all_groups(servers: Servers) -> Report:
    routes: KnownRoutes = {}
    rows = [
        await group_row(servers, group, brokers, routes)
        for group, brokers in servers.status.each((await known_groups(servers)).items(), "group")
    ]
    columns = _GROUPS_WITH_ERRORS if any(row["error"] for row in rows) else _GROUPS
    return Report({"groups": rows}, [Listing(columns, rows)], nothing=NO_GROUP)


async def group_row(
    servers: Servers,
    group: str,
    with_settings: Iterable[BrokerData],
    routes: KnownRoutes | None = None,
) -> dict[str, Any]:
    """Makes the row of a group, which the brokers `with_settings` of it and those of its retry
    topic know; the part of one that does not answer is left out, and the row says so. Routes of
    topics that are not among `routes` are asked for, and kept there."""
    row: dict[str, Any] = {
        "group": group, "count": 0, "version": None, "type": None, "model": None,
        "tps": 0, "diffTotal": 0, "error": None,
    }  # fmt: skip
    brokers = addresses_of(await _that_know(servers, group, with_settings))
    answers = await ask_each(
        servers,
        brokers,
        lambda address: servers.admin.consume_stats(address, group),
        all_may_fail=True,
    )
    row["error"] = "; ".join(answer.error for answer in answers if answer.error) or None
    offsets: dict[MessageQueue, OffsetWrapper] = {}
    for stats in (answer.value for answer in answers if answer.value is not None):
        row["tps"] += int(stats.consume_tps)
        offsets.update(stats.offset_table)
    progress = await group_progress(servers, group, offsets, routes, all_may_fail=True)
    row["diffTotal"] = sum(done.behind for done in progress.values())
    found = await _connections(servers, brokers, group)
    if found is not None:
        row["count"] = len(found.connection_set)
        row["version"] = version_name(min(one.version for one in found.connection_set))
        row["type"] = "PULL" if found.consume_type == "CONSUME_ACTIVELY" else "PUSH"
        row["model"] = found.message_model if row["type"] == "PUSH" else None
    return row
