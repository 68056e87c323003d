"""Finds the brokers that a command asks or changes."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from typing import TypeVar

from rocketmq_tw.admin.each_server import masters_of
from rocketmq_tw.admin.known_names import no_broker, topic_hint
from rocketmq_tw.admin.tool import Servers, fail
from rocketmq_tw.client.errors import BrokerError, UnknownTopicError
from rocketmq_tw.client.routes import address_of
from rocketmq_tw.message.names import LMQ_PREFIX
from rocketmq_tw.wire.bodies.route import MASTER_ID, BrokerData, ClusterInfo, TopicRouteData

T = TypeVar("T")

#: A broker's role as its configuration has it, also where it was elected.
_ROLE_KEY, _SLAVE = "brokerRole", "SLAVE"


async def known_route(servers: Servers, topic: str) -> TopicRouteData:
    """Returns the topic's route; raises `UnknownTopicError` where it has none."""
    route = await servers.admin.topic_route(topic)
    if route is None:
        hint = await topic_hint(servers, topic)
        raise UnknownTopicError(f"no name server knows the topic {topic}: {hint}")
    return route


async def topic_told(servers: Servers, topic: str, asking: Awaitable[T]) -> T:
    """Returns what a broker, which an option names, answers about a topic; raises
    `UnknownTopicError` as `known_route` does where it answers with an error and no name server
    knows the topic."""
    try:
        return await asking
    except BrokerError:
        if not topic.startswith(LMQ_PREFIX):
            await known_route(servers, topic)
        raise


def addresses_of(brokers: Iterable[BrokerData]) -> list[str]:
    """Returns one address for each broker name, the master's where it has one."""
    found = (address_of([data], data.broker_name) for data in brokers)
    return [address for address in found if address is not None]


async def brokers_of(servers: Servers, topic: str, cluster: str | None = None) -> dict[str, str]:
    """Returns broker name to address of the brokers that have a topic. With `cluster`, those of
    that cluster alone; of a light topic without a route, those of the route of `cluster`, which
    may be its parent too. Ends the command where the cluster is unknown or has no broker of the
    topic; raises `UnknownTopicError` where a topic has no route."""
    is_light = topic.startswith(LMQ_PREFIX)
    if cluster is not None and is_light and await servers.admin.topic_route(topic) is None:
        brokers = (await known_route(servers, cluster)).broker_datas
    else:
        brokers = (await known_route(servers, topic)).broker_datas
        if cluster is not None:
            brokers = await only_in(servers, cluster, brokers, f"topic {topic}")
    found = ((data.broker_name, address_of([data], data.broker_name)) for data in brokers)
    return {name: address for name, address in sorted(found) if address is not None}


async def only_in(
    servers: Servers, cluster: str, brokers: Iterable[BrokerData], what: str
) -> list[BrokerData]:
    """Returns those of the brokers, which have `what`, that are in a cluster; ends the command
    where the cluster is unknown or has none of them."""
    all_of_them = list(brokers)
    found = [data for data in all_of_them if data.cluster == cluster]
    if not found:
        # Ends the command where there is no such cluster.
        in_cluster(await servers.admin.cluster_info(), cluster)
        elsewhere = ", ".join(sorted({data.cluster or "" for data in all_of_them}))
        fail(f"{what} is not in cluster {cluster} but in {elsewhere}")
    return found


async def master_addresses(servers: Servers, broker: str | None, cluster: str | None) -> list[str]:
    """Returns what -b and -c stand for where masters are asked: the broker itself, or each master
    of the cluster."""
    if broker is not None:
        return [broker]
    return list((await masters_in(servers, cluster or "")).values())


async def owner_addresses(servers: Servers, broker: str | None, cluster: str | None) -> list[str]:
    """Returns what -b and -c stand for where topics and groups are changed, and how groups read, as
    `master_addresses`; ends the command where the broker is a slave, which says success and changes
    nothing, or as stock's only until its next copy from the master. Raises `BrokerError` or
    `RemotingError` where the broker does not say what it is."""
    if broker is not None and (await servers.admin.broker_config(broker)).get(_ROLE_KEY) == _SLAVE:
        fail(
            f"{broker} is a slave, its topics and groups are its master's: change them there"
            " (clusterList shows masters)"
        )
    return await master_addresses(servers, broker, cluster)


async def all_addresses(
    servers: Servers, broker: str | None, cluster: str | None, *, to_change: bool = False
) -> list[str]:
    """Returns what -b and -c stand for where slaves are asked too: the broker itself, or each
    master and slave of the cluster. Where they are `to_change`, a name without a master is
    `missing`."""
    if broker is not None:
        return [broker]
    brokers = in_cluster(await servers.admin.cluster_info(), cluster or "")
    if to_change:
        masters_of(servers, brokers)
    return [address for data in brokers for _, address in sorted(data.broker_addrs.items())]


def in_cluster(info: ClusterInfo, cluster: str) -> list[BrokerData]:
    """Returns the brokers of a cluster by name; ends the command where there is no such cluster,
    raises `NoRouteError` where there is no broker."""
    if not info.cluster_addr_table:
        raise no_broker()
    names = info.cluster_addr_table.get(cluster)
    if names is None:
        known = ", ".join(sorted(info.cluster_addr_table))
        fail(f"there is no cluster {cluster}; there are: {known}")
    return [
        info.broker_addr_table[name] for name in sorted(names) if name in info.broker_addr_table
    ]


async def masters_in(servers: Servers, cluster: str) -> dict[str, str]:
    """Returns the masters of a cluster as `masters_of` does; ends the command where there are
    none."""
    brokers = in_cluster(await servers.admin.cluster_info(), cluster)
    if not any(MASTER_ID in data.broker_addrs for data in brokers):
        fail(f"no broker of cluster {cluster} has a master now: start one")
    return masters_of(servers, brokers)


async def check_broker_name(servers: Servers, name: str) -> None:
    """Ends the command where no broker has the name; raises `NoRouteError` where there is none."""
    known = (await servers.admin.cluster_info()).broker_addr_table
    if not known:
        raise no_broker()
    if name not in known:
        fail(f"no broker is called {name}; there are: {', '.join(sorted(known))}")


def name_of(info: ClusterInfo, address: str) -> str:
    """Returns the broker name at an address; ends the command where none is registered there."""
    names = {
        address: name
        for name, data in info.broker_addr_table.items()
        for address in data.broker_addrs.values()
    }
    if address not in names:
        fail(f"no broker is registered at {address}: clusterList shows the addresses")
    return names[address]
