"""resetOffsetByTime, resetOffsetByTimeOld, skipAccumulatedMessage, cloneGroupOffset: where a group
goes on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import rich_click as click

from rocketmq_tw.admin.brokers import brokers_of, on_each
from rocketmq_tw.admin.group import named_group_option
from rocketmq_tw.admin.known_names import group_hint, is_of_users
from rocketmq_tw.admin.message_reading import Moment
from rocketmq_tw.admin.near_names import did_you_mean
from rocketmq_tw.admin.options import SWITCH, ask_first, check_broker, yes_option
from rocketmq_tw.admin.output import Column, Listing, Report, local_time
from rocketmq_tw.admin.tool import Servers, Tool, fail
from rocketmq_tw.admin.topic import topic_option
from rocketmq_tw.client.errors import BrokerError
from rocketmq_tw.wire.bodies.queues import MessageQueue
from rocketmq_tw.wire.codes import ResponseCode

#: The time that stands for the end of each queue.
END = -1

_QUEUES = (
    Column("Broker", "brokerName"),
    Column("Queue", "queueId"),
    Column("Offset", "offset"),
)

_time_option = click.option(
    "-s", "--timestamp", "moment", required=True, type=Moment(takes_now=True),
    help="Messages stored from then on come again.",
)  # fmt: skip
_force_option = click.option(
    "-f", "--force", **SWITCH, default=True, show_default=True,
    help="Also forward; false: only queues that would go back.",
)  # fmt: skip
_cluster_option = click.option(
    "-c", "--cluster", metavar="NAME",
    help="A cluster, or a light topic's parent, whose route to take where the topic has none.",
)  # fmt: skip


@click.command("resetOffsetByTime")
@named_group_option("group")
@topic_option
@_time_option
@_force_option
@_cluster_option
@click.option("-b", "--broker", metavar="HOST:PORT", help="Only this broker.")
@click.option(
    "-q", "--queue", "queue_id", type=click.IntRange(min=0), help="Only this queue; wants -b."
)
@click.option(
    "-o", "--offset", type=click.IntRange(min=0),
    help="To this offset, whatever the time is; wants -q.",
)  # fmt: skip
@yes_option
@click.pass_obj
def reset_offset(
    tool: Tool,
    group: str,
    topic: str,
    moment: int,
    force: bool,
    cluster: str | None,
    broker: str | None,
    queue_id: int | None,
    offset: int | None,
    yes: bool,
) -> None:
    """Lets a group consume again what was stored since a time, or go on there."""
    if queue_id is not None and broker is None:
        raise click.UsageError("-q is about one broker: name that with -b")
    if offset is not None and queue_id is None:
        raise click.UsageError("-o is about one queue: name that with -q")
    if broker is not None:
        check_broker(broker)
    where = local_time(moment) if offset is None else f"offset {offset} of queue {queue_id}"
    ask_first(yes, f"Let group {group} go on in {topic} at {where}?")

    async def work(servers: Servers) -> Report:
        targets = (
            list((await brokers_of(servers, topic, cluster)).values())
            if broker is None
            else [broker]
        )
        offsets: dict[MessageQueue, int] = {}
        for address in targets:
            offsets |= await _reset(servers, address, group, topic, moment, force, queue_id, offset)
        return _report(group, topic, offsets)

    tool.report(work)


@click.command("resetOffsetByTimeOld")
@named_group_option("group")
@topic_option
@_time_option
@_force_option
@_cluster_option
@yes_option
@click.pass_obj
def reset_offset_old(
    tool: Tool, group: str, topic: str, moment: int, force: bool, cluster: str | None, yes: bool
) -> None:
    """Does as resetOffsetByTime, with the options of old."""
    ask_first(yes, f"Let group {group} go on in {topic} at {local_time(moment)}?")
    _reset_all(tool, group, topic, moment, force, cluster)


@click.command("skipAccumulatedMessage")
@named_group_option("group")
@topic_option
@_force_option
@_cluster_option
@yes_option
@click.pass_obj
def skip_accumulated(
    tool: Tool, group: str, topic: str, force: bool, cluster: str | None, yes: bool
) -> None:
    """Lets a group pass over all that is there now."""
    ask_first(yes, f"Let group {group} pass over all messages of {topic} that are there now?")
    _reset_all(tool, group, topic, END, force, cluster)


def _reset_all(
    tool: Tool, group: str, topic: str, moment: int, force: bool, cluster: str | None
) -> None:
    async def work(servers: Servers) -> Report:
        offsets: dict[MessageQueue, int] = {}
        for address in (await brokers_of(servers, topic, cluster)).values():
            offsets |= await _reset(servers, address, group, topic, moment, force, None, None)
        return _report(group, topic, offsets)

    tool.report(work)


async def _reset(
    servers: Servers,
    address: str,
    group: str,
    topic: str,
    moment: int,
    force: bool,
    queue_id: int | None,
    offset: int | None,
) -> dict[MessageQueue, int]:
    """Resets the group in the queues of one broker; returns the new offsets."""
    admin = servers.admin
    try:
        return await admin.reset_offsets(
            address, group, topic, moment, force=force, queue_id=queue_id, offset=offset
        )
    except BrokerError as error:
        # A broker that leaves it to the consumers, as 4.9's, and has none connected.
        if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
            raise
    moved = {}
    stats = await admin.consume_stats(address, group, topic)
    for queue, progress in sorted(stats.offset_table.items()):
        if queue_id not in (None, queue.queue_id):
            continue
        wanted = offset
        if wanted is None and moment == END:
            wanted = progress.broker_offset
        elif wanted is None:
            wanted = await admin.search_offset(address, topic, queue.queue_id, moment)
        if force or wanted <= progress.consumer_offset:
            await admin.commit_offset(address, group, topic, queue.queue_id, wanted)
            moved[queue] = wanted
    return moved


def _report(group: str, topic: str, offsets: Mapping[MessageQueue, int]) -> Report:
    rows = [
        {"brokerName": queue.broker_name, "queueId": queue.queue_id, "offset": offset}
        for queue, offset in sorted(offsets.items())
    ]
    return Report({"group": group, "topic": topic, "queues": rows}, [Listing(_QUEUES, rows)])


@click.command("cloneGroupOffset")
@click.option("-s", "--srcGroup", "source", required=True, metavar="NAME", help="From this group.")
@click.option("-d", "--destGroup", "target", required=True, metavar="NAME", help="To this group.")
@topic_option
@click.option(
    "-o", "--offline", **SWITCH, default=False, show_default=True,
    help="Also what the members of the first group do not subscribe to any more.",
)  # fmt: skip
@yes_option
@click.pass_obj
def clone_offsets(
    tool: Tool, source: str, target: str, topic: str, offline: bool, yes: bool
) -> None:
    """Lets a group go on in a topic where another one is."""
    ask_first(yes, f"Let group {target} go on in {topic} where {source} is, not where it is?")

    async def work(servers: Servers) -> Report:
        addresses = (await brokers_of(servers, topic)).values()
        # Brokers copy nothing then, and do not say so.
        for address in addresses:
            if source in (await servers.admin.groups_of_topic(address, topic)).group_list:
                break
        else:
            hint = await group_hint(servers, source)
            fail(f"group {source} has consumed nothing of topic {topic}: {hint}")
        # Stock's brokers copy to a group that is not there.
        for address in addresses:
            groups = (await servers.admin.groups(address)).subscription_group_table
            if target not in groups:
                meant = did_you_mean(target, filter(is_of_users, groups))
                create = f"rmqadmin updateSubGroup -b {address} -g {target} creates it"
                fail(f"broker {address} has no group {target}: {meant or create}")
        done = await on_each(
            addresses,
            lambda address: servers.admin.clone_offsets(
                address, source, target, topic, offline=offline
            ),
        )
        value: dict[str, Any] = {"srcGroup": source, "destGroup": target, "topic": topic}
        lines = [f"{target} goes on in {topic} where {source} is, on {address}" for address in done]
        return Report({**value, "brokers": done}, lines=lines)

    tool.report(work)
