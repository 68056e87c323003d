"""The controllers: who leads them, who is master, elections, what they remember, their keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from rocketmq_tw.admin.brokers import in_cluster
from rocketmq_tw.admin.options import ask_first, yes_option
from rocketmq_tw.admin.output import Column, Listing, Report
from rocketmq_tw.admin.repeating import interval_option, show_repeatedly
from rocketmq_tw.admin.server_configs import changed_configs_report, configs_report
from rocketmq_tw.admin.tool import Servers, Tool, fail
from rocketmq_tw.client.errors import BrokerError
from rocketmq_tw.net.address import split_address, split_addresses
from rocketmq_tw.net.errors import RemotingError
from rocketmq_tw.wire.bodies.controller import ReplicaIdentity, ReplicasInfo
from rocketmq_tw.wire.headers.controller import GetMetaDataResponseHeader

# What opens connections is loaded once it is known whether they need TLS.
if TYPE_CHECKING:
    from rocketmq_tw.client.controller import ControllerClient


def _check_addresses(context: click.Context, option: click.Parameter, text: str) -> str:
    addresses = split_addresses(text)
    try:
        if not addresses:
            raise ValueError("give host:port, several with ';' between them")
        for address in addresses:
            split_address(address)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    return ";".join(addresses)


_controller_option = click.option(
    "-a",
    "--controllerAddress",
    "controllers",
    required=True,
    metavar="HOST:PORT;...",
    callback=_check_addresses,
    help="Controllers; any of a group tells who leads it.",
)
_name_option = click.option(
    "-bn", "--brokerName", "name", required=True, metavar="NAME", help="The brokers of this name."
)

_REPLICAS = (
    Column("Name", "brokerName"),
    # Name servers and brokers give a master the id 0; this one is what electMaster takes.
    Column("Lasting id", "brokerId"),
    Column("Address", "address"),
    Column("Master", "master"),
    Column("In sync", "inSync"),
    Column("Alive", "alive"),
)


@click.command("getSyncStateSet")
@_controller_option
@click.option("-b", "--brokerName", "name", metavar="NAME", help="The brokers of this name.")
@click.option(
    "-c", "--clusterName", "cluster", metavar="NAME", help="All of a cluster; wants -n too."
)
@interval_option
@click.pass_obj
def get_sync_state_set(
    tool: Tool, controllers: str, name: str | None, cluster: str | None, interval: int | None
) -> None:
    """Shows masters and which replicas have all of their logs."""
    if (name is None) == (cluster is None):
        raise click.UsageError("give one of -b, a broker's name, and -c, a cluster's name")

    async def look(servers: Servers) -> Report:
        if name is not None:
            names = [name]
        else:
            info = await servers.admin.cluster_info()
            names = [data.broker_name for data in in_cluster(info, cluster or "")]
        found = await servers.controllers(controllers).sync_state_data(names)
        table = found.replicas_info_table
        if name is not None and name not in table:
            fail(f"the controllers know no brokers named {name}")
        return _replicas_report(table)

    show_repeatedly(tool, interval, look, needs_names=name is None)


def _replicas_report(table: dict[str, ReplicasInfo]) -> Report:
    sets: list[dict[str, Any]] = []
    lines = []
    rows: list[dict[str, Any]] = []
    for name, info in sorted(table.items()):
        replicas = [_replica(one, info, True) for one in info.in_sync_replicas]
        replicas += [_replica(one, info, False) for one in info.not_in_sync_replicas]
        rows += [{"brokerName": name} | one for one in replicas]
        sets.append(
            {
                "brokerName": name,
                "masterBrokerId": info.master_broker_id,
                "masterAddress": info.master_address,
                "masterEpoch": info.master_epoch,
                "syncStateSetEpoch": info.sync_state_set_epoch,
                "replicas": replicas,
            }
        )
        master = "no master" if info.master_broker_id is None else info.master_address
        lines.append(
            f"{name}: {master} in epoch {info.master_epoch}, {len(info.in_sync_replicas)} in sync"
            f" (epoch {info.sync_state_set_epoch})"
        )
    return Report({"brokerSets": sets}, [Listing(_REPLICAS, rows)], lines)


def _replica(one: ReplicaIdentity, info: ReplicasInfo, in_sync: bool) -> dict[str, Any]:
    return {
        "brokerId": one.broker_id,
        "address": one.broker_address,
        "master": one.broker_id == info.master_broker_id,
        "inSync": in_sync,
        "alive": one.alive,
    }


@click.command("getControllerMetaData")
@_controller_option
@click.pass_obj
def get_controller_metadata(tool: Tool, controllers: str) -> None:
    """Shows who leads the controllers, as the first of -a that answers says it."""

    async def look(servers: Servers) -> Report:
        said = await _first_metadata(servers.controllers(controllers))
        peers = [
            {"id": member, "address": address}
            for member, _, address in (
                peer.partition(":") for peer in (said.peers or "").split(";") if peer
            )
        ]
        data = {
            "group": said.group,
            "leaderId": said.controller_leader_id,
            "leaderAddress": said.controller_leader_address,
            "peers": peers,
        }
        leader = said.controller_leader_address
        line = f"group {said.group}: " + (
            "no leader" if leader is None else f"{said.controller_leader_id} at {leader} leads"
        )
        columns = (Column("Id", "id"), Column("Address", "address"))
        return Report(data, [Listing(columns, peers)], [line])

    tool.report(look, needs_names=False)


async def _first_metadata(client: ControllerClient) -> GetMetaDataResponseHeader:
    reasons = []
    for address in client.addresses:
        try:
            return await client.metadata(address)
        except (RemotingError, BrokerError) as error:
            reasons.append(str(error))
    raise click.ClickException("no controller answers: " + "; ".join(reasons))


@click.command("electMaster")
@_controller_option
@click.option(
    "-b",
    "--brokerId",
    "broker_id",
    required=True,
    type=int,
    help="The lasting id of who is to be master.",
)
@_name_option
@click.option(
    "-c", "--clusterName", "cluster", required=True, metavar="NAME", help="Where they belong."
)
@click.pass_obj
def elect_master(tool: Tool, controllers: str, broker_id: int, name: str, cluster: str) -> None:
    """Makes a replica the master that is alive and in the SyncStateSet."""

    async def elect(servers: Servers) -> Report:
        client = servers.controllers(controllers)
        elected = await client.elect_master(cluster, name, broker_id, designate=True)
        group = elected.group
        if not elected.is_new:
            fail(
                f"{group.master_id} at {group.master_address} is the master of {name} already, in"
                f" epoch {group.master_epoch}"
            )
        data: dict[str, Any] = {
            "clusterName": cluster,
            "brokerName": name,
            "masterBrokerId": group.master_id,
            "masterAddress": group.master_address,
            "masterEpoch": group.master_epoch,
            "syncStateSetEpoch": group.in_sync.epoch,
            "brokers": [
                {"brokerId": key, "address": at} for key, at in sorted(elected.brokers.items())
            ],
        }
        columns = (Column("Lasting id", "brokerId"), Column("Address", "address"))
        line = (
            f"{group.master_id} at {group.master_address} is the master of {name} in epoch"
            f" {group.master_epoch}"
        )
        return Report(data, [Listing(columns, data["brokers"])], [line])

    tool.report(elect, needs_names=False)


@click.command("cleanBrokerMetadata")
@_controller_option
@click.option(
    "-b",
    "--brokerControllerIdsToClean",
    "ids",
    metavar="1;2",
    help="These ids; all of the name where it is left out.",
)
@_name_option
@click.option("-c", "--clusterName", "cluster", metavar="NAME", help="Needed unless -l is given.")
@click.option("-l", "--cleanLivingBroker", "living", is_flag=True, help="All, alive or not.")
@yes_option
@click.pass_obj
def clean_broker_metadata(
    tool: Tool,
    controllers: str,
    ids: str | None,
    name: str,
    cluster: str | None,
    living: bool,
    yes: bool,
) -> None:
    """Makes the controllers forget brokers that are gone for good."""
    if not living and cluster is None:
        raise click.UsageError("give -c, the cluster's name, or -l for brokers that live as well")
    if ids is not None:
        if living:
            raise click.UsageError("-l forgets all brokers of the name: leave out -b")
        try:
            wanted = [int(part) for part in ids.rstrip(";").split(";")]
        except ValueError as error:
            raise click.UsageError(f"-b {ids}: give ids with ';' between them") from error
        ids = ";".join(map(str, wanted))
    what = f"broker {ids} of {name}" if ids is not None else f"all brokers of {name}"
    ask_first(yes, f"Forget {what}?")

    async def clean(servers: Servers) -> Report:
        asked = servers.controllers(controllers)
        found = await asked.sync_state_data([name])
        _check_ids(name, found.replicas_info_table.get(name), ids)
        await asked.clean_broker_data(cluster, name, ids, living=living)
        lost = _forgotten_with(found.replicas_info_table.get(name), ids)
        data = {"brokerName": name, "clusterName": cluster, "brokerIds": ids, "alsoForgotten": lost}
        lines = [f"the controllers have forgotten {what}"]
        if lost:
            lines.append(
                f"warning: nobody in sync is left, so the controllers forget the group {name}, with"
                f" {', '.join(map(str, lost))} of it, once a new broker comes: see"
                " docs/controller.md for what to do first"
            )
        return Report(data, lines=lines)

    tool.report(clean, needs_names=False)


def _check_ids(name: str, info: ReplicasInfo | None, ids: str | None) -> None:
    """Ends the command where the controllers know the name and not all of the ids: they would
    say success."""
    if info is None or ids is None:
        return
    known = {one.broker_id for one in (*info.in_sync_replicas, *info.not_in_sync_replicas)}
    strange = [part for part in ids.split(";") if int(part) not in known]
    if strange:
        there = ", ".join(str(one) for one in sorted(filter(None, known)))
        fail(f"{name} has no broker {', '.join(strange)}; there are: {there}")


def _forgotten_with(info: ReplicasInfo | None, ids: str | None) -> list[int | None]:
    """Returns the ids of replicas that are lost with `ids`, since these are all that were in
    sync."""
    if info is None or ids is None:
        return []
    cleaned = set(map(int, ids.split(";")))
    if any(one.broker_id not in cleaned for one in info.in_sync_replicas):
        return []
    return [one.broker_id for one in info.not_in_sync_replicas if one.broker_id not in cleaned]


@click.command("getControllerConfig")
@_controller_option
@click.pass_obj
def get_controller_config(tool: Tool, controllers: str) -> None:
    """Shows the configuration of each controller that -a names."""

    async def look(servers: Servers) -> Report:
        client = servers.controllers(controllers)
        return await configs_report(servers, "controllers", client.addresses, client.config)

    tool.report(look, needs_names=False)


@click.command("updateControllerConfig")
@_controller_option
@click.option("-k", "--key", required=True, metavar="KEY", help="The key of the controller's file.")
@click.option("-v", "--value", required=True, metavar="VALUE", help="Its new value.")
@click.pass_obj
def update_controller_config(tool: Tool, controllers: str, key: str, value: str) -> None:
    """Changes one key of each running controller that -a names."""

    async def work(servers: Servers) -> Report:
        client = servers.controllers(controllers)
        return await changed_configs_report(
            "controllers", client.addresses, key.strip(), value.strip(), client.update_config
        )

    tool.report(work, needs_names=False)
