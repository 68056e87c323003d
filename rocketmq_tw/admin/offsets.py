"""resetOffsetByTime, resetOffsetByTimeOld, skipAccumulatedMessage, cloneGroupOffset: where a group
goes on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import attrs
import click

from rocketmq_tw.admin.brokers import brokers_of, topic_told
from rocketmq_tw.admin.each_server import ask_each, on_each
from rocketmq_tw.admin.group import named_group_option
from rocketmq_tw.admin.known_names import group_hint, no_group_at
from rocketmq_tw.admin.logic_offsets import logic_queues
from rocketmq_tw.admin.message_reading import END, Moment
from rocketmq_tw.admin.options import (
    SWITCH,
    ask_first,
    check_broker_address,
    of_cluster_option,
    yes_option,
)
from rocketmq_tw.admin.output import Column, Listing, Report, local_time
from rocketmq_tw.admin.tool import Servers, Tool, fail
from rocketmq_tw.admin.topic import topic_option
from rocketmq_tw.client.errors import BrokerError
from rocketmq_tw.wire.bodies.queues import MessageQueue
from rocketmq_tw.wire.codes import ResponseCode

_QUEUES = (
    Column("Broker", "brokerName"),
    Column("Queue", "queueId"),
    Column("Offset", "offset"),
)

_time_option = click.option(
    "-s", "--timestamp", "moment", required=True, type=Moment(takes_end=True),
    help=f"Messages stored from then on come again; now, or {END} for each queue's end.",
)  # fmt: skip
_force_option = click.option(
    "-f", "--force", **SWITCH, default=True, show_default=True,
    help="Also forward; false: only queues that would go back.",
)  # fmt: skip


@click.command("resetOffsetByTime")
@named_group_option("group")
@topic_option
@_time_option
@_force_option
@of_cluster_option
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
    if broker is not None and cluster is not None:
        raise click.UsageError("give one of -b, a broker's address, and -c, a cluster's name")
    if broker is not None:
        check_broker_address(broker)
    reset = Reset(group, topic, moment, force, queue_id, offset)
    ask_first(yes, f"Let group {group} go on in {topic} at {reset.where}?")

    async def work(servers: Servers) -> Report:
        if broker is not None:
            return await reset.at(servers, [broker])
        return await reset.at_all(servers, cluster)

    tool.report(work)


@click.command("resetOffsetByTimeOld")
@named_group_option("group")
@topic_option
@_time_option
@_force_option
@of_cluster_option
@yes_option
@click.pass_obj
def reset_offset_old(
    tool: Tool, group: str, topic: str, moment: int, force: bool, cluster: str | None, yes: bool
) -> None:
    """Does as resetOffsetByTime, with the options of old."""
    reset = Reset(group, topic, moment, force)
    ask_first(yes, f"Let group {group} go on in {topic} at {reset.where}?")
    _reset_in_all(tool, reset, cluster)


@click.command("skipAccumulatedMessage")
@named_group_option("group")
@topic_option
@_force_option
@of_cluster_option
@yes_option
@click.pass_obj
def skip_accumulated(
    tool: Tool, group: str, topic: str, force: bool, cluster: str | None, yes: bool
) -> None:
    """Lets a group pass over all that is there now."""
    ask_first(yes, f"Let group {group} pass over all messages of {topic} that are there now?")
    _reset_in_all(tool, Reset(group, topic, END, force), cluster)


def _reset_in_all(tool: Tool, reset: Reset, cluster: str | None) -> None:
    async def work(servers: Servers) -> Report:
        return await reset.at_all(servers, cluster)

    tool.report(work)


@attrs.frozen
class Reset:
    """Where a group is to go on: at a time, or at an offset of one queue."""

    group: str
    topic: str
    moment: int
    is_forced: bool
    queue_id: int | None = None
    offset: int | None = None

    @property
    def where(self) -> str:
        """What it is called in a question."""
        if self.offset is not None:
            return f"offset {self.offset} of queue {self.queue_id}"
        if self.moment == END:
            return "the end of each queue" if self.queue_id is None else "the end of the queue"
        return local_time(self.moment)

    async def at_all(self, servers: Servers, cluster: str | None) -> Report:
        """Resets the group as `at` does, at all brokers of the topic, or of a cluster. Those that
        queues of a static topic have left come first: once the leader sends a consumer there, they
        are to know where it goes on."""
        brokers = await brokers_of(servers, self.topic, cluster)
        route = await servers.admin.topic_route(self.topic)
        queues = await logic_queues(servers, self.topic, route, brokers.values(), all_may_fail=True)
        left = Counter(item.bname for items in queues.values() for item in items[:-1])
        names = sorted(brokers, key=lambda name: -left[name])
        return await self.at(servers, [brokers[name] for name in names])

    async def at(self, servers: Servers, addresses: Iterable[str]) -> Report:
        """Resets the group at one broker after the other; ends the command behind the last where
        one is down or refuses, with the ones that are done."""
        offsets: dict[MessageQueue, int] = {}

        async def reset(address: str) -> None:
            try:
                offsets.update(await self._at(servers, address))
            except BrokerError as error:
                if error.code != ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                    raise
                raise await no_group_at(servers, address, self.group) from error

        await on_each(addresses, reset)
        return _report(self.group, self.topic, offsets)

    async def _at(self, servers: Servers, address: str) -> dict[MessageQueue, int]:
        """Returns the new offsets at a broker."""
        try:
            resetting = servers.admin.reset_offsets(
                address,
                self.group,
                self.topic,
                self.moment,
                force=self.is_forced,
                queue_id=self.queue_id,
                offset=self.offset,
            )
            return await topic_told(servers, self.topic, resetting)
        except BrokerError as error:
            # A broker that leaves it to the consumers, as 4.9's, and has none connected.
            if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
                raise
        groups = (await servers.admin.groups(address)).subscription_group_table
        if self.group not in groups:
            raise BrokerError(address, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, None)
        return await self._commit(servers, address)

    async def _commit(self, servers: Servers, address: str) -> dict[MessageQueue, int]:
        """Commits the offsets as a consumer would."""
        admin = servers.admin
        moved = {}
        stats = await admin.consume_stats(address, self.group, self.topic)
        for queue, progress in servers.status.each(sorted(stats.offset_table.items()), "queue"):
            if self.queue_id not in (None, queue.queue_id):
                continue
            wanted = self.offset
            if wanted is None and self.moment == END:
                wanted = progress.broker_offset
            elif wanted is None:
                wanted = await admin.search_offset(address, self.topic, queue.queue_id, self.moment)
            if self.is_forced or wanted <= progress.consumer_offset:
                await admin.commit_offset(address, self.group, self.topic, queue.queue_id, wanted)
                moved[queue] = wanted
        return moved


def _report(group: str, topic: str, offsets: Mapping[MessageQueue, int]) -> Report:
    rows = [
        {"brokerName": queue.broker_name, "queueId": queue.queue_id, "offset": offset}
        for queue, offset in sorted(offsets.items())
    ]
    value = {"group": group, "topic": topic, "queues": rows}
    return Report(value, [Listing(_QUEUES, rows)], nothing="no queue of the group is moved")


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
        consumed = await ask_each(
            servers,
            (await brokers_of(servers, topic)).values(),
            lambda address: servers.admin.groups_of_topic(address, topic),
        )
        # Brokers copy nothing then, and do not say so.
        if not any(each.value is not None and source in each.value.group_list for each in consumed):
            hint = await group_hint(servers, source)
            nothing = f"group {source} has consumed nothing of topic {topic}: {hint}"
            fail(servers.conclusion(nothing))
        living = [each.address for each in consumed if each.value is not None]
        # Stock's brokers copy to a group that is not there.
        known = await ask_each(servers, living, servers.admin.groups)
        for each in known:
            if each.value is not None and target not in each.value.subscription_group_table:
                raise await no_group_at(servers, each.address, target)
        addresses = [each.address for each in known if each.value is not None]
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
