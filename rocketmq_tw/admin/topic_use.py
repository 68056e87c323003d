"""updateTopicPerm, topicClusterList, allocateMQ: who may use a topic, and where it is."""

from __future__ import annotations

from typing import Any

import click

from rocketmq_tw.admin.brokers import known_route, owner_addresses
from rocketmq_tw.admin.each_server import ask_each, on_each
from rocketmq_tw.admin.options import broker_option, check_broker_or_cluster, cluster_option
from rocketmq_tw.admin.output import Column, Listing, Report, plain
from rocketmq_tw.admin.tool import Servers, Tool, fail
from rocketmq_tw.admin.topic import topic_option
from rocketmq_tw.client.routes import allocate_averagely, subscribe_queues
from rocketmq_tw.structs import msgspec
from rocketmq_tw.wire.bodies.topics import TopicConfig


@click.command("updateTopicPerm")
@broker_option
@cluster_option
@topic_option
@click.option(
    "-p",
    "--perm",
    type=click.IntRange(0, 7),
    required=True,
    help="6 read and write, 4 read, 2 write.",
)
@click.pass_obj
def update_permission(
    tool: Tool, broker: str | None, cluster: str | None, topic: str, perm: int
) -> None:
    """Changes whether a topic may be read and written; the rest of it stays."""
    check_broker_or_cluster(broker, cluster)

    async def work(servers: Servers) -> Report:
        admin = servers.admin
        # All topics: 4.9's brokers cannot be asked for one.
        answers = await ask_each(
            servers, await owner_addresses(servers, broker, cluster), admin.topics
        )
        present: dict[str, TopicConfig] = {
            answer.address: answer.value.topic_config_table[topic]
            for answer in answers
            if answer.value is not None and topic in answer.value.topic_config_table
        }
        if not present:
            await known_route(servers, topic)
            where = broker or f"a broker of {cluster}"
            fail(servers.conclusion(f"topic {topic} is not on {where}: see topicRoute"))

        def change(address: str) -> Any:
            config = msgspec.structs.replace(present[address], perm=perm)
            return admin.update_topic(address, config)

        done = await on_each(present, change)
        rows = [{"address": address, "permBefore": present[address].perm} for address in done]
        return Report(
            {"topic": topic, "perm": perm, "brokers": rows},
            lines=[
                f"topic {topic} on {row['address']}: perm {row['permBefore']} is now {perm}"
                for row in rows
            ],
        )

    tool.report(work)


@click.command("topicClusterList")
@topic_option
@click.pass_obj
def topic_clusters(tool: Tool, topic: str) -> None:
    """Lists the clusters that have a topic."""

    async def work(servers: Servers) -> Report:
        route = await known_route(servers, topic)
        clusters = sorted({data.cluster or "" for data in route.broker_datas})
        return Report({"topic": topic, "clusters": clusters}, lines=clusters)

    tool.report(work)


_SHARES = (Column("Member", "member"), Column("Broker", "brokerName"), Column("Queue", "queueId"))


@click.command("allocateMQ")
@topic_option
@click.option(
    "-i", "--ipList", "members", required=True, metavar="A,B,...", help="The members of a group."
)
@click.pass_obj
def allocate(tool: Tool, topic: str, members: str) -> None:
    """Shows which queues of a topic the members of a group would get."""
    names = [name.strip() for name in members.split(",") if name.strip()]
    if len(set(names)) < len(names) or not names:
        raise click.UsageError("-i: give each member once, with ',' between them")

    async def work(servers: Servers) -> Report:
        queues = subscribe_queues(topic, await known_route(servers, topic))
        shares = {name: allocate_averagely(queues, names, name) for name in names}
        rows = [
            {"member": name, "brokerName": queue.broker_name, "queueId": queue.queue_id}
            for name, share in shares.items()
            for queue in share
        ]
        idle = [name for name, share in shares.items() if not share]
        value = {"topic": topic, "members": msgspec.to_builtins(shares)}
        lines = ["", f"without a queue: {plain(', '.join(idle))}"] if idle else []
        return Report(value, [Listing(_SHARES, rows)], lines)

    tool.report(work)
