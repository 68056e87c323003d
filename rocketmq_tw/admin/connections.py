"""producerConnection, consumerConnection, producer: which clients are connected."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

from rocketmq_tw.admin.brokers import addresses_of, brokers_of
from rocketmq_tw.admin.each_server import told_by_each
from rocketmq_tw.admin.group import named_group_option
from rocketmq_tw.admin.known_names import group_hint
from rocketmq_tw.admin.members import members_at
from rocketmq_tw.admin.options import broker_option, check_broker_address
from rocketmq_tw.admin.output import Column, Listing, Report, local_time
from rocketmq_tw.admin.tool import Servers, Tool, fail
from rocketmq_tw.admin.topic import topic_option
from rocketmq_tw.client.errors import BrokerError
from rocketmq_tw.message.names import retry_topic
from rocketmq_tw.wire.bodies.clients import Connection, ConsumerConnection, ProducerConnection
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.command import version_name

_CONNECTIONS = (
    Column("Client", "clientId"),
    Column("Address", "clientAddr"),
    Column("Language", "language"),
    Column("Version", "version"),
)
_SUBSCRIPTIONS = (
    Column("Topic", "topic"),
    Column("Expression", "expression"),
    Column("Type", "type"),
)
_PRODUCERS = (
    Column("Group", "group"),
    *_CONNECTIONS[:1],
    Column("Host", "remoteIP"),
    *_CONNECTIONS[2:],
    Column("Last seen", "lastUpdateTimestamp", local_time),
)


@click.command("producerConnection")
@click.option(
    "-g", "--producerGroup", "group", required=True, metavar="NAME", help="The producer group."
)
@topic_option
@click.pass_obj
def producer_connection(tool: Tool, group: str, topic: str) -> None:
    """Shows the producers of a group that are connected to the brokers of a topic."""

    async def work(servers: Servers) -> Report:
        async def connected(address: str) -> ProducerConnection | None:
            try:
                return await servers.admin.producer_connections(address, group)
            except BrokerError as error:
                # Brokers say no more than that there is none.
                if error.code != ResponseCode.SYSTEM_ERROR:
                    raise
                return None

        addresses = (await brokers_of(servers, topic)).values()
        found: dict[str, Connection] = {}
        for told in await told_by_each(servers, addresses, connected):
            found |= {each.client_id or "": each for each in told.connection_set}
        if not found:
            nobody = (
                f"no producer of group {group} is connected to the brokers of {topic}: producer -b"
                " shows all of a broker"
            )
            fail(servers.conclusion(nobody))
        rows = _rows(found.values())
        return Report({"group": group, "connections": rows}, [Listing(_CONNECTIONS, rows)])

    tool.report(work)


def _rows(connections: Iterable[Connection]) -> list[dict[str, Any]]:
    rows = [
        {
            "clientId": each.client_id,
            "clientAddr": each.client_addr,
            "language": each.language,
            "version": version_name(each.version),
        }
        for each in connections
    ]
    return sorted(rows, key=lambda row: str(row["clientId"]))


@click.command("consumerConnection")
@named_group_option("consumerGroup")
@broker_option
@click.pass_obj
def consumer_connection(tool: Tool, group: str, broker: str | None) -> None:
    """Shows the members of a group that are connected, and what they subscribe to."""
    if broker is not None:
        check_broker_address(broker)

    async def work(servers: Servers) -> Report:
        addresses = [] if broker is None else [broker]
        if broker is None:
            route = await servers.admin.topic_route(retry_topic(group))
            addresses = [] if route is None else addresses_of(route.broker_datas)
        state = ConsumerConnection()
        found: dict[str, Connection] = {}
        for _, state in await members_at(servers, addresses, group):
            found |= {each.client_id or "": each for each in state.connection_set}
        if not found:
            hint = await group_hint(servers, group)
            fail(servers.conclusion(f"no consumer of group {group} is connected: {hint}"))
        return _group_report(group, _rows(found.values()), state)

    tool.report(work)


def _group_report(group: str, rows: list[dict[str, Any]], state: ConsumerConnection) -> Report:
    subscriptions = [
        {"topic": each.topic, "expression": each.sub_string, "type": each.expression_type}
        for _, each in sorted(state.subscription_table.items())
    ]
    value = {
        "group": group,
        "connections": rows,
        "subscriptions": subscriptions,
        "consumeType": state.consume_type,
        "messageModel": state.message_model,
        "consumeFromWhere": state.consume_from_where,
    }
    kinds = (state.consume_type, state.message_model, state.consume_from_where)
    return Report(
        value,
        [Listing(_CONNECTIONS, rows), Listing(_SUBSCRIPTIONS, subscriptions)],
        ["", ", ".join(kind for kind in kinds if kind)],
    )


@click.command("producer")
@click.option("-b", "--broker", required=True, metavar="HOST:PORT", help="Of this broker.")
@click.pass_obj
def producers(tool: Tool, broker: str) -> None:
    """Shows all producers that are connected to a broker."""
    check_broker_address(broker)

    async def work(servers: Servers) -> Report:
        table = (await servers.admin.producers(broker)).data
        rows = [
            {
                "group": group,
                "clientId": each.client_id,
                "remoteIP": each.remote_ip,
                "language": each.language,
                "version": version_name(each.version),
                "lastUpdateTimestamp": each.last_update_timestamp,
            }
            for group, members in sorted(table.items())
            for each in members
        ]
        return Report(
            {"producers": rows},
            [Listing(_PRODUCERS, rows)],
            nothing=f"no producer is connected to {broker}",
        )

    tool.report(work)
