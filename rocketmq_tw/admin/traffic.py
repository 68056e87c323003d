"""statsAll: what comes into topics and goes out to groups."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

from rocketmq_tw.admin.brokers import known_route
from rocketmq_tw.admin.each_server import masters_of, told_by_each
from rocketmq_tw.admin.logic_offsets import group_progress, offsets_at
from rocketmq_tw.admin.output import Column, Listing, Report
from rocketmq_tw.admin.tool import Servers, Tool
from rocketmq_tw.client.errors import BrokerError
from rocketmq_tw.message.names import DLQ_PREFIX, RETRY_PREFIX, pair_key
from rocketmq_tw.wire.bodies.stats import BrokerStatsData
from rocketmq_tw.wire.codes import ResponseCode

#: The names of stock's statistics.
PUT, GET = "TOPIC_PUT_NUMS", "GROUP_GET_NUMS"

_TOPICS = (
    Column("Topic", "topic"),
    Column("Group", "group"),
    Column("Behind", "diffTotal"),
    Column("In TPS", "inTps"),
    Column("Out TPS", "outTps"),
    Column("In 24 h", "inDay"),
    Column("Out 24 h", "outDay"),
)


@click.command("statsAll")
@click.option("-a", "--activeTopic", "active", is_flag=True, help="Only topics with traffic.")
@click.option("-t", "--topic", "wanted", metavar="NAME", help="Only this topic.")
@click.pass_obj
def stats_all(tool: Tool, active: bool, wanted: str | None) -> None:
    """Shows for each topic and its groups how many messages come and go."""

    async def work(servers: Servers) -> Report:
        topics = sorted((await servers.admin.topic_list()).topic_list)
        if wanted is not None and wanted not in topics:
            await known_route(servers, wanted)
        shown = [
            topic
            for topic in topics
            if wanted in (None, topic) and not topic.startswith((RETRY_PREFIX, DLQ_PREFIX))
        ]
        rows: list[dict[str, Any]] = []
        for topic in servers.status.each(shown, "topic"):
            rows += await _rows(servers, topic)
        if active:
            rows = [row for row in rows if row["inDay"] or row["outDay"]]
        return Report({"topics": rows}, [Listing(_TOPICS, rows)])

    tool.report(work)


async def _rows(servers: Servers, topic: str) -> list[dict[str, Any]]:
    """Returns a row for each group of a topic, or one without a group; of brokers that do not
    answer nothing is counted."""
    route = await servers.admin.topic_route(topic)
    brokers = [] if route is None else route.broker_datas
    masters = list(masters_of(servers, brokers).values())
    in_tps, in_day = await counted(servers, masters, PUT, topic)
    told = await told_by_each(
        servers,
        masters,
        lambda address: servers.admin.groups_of_topic(address, topic),
        all_may_fail=True,
    )
    groups = {group for each in told for group in each.group_list}
    row: dict[str, Any] = {
        "topic": topic, "group": None, "diffTotal": 0, "inTps": in_tps, "outTps": None,
        "inDay": in_day, "outDay": None,
    }  # fmt: skip
    rows = []
    for group in sorted(groups):
        out_tps, out_day = await counted(servers, masters, GET, pair_key(topic, group))
        offsets = await offsets_at(servers, masters, group, topic, all_may_fail=True)
        progress = await group_progress(servers, group, offsets, {topic: route}, all_may_fail=True)
        behind = max(0, sum(done.behind for done in progress.values()))
        rows.append(
            row | {"group": group, "diffTotal": behind, "outTps": out_tps, "outDay": out_day}
        )
    return rows or [row]


async def counted(
    servers: Servers, addresses: Iterable[str], name: str, key: str
) -> tuple[float, int]:
    """Returns how many messages a second, and how many within a day, brokers counted together.
    Those that do not tell are `missing`."""

    async def told(address: str) -> BrokerStatsData | None:
        try:
            return await servers.admin.counted(address, name, key)
        except BrokerError as error:
            # What a broker has not counted yet it does not know.
            if error.code != ResponseCode.SYSTEM_ERROR:
                raise
            return None

    tps, day = 0.0, 0
    for found in await told_by_each(servers, addresses, told, all_may_fail=True):
        tps += found.stats_minute.tps if found.stats_minute else 0.0
        day += _within_a_day(found)
    return tps, day


def _within_a_day(found: BrokerStatsData) -> int:
    """Returns what the longest window that has anything counted: a young broker has short ones."""
    for item in (found.stats_day, found.stats_hour, found.stats_minute):
        if item is not None and item.sum:
            return item.sum
    return 0
