"""Name servers: their values and configuration, write permissions, orders of topics."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import click
from twisted.internet.defer import Deferred

from rocketmq_tw.admin.brokers import check_broker_name
from rocketmq_tw.admin.each_server import on_each
from rocketmq_tw.admin.options import ask_first, yes_option
from rocketmq_tw.admin.output import Report, number_of
from rocketmq_tw.admin.server_configs import (
    changed_configs_report,
    configs_report,
    report_with_remarks,
)
from rocketmq_tw.admin.tool import Servers, Tool, fail
from rocketmq_tw.admin.topic import ORDER_NAMESPACE, topic_option
from rocketmq_tw.client.errors import BrokerError, ClientError
from rocketmq_tw.net.errors import RemotingError
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import WireError

if TYPE_CHECKING:
    from rocketmq_tw.client.admin.name_servers import PermissionChange

_namespace_option = click.option(
    "-s", "--namespace", required=True, metavar="NAME", help="The namespace of the key."
)
_key_option = click.option("-k", "--key", required=True, metavar="KEY", help="The key.")
_broker_name_option = click.option(
    "-b", "--brokerName", "broker", required=True, metavar="NAME", help="The broker, by name."
)


@click.command("updateKvConfig")
@_namespace_option
@_key_option
@click.option("-v", "--value", required=True, metavar="VALUE", help="Its value.")
@click.pass_obj
def update_value(tool: Tool, namespace: str, key: str, value: str) -> None:
    """Sets a value on all name servers."""

    async def work(servers: Servers) -> Report:
        await servers.admin.put_kv_config(namespace, key, value)
        told = list(servers.admin.names.addresses)
        return Report(
            {"namespace": namespace, "key": key, "value": value, "nameServers": told},
            lines=[f"{namespace} {key}={value} on {address}" for address in told],
        )

    tool.report(work)


@click.command("deleteKvConfig")
@_namespace_option
@_key_option
@yes_option
@click.pass_obj
def delete_value(tool: Tool, namespace: str, key: str, yes: bool) -> None:
    """Deletes a value from all name servers."""
    ask_first(yes, f"Delete {key} of {namespace} from all name servers?")

    async def work(servers: Servers) -> Report:
        if await _value_of(servers, namespace, key) is None:
            fail(servers.conclusion(f"the namespace {namespace} has no key {key}"))
        await servers.admin.delete_kv_config(namespace, key)
        told = list(servers.admin.names.addresses)
        return Report(
            {"namespace": namespace, "key": key, "nameServers": told},
            lines=[f"{namespace} {key} is deleted from {address}" for address in told],
        )

    tool.report(work)


async def _value_of(servers: Servers, namespace: str, key: str) -> str | None:
    """Returns the value at the first name server that has one: after a deletion that one of them
    missed it is at that one alone. Where none has one, those that do not say so are `missing`;
    raises why where that is all of them."""
    addresses = servers.admin.names.addresses
    failures: dict[str, Exception] = {}
    for address in addresses:
        try:
            return await servers.admin.kv_config_of(address, namespace, key)
        except BrokerError as error:
            if error.code != ResponseCode.QUERY_NOT_FOUND:
                failures[address] = error
        except (ClientError, RemotingError, WireError) as error:
            failures[address] = error
    if len(failures) == len(addresses):
        raise next(iter(failures.values()))
    for address, failure in failures.items():
        servers.miss(address, failure)
    return None


@click.command("getNamesrvConfig")
@click.pass_obj
def get_config(tool: Tool) -> None:
    """Shows the configuration that name servers work with."""

    async def work(servers: Servers) -> Report:
        admin = servers.admin
        return await configs_report(
            servers, "nameServers", admin.names.addresses, admin.name_server_config
        )

    tool.report(work)


@click.command("updateNamesrvConfig")
@click.option("-k", "--key", required=True, metavar="KEY", help="The key of its file.")
@click.option("-v", "--value", required=True, metavar="VALUE", help="Its new value.")
@click.pass_obj
def update_config(tool: Tool, key: str, value: str) -> None:
    """Changes one key of the configuration of all name servers."""

    async def work(servers: Servers) -> Report:
        targets, change = servers.admin.names.addresses, servers.admin.update_name_server_config
        return await changed_configs_report(
            "nameServers", targets, key.strip(), value.strip(), change
        )

    tool.report(work)


@click.command("wipeWritePerm")
@_broker_name_option
@yes_option
@click.pass_obj
def wipe_write(tool: Tool, broker: str, yes: bool) -> None:
    """Takes the write permission of all topics of a broker, so that producers pass it over."""
    ask_first(yes, f"Take the write permission of all topics of {broker}?")
    state = "may not be written to any more"
    _permit(tool, broker, lambda servers: servers.admin.wipe_write_permission, state)


@click.command("addWritePerm")
@_broker_name_option
@click.pass_obj
def add_write(tool: Tool, broker: str) -> None:
    """Gives the topics of a broker their write permission back."""
    state = "may be written to again"
    _permit(tool, broker, lambda servers: servers.admin.add_write_permission, state)


def _permit(
    tool: Tool,
    broker: str,
    change_of: Callable[[Servers], Callable[[str, str], Deferred[PermissionChange]]],
    state: str,
) -> None:
    async def work(servers: Servers) -> Report:
        await check_broker_name(servers, broker)
        changes: dict[str, PermissionChange] = {}
        said: dict[str, str] = {}

        async def change(address: str) -> None:
            changes[address] = await change_of(servers)(address, broker)
            said[address] = changes[address].remark

        await on_each(servers.admin.names.addresses, change, said)
        rows = [{"address": address, "topics": made.topics} for address, made in changes.items()]
        lines = [
            f"{number_of(made.topics, 'topic')} of {broker} {state}, as name server {address} tells"
            " clients"
            for address, made in changes.items()
        ]
        return report_with_remarks({"brokerName": broker, "nameServers": rows}, lines, said)

    tool.report(work)


@click.command("updateOrderConf")
@topic_option
@click.option(
    "-v", "--orderConf", "order", metavar="BROKER:QUEUES;...", help="For put: what it becomes."
)
@click.option(
    "-m", "--method", type=click.Choice(["get", "put", "delete"]), required=True,
    help="What to do with it.",
)  # fmt: skip
@yes_option
@click.pass_obj
def update_order(tool: Tool, topic: str, order: str | None, method: str, yes: bool) -> None:
    """Shows, sets or deletes how many queues brokers have of an ordered topic."""
    if (method == "put") != bool(order):
        raise click.UsageError("-v goes with -m put: broker:queues, several with ';' between them")
    if order and not _is_order(order):
        raise click.UsageError(f"-v {order}: give broker:queues, several with ';' between them")
    if method == "delete":
        ask_first(yes, f"Delete the order configuration of {topic}?")

    async def work(servers: Servers) -> Report:
        if method == "put":
            assert order is not None
            await servers.admin.put_kv_config(ORDER_NAMESPACE, topic, order.strip())
            return _order_report(topic, order.strip())
        present = await _value_of(servers, ORDER_NAMESPACE, topic)
        if present is None:
            unknown = f"topic {topic} has no order configuration: -m put makes one"
            fail(servers.conclusion(unknown))
        if method == "get":
            return _order_report(topic, present)
        await servers.admin.delete_kv_config(ORDER_NAMESPACE, topic)
        return Report(
            {"topic": topic, "orderConf": None},
            lines=[f"topic {topic} has no order configuration any more"],
        )

    tool.report(work)


#: Brokers with how many queues they have, as name servers tell it to clients.
_is_order = re.compile(r"\s*[^:;\s]+:\d+(;[^:;\s]+:\d+)*;?\s*").fullmatch


def _order_report(topic: str, order: str) -> Report:
    return Report({"topic": topic, "orderConf": order}, lines=[f"topic {topic}: {order}"])
