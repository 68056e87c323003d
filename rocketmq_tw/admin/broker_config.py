"""getBrokerConfig, updateBrokerConfig."""

from __future__ import annotations

import click

from rocketmq_tw.admin.brokers import all_addresses, master_addresses
from rocketmq_tw.admin.options import SWITCH, broker_option, check_broker_or_cluster, cluster_option
from rocketmq_tw.admin.output import Report
from rocketmq_tw.admin.server_configs import changed_configs_report, configs_report
from rocketmq_tw.admin.tool import Servers, Tool


@click.command("getBrokerConfig")
@click.option("-b", "--brokerAddr", "broker", metavar="HOST:PORT", help="Of this broker.")
@click.option("-c", "--clusterName", "cluster", metavar="NAME", help="Of all brokers of a cluster.")
@click.pass_obj
def get_broker_config(tool: Tool, broker: str | None, cluster: str | None) -> None:
    """Shows the configuration that brokers work with."""
    check_broker_or_cluster(broker, cluster)

    async def work(servers: Servers) -> Report:
        addresses = await all_addresses(servers, broker, cluster)
        return await configs_report(servers, "brokers", addresses, servers.admin.broker_config)

    tool.report(work)


@click.command("updateBrokerConfig")
@broker_option
@cluster_option
@click.option(
    "-a", "--updateAllBroker", "slaves_too", **SWITCH, default=False, show_default=True,
    help="With -c: on its slaves too.",
)  # fmt: skip
@click.option("-k", "--key", required=True, metavar="KEY", help="The key of the broker's file.")
@click.option("-v", "--value", required=True, metavar="VALUE", help="Its new value.")
@click.pass_obj
def update_broker_config(
    tool: Tool, broker: str | None, cluster: str | None, slaves_too: bool, key: str, value: str
) -> None:
    """Changes one key of the configuration of running brokers."""
    check_broker_or_cluster(broker, cluster)
    if broker is not None and slaves_too:
        raise click.UsageError("-a is about a cluster: name that with -c")

    async def work(servers: Servers) -> Report:
        if slaves_too:
            targets = await all_addresses(servers, broker, cluster, to_change=True)
        else:
            targets = await master_addresses(servers, broker, cluster)
        change = servers.admin.update_broker_config
        return await changed_configs_report("brokers", targets, key.strip(), value.strip(), change)

    tool.report(work)
