"""Which brokers a command asks or changes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Generic, TypeVar

import attrs

from rocketmq_tw.admin.known_names import no_broker, topic_hint
from rocketmq_tw.admin.tool import Servers, explain, explain_at, fail
from rocketmq_tw.client.each import at_each
from rocketmq_tw.client.errors import ClientError, UnknownTopicError
from rocketmq_tw.client.routes import address_of
from rocketmq_tw.net.errors import RemotingError
from rocketmq_tw.wire.bodies.route import MASTER_ID, BrokerData, ClusterInfo, TopicRouteData
from rocketmq_tw.wire.errors import WireError

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


def addresses_of(brokers: Iterable[BrokerData]) -> list[str]:
    """Returns one address for each broker name, the master's where it has one."""
    found = (address_of([data], data.broker_name) for data in brokers)
    return [address for address in found if address is not None]


async def brokers_of(servers: Servers, topic: str, cluster: str | None = None) -> dict[str, str]:
    """Returns broker name to address of the brokers that have a topic. With `cluster`, those of
    that cluster alone; where the topic has no route, as light topics, those of the route of
    `cluster`, which may be a light topic's parent too. Ends the command where the cluster is
    unknown or has no broker of the topic."""
    route = None if cluster is None else await servers.admin.topic_route(topic)
    if route is None:
        brokers = (await known_route(servers, topic if cluster is None else cluster)).broker_datas
    else:
        assert cluster is not None
        brokers = await only_in(servers, cluster, route.broker_datas, f"topic {topic}")
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
    return list(masters(await servers.admin.cluster_info(), cluster or "").values())


async def owner_addresses(servers: Servers, broker: str | None, cluster: str | None) -> list[str]:
    """Returns what -b and -c stand for where topics and groups are changed, as `master_addresses`;
    ends the command where the broker is a slave, which says success and changes nothing, or as
    stock's only until its next copy from the master. Raises `BrokerError` or `RemotingError` where
    the broker does not say what it is."""
    if broker is not None and (await servers.admin.broker_config(broker)).get(_ROLE_KEY) == _SLAVE:
        fail(
            f"{broker} is a slave, its topics and groups are its master's: change them there"
            " (clusterList shows masters)"
        )
    return await master_addresses(servers, broker, cluster)


async def all_addresses(servers: Servers, broker: str | None, cluster: str | None) -> list[str]:
    """Returns what -b and -c stand for where slaves are asked too: the broker itself, or each
    master and slave of the cluster."""
    if broker is not None:
        return [broker]
    return [
        address
        for data in in_cluster(await servers.admin.cluster_info(), cluster or "")
        for _, address in sorted(data.broker_addrs.items())
    ]


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


def masters(info: ClusterInfo, cluster: str) -> dict[str, str]:
    """Returns broker name to master's address; ends the command where the cluster has no master."""
    brokers = in_cluster(info, cluster)
    found = {
        data.broker_name: data.broker_addrs[MASTER_ID]
        for data in brokers
        if MASTER_ID in data.broker_addrs
    }
    if not found:
        fail(f"no broker of cluster {cluster} has a master now: start one")
    return found


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


@attrs.frozen
class ServerAnswer(Generic[T]):
    """What a server said: its value, or None with the error that says why there is none."""

    address: str
    value: T | None
    error: str | None


async def ask_each(
    servers: Servers,
    addresses: Iterable[str],
    ask: Callable[[str], Awaitable[T]],
    *,
    all_may_fail: bool = False,
) -> list[ServerAnswer[T]]:
    """Asks one server after the other and returns their answers in that order. One that does not
    answer, or with an error, is `missing` from then on, and not waited for once more; raises why
    where none answers, unless `all_may_fail`."""
    answers: list[ServerAnswer[T]] = []
    failures: dict[str, Exception] = {}
    for address in addresses:
        silent = servers.missing.get(address)
        try:
            if isinstance(silent, RemotingError):
                raise silent
            value = await ask(address)
        except (ClientError, RemotingError, WireError) as error:
            failures[address] = error
            answers.append(ServerAnswer(address, None, explain_at(address, error)))
        else:
            answers.append(ServerAnswer(address, value, None))
    if failures and len(failures) == len(answers) and not all_may_fail:
        raise next(iter(failures.values()))
    for address, failure in failures.items():
        servers.miss(address, failure)
    return answers


async def told_by_each(
    servers: Servers,
    addresses: Iterable[str],
    ask: Callable[[str], Awaitable[T | None]],
    *,
    all_may_fail: bool = False,
) -> list[T]:
    """Returns the answers of the servers that have one, those without None; asks as `ask_each`
    does."""
    answers = await ask_each(servers, addresses, ask, all_may_fail=all_may_fail)
    return [answer.value for answer in answers if answer.value is not None]


async def on_each(targets: Iterable[str], change: Callable[[str], Awaitable[object]]) -> list[str]:
    """Makes a change at one address after the other and returns them; ends the command behind the
    last where one is down or refuses, with the ones that are done."""
    try:
        return await at_each(targets, change)
    except (ClientError, RemotingError) as error:
        fail(explain(error), error)


def unfinished(error: Exception, done: Iterable[str]) -> str:
    """Makes the text for a change that was made on some brokers only, before it failed."""
    before = ", ".join(done)
    return f"{explain(error)}; done before that: {before}" if before else explain(error)
