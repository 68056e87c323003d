"""updateStaticTopic and remappingStaticTopic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import Any, BinaryIO

import click

from rocketmq_tw.admin.brokers import in_cluster
from rocketmq_tw.admin.each_server import no_master, unfinished
from rocketmq_tw.admin.known_names import topic_hint
from rocketmq_tw.admin.output import Column, Listing, Report, Row
from rocketmq_tw.admin.tool import Servers, Tool, explain, fail
from rocketmq_tw.admin.topic import topic_option
from rocketmq_tw.client.errors import BrokerError, ClientError
from rocketmq_tw.client.static_topics import (
    Hosted,
    Move,
    decide_beginnings,
    nothing_hosted,
    plan_move,
    plan_queues,
    queues_of,
)
from rocketmq_tw.message.logic_queues import leader_of, led_queues
from rocketmq_tw.message.names import check_topic
from rocketmq_tw.net.errors import RemotingError
from rocketmq_tw.runtime.clock import wall_clock_ms
from rocketmq_tw.wire.bodies.base import decode_body
from rocketmq_tw.wire.bodies.queues import MessageQueue, TopicOffset
from rocketmq_tw.wire.bodies.route import MASTER_ID, ClusterInfo
from rocketmq_tw.wire.bodies.topics import (
    TopicConfigAndQueueMapping,
    TopicRemappingDetailWrapper,
)
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError, WireError

#: How a request to a broker ends that is not answered, or with an error.
_FAILURES = (ClientError, RemotingError, WireError)

_brokers_option = click.option(
    "-b", "--brokers", metavar="NAME,NAME", help="The brokers, by their names."
)
_clusters_option = click.option(
    "-c", "--clusters", metavar="NAME,NAME", help="All brokers of these clusters."
)
_file_option = click.option(
    "-mf",
    "--mapFile",
    "map_file",
    type=click.File("rb"),
    help="Carry out what is in this file, as mqadmin writes one, instead of a new plan.",
)
_force_option = click.option(
    "-fr",
    "--forceReplace",
    "force",
    type=bool,
    default=False,
    metavar="TRUE|FALSE",
    help="Whether brokers take what contradicts what they have. remappingStaticTopic then makes"
    " queues that no broker has, where a broker has not heard of the topic: only if no broker that"
    " is away has them.",
)


@click.command("updateStaticTopic")
@_brokers_option
@_clusters_option
@topic_option
@click.option(
    "-qn", "--totalQueueNum", "total", required=True, type=click.IntRange(min=1),
    help="Queues on all brokers together; never fewer than before.",
)  # fmt: skip
@_file_option
@_force_option
@click.pass_obj
def update_static_topic(
    tool: Tool,
    brokers: str | None,
    clusters: str | None,
    topic: str,
    total: int,
    map_file: BinaryIO | None,
    force: bool,
) -> None:
    """Makes a static topic, or gives one more queues."""
    _check(topic, brokers, clusters)
    written = _read(map_file, topic)

    async def work(servers: Servers) -> Report:
        world = _World(servers, topic, await servers.admin.cluster_info(), force=force)
        targets = world.named(brokers, clusters)
        hosted = await world.hosted(targets)
        try:
            if written is not None:
                queues_of(written.hosted)
                plan = written.hosted
            else:
                plan = plan_queues(topic, total, targets, hosted, wall_clock_ms())
        except ValueError as error:
            fail(f"the static topic {topic} stays as it is: {error}")
        world.leave_out_former(plan, set())
        world.complete(plan)
        told: list[str] = []
        try:
            await world.tell(plan, plan, told)
        except _FAILURES as error:
            await world.fail_if_overtaken(error, hosted, plan)
            way_on = f"; to finish it: {_finishing(topic, plan)}" if told else ""
            fail(unfinished(error, told) + way_on, error)
        return _report(topic, plan)

    tool.report(work)


@click.command("remappingStaticTopic")
@_brokers_option
@_clusters_option
@topic_option
@_file_option
@_force_option
@click.pass_obj
def remapping_static_topic(
    tool: Tool,
    brokers: str | None,
    clusters: str | None,
    topic: str,
    map_file: BinaryIO | None,
    force: bool,
) -> None:
    """Moves the queues of a static topic to some brokers; they keep their ids and offsets."""
    _check(topic, brokers, clusters)
    written = _read(map_file, topic)

    async def work(servers: Servers) -> Report:
        world = _World(servers, topic, await servers.admin.cluster_info(), force=force)
        targets = world.named(brokers, clusters)
        hosted = await world.hosted(targets)
        if not hosted:
            hint = "updateStaticTopic makes one"
            if await servers.admin.topic_route(topic) is None:
                hint = await topic_hint(servers, topic, hint)
            fail(servers.conclusion(f"there is no static topic {topic}: {hint}"))
        try:
            move = written or plan_move(
                topic, targets, hosted, wall_clock_ms(), world.unaware, make_anew=force
            )
            queues_of(move.hosted)
        except ValueError as error:
            fail(f"the static topic {topic} stays where it is: {error}")
        world.leave_out_former(move.hosted, {*move.into, *move.out_of})
        world.complete(move.hosted)
        rest = [name for name in move.hosted if name not in {*move.into, *move.out_of}]
        told: list[str] = []
        try:
            # New leaders take messages before the former ones refuse them; only then it is known
            # where the queues begin.
            await world.tell(move.hosted, [*move.into, *move.out_of], told)
            decide_beginnings(move, await world.offsets(move.out_of))
            await world.tell(move.hosted, [*move.into, *move.out_of, *rest], told)
        except (*_FAILURES, ValueError) as error:
            reason = explain(error)
            await world.fail_if_overtaken(error, hosted, move.hosted)
            half_done = f"the move of {topic} is half done: {reason}; move it again"
            fail(half_done if told else reason, error)
        return _report(topic, move.hosted)

    tool.report(work)


class _World:
    """The brokers of the cluster, and their mappings of the topic."""

    def __init__(self, servers: Servers, topic: str, info: ClusterInfo, *, force: bool) -> None:
        self._servers = servers
        self._admin = servers.admin
        self._topic = topic
        self._info = info
        self._force = force
        #: Masters that have not heard of the topic, of the clusters that have it or are to.
        self.unaware: list[str] = []
        self._masters = {
            name: data.broker_addrs[MASTER_ID]
            for name, data in info.broker_addr_table.items()
            if MASTER_ID in data.broker_addrs
        }

    def named(self, brokers: str | None, clusters: str | None) -> list[str]:
        """Returns the broker names that the options mean; ends the command where one is unknown."""
        names = [name.strip() for name in (brokers or "").split(",") if name.strip()]
        for cluster in (clusters or "").split(","):
            if cluster.strip():
                names += [data.broker_name for data in in_cluster(self._info, cluster.strip())]
        for name in names:
            self._address(name)
        return names

    async def hosted(self, targets: Iterable[str]) -> Hosted:
        """Returns the mapping of each broker that has the topic, and notes who is `unaware` of it.
        One that does not answer, or has no master, is `missing` where it can have nothing of it: no
        target is of its cluster, and no name server knows the topic in that. Raises why another one
        does not answer."""
        found: Hosted = {}
        without: set[str] = set()
        silent: dict[str, Exception] = {
            name: no_master(name)
            for name in self._info.broker_addr_table
            if name not in self._masters
        }
        for name, address in self._masters.items():
            try:
                found[name] = await self._admin.static_topic(address, self._topic)
            except BrokerError as error:
                if error.code == ResponseCode.TOPIC_NOT_EXIST:
                    without.add(name)
                else:
                    silent[name] = error
            except _FAILURES as error:
                silent[name] = error
        self.unaware = sorted(without.intersection(self._of_clusters({*targets, *found})))
        if silent:
            route = await self._admin.topic_route(self._topic)
            routed = [] if route is None else [data.broker_name for data in route.broker_datas]
            concerned = self._of_clusters({*targets, *found, *routed})
            for name, failure in silent.items():
                if name in concerned:
                    raise failure
                self._servers.miss(self._masters.get(name, name), failure)
        return found

    def leave_out_former(self, plan: Hosted, needed: Set[str]) -> None:
        """Drops brokers that are not there and only had queues of the topic once, which are
        `missing` then. Ends the command where one is `needed`, or leads queues."""
        for name in sorted(plan.keys() - self._masters.keys()):
            detail = plan[name].mapping_detail
            if name in needed or (detail is not None and led_queues(detail)):
                fail(f"the static topic {self._topic} stays as it is: {self._unknown(name)}")
            del plan[name]
            self._servers.miss(name, ClientError(self._unknown(name)))

    def complete(self, plan: Hosted) -> None:
        """Brokers of the same clusters without queues are told of the topic too: a client may ask
        any of them."""
        first = next(iter(plan.values())).mapping_detail
        assert first is not None
        for name in self._of_clusters(plan.keys()):
            if name not in plan and name in self._masters:
                plan[name] = nothing_hosted(self._topic, name, first.total_queues, first.epoch)

    def _of_clusters(self, names: Set[str]) -> list[str]:
        """Returns all brokers of the clusters that have some of these."""
        return [
            name
            for members in self._info.cluster_addr_table.values()
            if not names.isdisjoint(members)
            for name in members
        ]

    async def tell(self, plan: Hosted, names: Iterable[str], told: list[str]) -> None:
        """Tells one broker after the other, and adds them to `told`; raises why the first one
        refuses or does not answer."""
        for name in names:
            await self._admin.update_static_topic(
                self._address(name), plan[name], force=self._force
            )
            told.append(name)

    async def fail_if_overtaken(self, error: Exception, before: Hosted, plan: Hosted) -> None:
        """Ends the command where a broker refuses the plan since somebody else has changed the
        topic after it was looked at: a broker has a mapping that is neither from then nor of the
        plan."""
        if not isinstance(error, BrokerError):
            return
        for name in plan:
            expected = {_epoch(before.get(name)), _epoch(plan[name])}
            try:
                found = await self._admin.static_topic(self._address(name), self._topic)
            except _FAILURES:
                continue
            if _epoch(found) not in expected:
                fail(
                    f"another change of the static topic {self._topic} came between, call again:"
                    f" {explain(error)}",
                    error,
                )

    async def offsets(self, names: Iterable[str]) -> Mapping[MessageQueue, TopicOffset]:
        """Returns the offsets of physical queues on some brokers."""
        found: dict[MessageQueue, TopicOffset] = {}
        for name in names:
            stats = await self._admin.topic_stats(self._address(name), self._topic)
            found.update(stats.offset_table)
        return found

    def _address(self, name: str) -> str:
        address = self._masters.get(name)
        if address is None:
            fail(self._unknown(name))
        return address

    def _unknown(self, name: str) -> str:
        known = ", ".join(sorted(self._masters)) or "none"
        return f"there is no broker {name} with a master; there are: {known}"


def _epoch(hosted: TopicConfigAndQueueMapping | None) -> int | None:
    detail = None if hosted is None else hosted.mapping_detail
    return None if detail is None else detail.epoch


def _finishing(topic: str, plan: Hosted) -> str:
    """Returns the command that goes on with a change which ended half-way."""
    leaders = {leader_of(items) or "" for items in queues_of(plan).values()}
    return f"rmqadmin remappingStaticTopic -t {topic} -b {','.join(sorted(leaders))}"


def _check(topic: str, brokers: str | None, clusters: str | None) -> None:
    if (brokers is None) == (clusters is None):
        raise click.UsageError("give either --brokers or --clusters")
    try:
        check_topic(topic)
    except RequestError as error:
        raise click.UsageError(error.remark) from error


def _read(map_file: BinaryIO | None, topic: str) -> Move | None:
    if map_file is None:
        return None
    try:
        read = decode_body(TopicRemappingDetailWrapper, map_file.read())
    except WireError as error:
        raise click.UsageError(f"the file {map_file.name}: {error}") from error
    if read.topic != topic or not read.broker_config_map:
        raise click.UsageError(f"the file {map_file.name} is not about the topic {topic}")
    return Move(read.broker_config_map, read.broker_to_map_in, read.broker_to_map_out)


_QUEUES = (
    Column("Queue", "queueId"),
    Column("Broker", "brokerName"),
    Column("Its queue", "physicalQueueId"),
    Column("From offset", "logicOffset"),
    Column("Generation", "gen"),
)


def _report(topic: str, plan: Hosted) -> Report:
    rows: list[Row] = [
        {
            "queueId": logic_id,
            "brokerName": items[-1].bname,
            "physicalQueueId": items[-1].queue_id,
            "logicOffset": items[-1].logic_offset,
            "gen": items[-1].gen,
        }
        for logic_id, items in sorted(queues_of(plan).items())
    ]
    detail = next(iter(plan.values())).mapping_detail
    data: dict[str, Any] = {"topic": topic, "epoch": detail.epoch if detail else 0, "queues": rows}
    return Report(data, [Listing(_QUEUES, rows)])
