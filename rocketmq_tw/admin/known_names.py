"""The names of topics and groups that a cluster has, and which of them was meant."""

from __future__ import annotations

from collections.abc import Collection

from rocketmq_tw.admin.each_server import ask_each, masters_of
from rocketmq_tw.admin.near_names import did_you_mean
from rocketmq_tw.admin.tool import Servers
from rocketmq_tw.client.errors import ClientError, NoRouteError
from rocketmq_tw.message.names import (
    LMQ_PREFIX,
    RETRY_PREFIX,
    SYSTEM_GROUP_PREFIX,
    SYSTEM_GROUPS,
    SYSTEM_TOPICS,
)
from rocketmq_tw.wire.bodies.route import BrokerData

#: In the retry topics of pop consumers of 5.x it stands between group and topic.
_POP_SEPARATOR = "+"


def is_of_users(group: str) -> bool:
    """Returns whether a group is one that users made."""
    return group not in SYSTEM_GROUPS and not group.startswith(SYSTEM_GROUP_PREFIX)


async def group_names(servers: Servers) -> list[str]:
    """Returns the groups that `known_groups` does."""
    return list(await known_groups(servers))


async def known_groups(servers: Servers, cluster: str | None = None) -> dict[str, list[BrokerData]]:
    """Returns the groups that have a retry topic or settings on a master, sorted: also those that
    have never consumed; each with the masters that have settings of it. With `cluster` no others
    than its masters are asked. One that does not say its groups is `missing`."""
    found: dict[str, list[BrokerData]] = {
        topic.removeprefix(RETRY_PREFIX).partition(_POP_SEPARATOR)[0]: []
        for topic in (await servers.admin.topic_list()).topic_list
        if topic.startswith(RETRY_PREFIX)
    }
    for data, groups in await groups_of_masters(servers, cluster):
        for group in filter(is_of_users, groups):
            found.setdefault(group, []).append(data)
    return dict(sorted(found.items()))


async def groups_of_masters(
    servers: Servers, cluster: str | None = None
) -> list[tuple[BrokerData, Collection[str]]]:
    """Returns the masters, of one cluster or all, each with the groups that it has settings of;
    none of one that does not answer, which is `missing`, as are names without a master."""
    known = {
        name: data
        for name, data in (await servers.admin.cluster_info()).broker_addr_table.items()
        if cluster in (None, data.cluster)
    }
    names = {address: name for name, address in masters_of(servers, known.values()).items()}
    return [
        (
            known[names[answer.address]],
            () if answer.value is None else answer.value.subscription_group_table,
        )
        for answer in await ask_each(servers, names, servers.admin.groups, all_may_fail=True)
    ]


def no_broker() -> NoRouteError:
    """Makes the error for name servers that know no broker at all: brokers are down, or have not
    registered yet, and no name is wrong."""
    return NoRouteError("no broker is registered: start one")


async def topic_hint(servers: Servers, topic: str, otherwise: str = "topicList shows all") -> str:
    """Returns what to do about a topic that is not there, to stand behind a colon: which one was
    meant, or `otherwise`; raises `NoRouteError` where there is no broker."""
    names = (await servers.admin.topic_list()).topic_list
    # Each broker has topics of its own.
    of_users = [name for name in names if name not in SYSTEM_TOPICS]
    if not names:
        raise no_broker()
    return did_you_mean(topic, of_users) or otherwise


async def is_known(servers: Servers, group: str) -> bool:
    """Returns whether a broker has settings of a group, or a retry topic of it."""
    return _is_everywhere(group) or group in await known_groups(servers)


def _is_everywhere(group: str) -> bool:
    """Returns whether a group is one of stock's tools, or a light one, which needs no settings."""
    return group.startswith(LMQ_PREFIX) or not is_of_users(group)


async def no_group_at(servers: Servers, address: str, group: str) -> ClientError:
    """Makes the error for a broker without settings of a group: which one was meant, or how to make
    it."""
    groups = (await servers.admin.groups(address)).subscription_group_table
    meant = did_you_mean(group, filter(is_of_users, groups))
    create = f"rmqadmin updateSubGroup -b {address} -g {group} creates it"
    return ClientError(f"broker {address} has no group {group}: {meant or create}")


async def check_has_group(servers: Servers, address: str, group: str) -> None:
    """Raises `ClientError` where a broker has no settings of a group: many brokers make one that a
    request names."""
    if _is_everywhere(group):
        return
    if group not in (await servers.admin.groups(address)).subscription_group_table:
        raise await no_group_at(servers, address, group)


async def group_hint(servers: Servers, group: str) -> str:
    """Returns what to do about a group that is not there, to stand behind a colon; raises
    `NoRouteError` where there is no broker."""
    names = await group_names(servers)
    if group in names:
        return "start a consumer of it"
    if not names and not (await servers.admin.cluster_info()).broker_addr_table:
        raise no_broker()
    return did_you_mean(group, names) or "consumerProgress shows all"
