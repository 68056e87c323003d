"""addBroker, removeBroker."""

from __future__ import annotations

import click

from rocketmq_tw.admin.options import ask_first, yes_option
from rocketmq_tw.admin.output import Report
from rocketmq_tw.admin.tool import Servers, Tool
from rocketmq_tw.net.address import split_address


def _check_container(context: click.Context, option: click.Parameter, address: str) -> str:
    try:
        split_address(address.strip())
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    return address.strip()


_container_option = click.option(
    "-c",
    "--brokerContainerAddr",
    "container",
    required=True,
    metavar="HOST:PORT",
    callback=_check_container,
    help="The container.",
)


@click.command("addBroker")
@_container_option
@click.option(
    "-b",
    "--brokerConfigPath",
    "path",
    required=True,
    metavar="FILE",
    help="The broker's file, on the container's machine.",
)
@click.pass_obj
def add_broker(tool: Tool, container: str, path: str) -> None:
    """Starts one more broker in a container."""

    async def work(servers: Servers) -> Report:
        await servers.container(container).add_broker(path.strip())
        return Report(
            {"container": container, "brokerConfigPath": path.strip()},
            lines=[f"the broker of {path.strip()} is added to {container}"],
        )

    tool.report(work, needs_names=False)


@click.command("removeBroker")
@_container_option
@click.option(
    "-b",
    "--brokerIdentity",
    "identity",
    required=True,
    metavar="CLUSTER:NAME:ID",
    help="The broker; the id of a DLedger member is its number.",
)
@yes_option
@click.pass_obj
def remove_broker(tool: Tool, container: str, identity: str, yes: bool) -> None:
    """Stops a broker of a container and takes it out."""
    cluster, name, broker_id = _read_identity(identity)
    ask_first(yes, f"Stop {cluster}:{name}:{broker_id} and take it out of {container}?")

    async def work(servers: Servers) -> Report:
        await servers.container(container).remove_broker(cluster, name, broker_id)
        return Report(
            {
                "container": container,
                "clusterName": cluster,
                "brokerName": name,
                "brokerId": broker_id,
            },
            lines=[f"{cluster}:{name}:{broker_id} is removed from {container}"],
        )

    tool.report(work, needs_names=False)


def _read_identity(text: str) -> tuple[str, str, int]:
    parts = [part.strip() for part in text.split(":")]
    if len(parts) != 3 or not all(parts) or not (parts[2].isascii() and parts[2].isdigit()):
        raise click.UsageError(f"-b {text}: give CLUSTER:NAME:ID, as in DefaultCluster:broker-a:0")
    return parts[0], parts[1], int(parts[2])
