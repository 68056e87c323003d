"""setConsumeMode: whether a group pulls a topic or pops it."""

from __future__ import annotations

import click

from rocketmq_tw.admin.brokers import owner_addresses, topic_told
from rocketmq_tw.admin.each_server import on_each
from rocketmq_tw.admin.group import group_option
from rocketmq_tw.admin.known_names import check_has_group
from rocketmq_tw.admin.options import broker_option, check_broker_or_cluster, cluster_option
from rocketmq_tw.admin.output import Report
from rocketmq_tw.admin.tool import Servers, Tool


@click.command("setConsumeMode")
@broker_option
@cluster_option
@click.option("-t", "--topicName", "topic", required=True, metavar="NAME", help="The topic.")
@group_option
@click.option(
    "-m", "--mode", type=click.Choice(["PULL", "POP"], case_sensitive=False), required=True,
    help="How its members get messages.",
)  # fmt: skip
@click.option(
    "-q", "--popShareQueueNum", "shared", type=click.IntRange(min=0), default=0, show_default=True,
    help="With POP: so many more members share each member's queues.",
)  # fmt: skip
@click.pass_obj
def set_mode(
    tool: Tool,
    broker: str | None,
    cluster: str | None,
    topic: str,
    group: str,
    mode: str,
    shared: int,
) -> None:
    """Sets whether a group pulls a topic or pops it, for members that leave that to the broker."""
    check_broker_or_cluster(broker, cluster)

    async def work(servers: Servers) -> Report:
        async def set_at(address: str) -> None:
            await check_has_group(servers, address, group)
            setting = servers.admin.set_request_mode(
                address, topic, group, mode, shared_queues=shared
            )
            await topic_told(servers, topic, setting)

        done = await on_each(await owner_addresses(servers, broker, cluster), set_at)
        value = {"topic": topic, "group": group, "mode": mode, "popShareQueueNum": shared}
        lines = [f"{group} gets {topic} by {mode} on {address}" for address in done]
        return Report({**value, "brokers": done}, lines=lines)

    tool.report(work)
