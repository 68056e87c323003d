"""getBrokerEpoch: the reigns of masters in the logs of brokers in controller mode."""

from __future__ import annotations

from typing import Any

import click

from rocketmq_tw.admin.brokers import in_cluster
from rocketmq_tw.admin.each_server import ask_each
from rocketmq_tw.admin.output import Column, Listing, Report
from rocketmq_tw.admin.repeating import interval_option, show_repeatedly
from rocketmq_tw.admin.tool import Servers, Tool, fail
from rocketmq_tw.wire.bodies.controller import EpochEntryCache

_EPOCHS = (
    Column("Broker", "address"),
    Column("Name", "brokerName"),
    Column("Id", "brokerId"),
    Column("Epoch", "epoch"),
    Column("From", "startOffset"),
    Column("To", "endOffset"),
)


@click.command("getBrokerEpoch")
@click.option("-b", "--brokerName", "broker", metavar="NAME", help="The brokers of this name.")
@click.option("-c", "--clusterName", "cluster", metavar="NAME", help="All brokers of a cluster.")
@interval_option
@click.pass_obj
def get_broker_epoch(
    tool: Tool, broker: str | None, cluster: str | None, interval: int | None
) -> None:
    """Shows which master's reign each part of the brokers' logs comes from."""
    if (broker is None) == (cluster is None):
        raise click.UsageError("give one of -b, a broker's name, and -c, a cluster's name")
    show_repeatedly(tool, interval, lambda servers: _report(servers, broker, cluster))


async def _report(servers: Servers, broker: str | None, cluster: str | None) -> Report:
    info = await servers.admin.cluster_info()
    if cluster is not None:
        found = in_cluster(info, cluster)
    elif broker in info.broker_addr_table:
        found = [info.broker_addr_table[broker]]
    else:
        fail(f"no broker is called {broker}: clusterList shows the names")
    registered: dict[str, dict[str, Any]] = {
        address: {
            "clusterName": data.cluster,
            "brokerName": data.broker_name,
            "brokerId": broker_id,
        }
        for data in found
        for broker_id, address in sorted(data.broker_addrs.items())
    }
    brokers: list[dict[str, Any]] = [
        {
            "address": answer.address,
            **registered[answer.address],
            **_epochs(answer.value),
            "error": answer.error,
        }
        for answer in await ask_each(servers, registered, servers.admin.epochs)
    ]
    rows = [one | epoch for one in brokers for epoch in one["epochs"]]
    return Report({"brokers": brokers}, [Listing(_EPOCHS, rows)])


def _epochs(cache: EpochEntryCache | None) -> dict[str, Any]:
    """Returns what a broker says, nothing of one that does not answer."""
    if cache is None:
        return {"maxOffset": None, "epochs": []}
    epochs = [
        {"epoch": one.epoch, "startOffset": one.start_offset, "endOffset": one.end_offset}
        for one in cache.epoch_list
    ]
    if epochs:
        # The last reign goes on: it ends where the log does.
        epochs[-1]["endOffset"] = cache.max_offset
    return {
        "clusterName": cache.cluster_name,
        "brokerName": cache.broker_name,
        "brokerId": cache.broker_id,
        "maxOffset": cache.max_offset,
        "epochs": epochs,
    }
