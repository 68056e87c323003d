"""consumerStatus, consumer, getConsumerStatus: what the members of a group say of themselves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import click

from rocketmq_tw.admin.brokers import addresses_of, brokers_of
from rocketmq_tw.admin.each_server import ask_each, told_by_each
from rocketmq_tw.admin.group import named_group_option
from rocketmq_tw.admin.known_names import group_hint
from rocketmq_tw.admin.options import broker_option, check_broker_address
from rocketmq_tw.admin.output import Column, Listing, Report
from rocketmq_tw.admin.tool import Servers, Tool, fail
from rocketmq_tw.admin.topic import topic_option
from rocketmq_tw.client.errors import BrokerError
from rocketmq_tw.message.names import retry_topic
from rocketmq_tw.wire.bodies.clients import (
    Connection,
    ConsumerConnection,
    ConsumerRunningInfo,
)
from rocketmq_tw.wire.bodies.queues import MessageQueue
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.command import version_name

_MEMBERS = (
    Column("Client", "clientId"),
    Column("Version", "version"),
    Column("Type", "type"),
    Column("Orderly", "orderly"),
    Column("Queues", "queueCount"),
    Column("Cached", "cached"),
)
_MEMBER_QUEUES = (
    Column("Client", "clientId"),
    Column("Topic", "topic"),
    Column("Broker", "brokerName"),
    Column("Queue", "queueId"),
    Column("Committed", "commitOffset"),
    Column("Cached", "cachedMsgCount"),
    Column("Locked", "locked"),
)


@click.command("consumerStatus")
@named_group_option("consumerGroup")
@click.option("-i", "--clientId", "client_id", metavar="ID", help="Only this member.")
@broker_option
@click.option("-s", "--jstack", is_flag=True, help="With its threads; in JSON.")
@click.pass_obj
def consumer_status(
    tool: Tool, group: str, client_id: str | None, broker: str | None, jstack: bool
) -> None:
    """Shows what the members of a group say of themselves."""
    if broker is not None:
        check_broker_address(broker)

    async def work(servers: Servers) -> Report:
        return await _status(servers, group, client_id, broker, jstack)

    tool.report(work)


@click.command("consumer")
@named_group_option("consumerGroup")
@click.option("-s", "--jstack", is_flag=True, help="With their threads; in JSON.")
@click.pass_obj
def consumers(tool: Tool, group: str, jstack: bool) -> None:
    """Shows what the members of a group say of themselves, and whether they subscribe alike."""
    tool.report(lambda servers: _status(servers, group, None, None, jstack))


async def _status(
    servers: Servers, group: str, client_id: str | None, broker: str | None, jstack: bool
) -> Report:
    known = {
        connection.client_id or "": (address, connection)
        for address, connection in await members_of(servers, group, broker)
        if client_id in (None, connection.client_id)
    }
    if not known:
        unknown = f"the group {group} has no member {client_id}"
        fail(servers.conclusion(f"{unknown}: consumerStatus without -i shows all"))
    answers = await ask_each(
        servers,
        servers.status.each(known, "member"),
        lambda member: servers.admin.consumer_running_info(
            known[member][0], group, member, jstack=jstack
        ),
    )
    members = [
        _member(known[answer.address][1], answer.value)
        for answer in answers
        if answer.value is not None
    ]
    queues = [
        {"clientId": member["clientId"], **queue}
        for member in members
        for queue in member["queues"]
    ]
    listings = [Listing(_MEMBERS, members), Listing(_MEMBER_QUEUES, queues)]
    alike = all(member["subscriptions"] == members[0]["subscriptions"] for member in members)
    lines = [] if alike else ["", f"WARNING: the members of {group} do not subscribe alike"]
    return Report({"group": group, "members": members, "sameSubscriptions": alike}, listings, lines)


_OFFSETS = (
    Column("Client", "clientId"),
    Column("Broker", "brokerName"),
    Column("Queue", "queueId"),
    Column("Offset", "offset"),
)


@click.command("getConsumerStatus")
@named_group_option("group")
@topic_option
@click.option("-i", "--originClientId", "client_id", metavar="ID", help="Only this member.")
@click.pass_obj
def member_offsets(tool: Tool, group: str, topic: str, client_id: str | None) -> None:
    """Shows which offsets the members of a group have in mind for the queues of a topic."""

    async def work(servers: Servers) -> Report:
        told: dict[str, dict[MessageQueue, int]] = {}
        reasons: list[str] = []

        async def offsets_at(address: str) -> Mapping[str, Mapping[MessageQueue, int]]:
            try:
                return await servers.admin.member_offsets(address, group, topic, client_id)
            except BrokerError as error:
                # The broker that no member is connected to says so with this code.
                if error.code != ResponseCode.SYSTEM_ERROR:
                    raise
                reasons.append(error.remark)
                return {}

        addresses = (await brokers_of(servers, topic)).values()
        for found in await told_by_each(servers, addresses, offsets_at):
            for name, offsets in found.items():
                told.setdefault(name, {}).update(offsets)
        if not told:
            # Ends the command where the group has no members at all.
            await members_of(servers, group, None)
            nothing = "; ".join(reasons) or f"no member of {group} tells its offsets in {topic}"
            fail(servers.conclusion(nothing))
        rows = [
            {
                "clientId": name,
                "brokerName": queue.broker_name,
                "queueId": queue.queue_id,
                "offset": offset,
            }
            for name, offsets in sorted(told.items())
            for queue, offset in sorted(offsets.items())
        ]
        return Report({"group": group, "topic": topic, "queues": rows}, [Listing(_OFFSETS, rows)])

    tool.report(work)


async def members_at(
    servers: Servers, addresses: Iterable[str], group: str, *, all_may_fail: bool = False
) -> list[tuple[str, ConsumerConnection]]:
    """Returns the brokers that members of the group are connected to, with these; asks as
    `ask_each` does."""

    async def connected(address: str) -> ConsumerConnection | None:
        try:
            return await servers.admin.consumer_connections(address, group)
        except BrokerError as error:
            if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
                raise
            return None

    answers = await ask_each(servers, addresses, connected, all_may_fail=all_may_fail)
    return [(answer.address, answer.value) for answer in answers if answer.value is not None]


async def members_of(
    servers: Servers, group: str, broker: str | None
) -> list[tuple[str, Connection]]:
    """Returns each connected member with a broker that knows it."""
    brokers = [] if broker is None else [broker]
    if broker is None:
        route = await servers.admin.topic_route(retry_topic(group))
        brokers = addresses_of(route.broker_datas) if route is not None else []
    found: dict[str, tuple[str, Connection]] = {}
    for address, connected in await members_at(servers, brokers, group):
        for connection in connected.connection_set:
            found.setdefault(connection.client_id or "", (address, connection))
    if not found:
        hint = await group_hint(servers, group)
        fail(servers.conclusion(f"no consumer of group {group} is connected: {hint}"))
    return [found[client_id] for client_id in sorted(found)]


def _member(connection: Connection, info: ConsumerRunningInfo) -> dict[str, Any]:
    queues = [
        {
            "topic": queue.topic,
            "brokerName": queue.broker_name,
            "queueId": queue.queue_id,
            "commitOffset": state.commit_offset,
            "cachedMsgCount": state.cached_msg_count,
            "locked": state.locked,
        }
        for queue, state in sorted(info.mq_table.items())
    ]
    properties = info.properties
    return {
        "clientId": connection.client_id,
        "version": version_name(connection.version),
        "type": "PULL" if properties.get("PROP_CONSUME_TYPE") == "CONSUME_ACTIVELY" else "PUSH",
        "orderly": properties.get("PROP_CONSUMEORDERLY") == "true",
        "queueCount": len(queues),
        "cached": sum(queue["cachedMsgCount"] for queue in queues),
        "queues": queues,
        "subscriptions": {each.topic: each.sub_string for each in info.subscription_set},
        "properties": properties,
        "jstack": info.jstack,
    }
