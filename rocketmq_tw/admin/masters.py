"""Which broker names have a master that can be asked and told."""

from __future__ import annotations

from collections.abc import Iterable

from rocketmq_tw.admin.tool import Servers
from rocketmq_tw.client.errors import ClientError
from rocketmq_tw.wire.bodies.route import MASTER_ID, BrokerData


def masters_of(servers: Servers, brokers: Iterable[BrokerData]) -> dict[str, str]:
    """Returns broker name to master's address. A name of which only slaves are registered is
    `missing`: they do not say what topics and groups they have, and take no changes."""
    found = {}
    for data in brokers:
        if MASTER_ID in data.broker_addrs:
            found[data.broker_name] = data.broker_addrs[MASTER_ID]
        else:
            servers.miss(data.broker_name, no_master(data.broker_name))
    return found


def no_master(broker_name: str) -> ClientError:
    """Makes the error for a broker name of which only slaves are registered."""
    return ClientError(f"{broker_name} has no master now, only slaves are registered")
