"""Lists of topics: all, those of a cluster, those of a kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rocketmq_tw.namesrv.route_table import RouteTable
from rocketmq_tw.wire.bodies.route import QueueData

UNIT_FLAG = 1
UNIT_SUBSCRIPTION_FLAG = 2
#: Topics that one step looks at.
_STEP = 500


def list_all(table: RouteTable, found: list[str]) -> Iterator[None]:
    """Adds all topics to `found`, sorted; one call's steps after the other's."""
    return table.queues.names(found)


def list_matching(
    table: RouteTable, matches: Callable[[QueueData], bool], found: list[str]
) -> Iterator[None]:
    """Adds those whose queues on (any) one of their brokers `matches`."""

    def wanted(topic: str) -> bool:
        queues = next(iter(table.queues.of_topic(topic).values()), None)
        return queues is not None and matches(queues)

    return _list_wanted(table, wanted, found)


def list_of_cluster(table: RouteTable, cluster: str, found: list[str]) -> Iterator[None]:
    """Adds those that brokers of a cluster have."""
    names = table.names_in(cluster)
    return _list_wanted(
        table, lambda topic: not names.isdisjoint(table.queues.of_topic(topic)), found
    )


def is_unit(queues: QueueData) -> bool:
    """Whether the topic belongs to a unit."""
    return bool(queues.topic_sys_flag & UNIT_FLAG)


def has_unit_subscription(queues: QueueData) -> bool:
    """Whether a group of a unit subscribes to the topic."""
    return bool(queues.topic_sys_flag & UNIT_SUBSCRIPTION_FLAG)


def _list_wanted(
    table: RouteTable, wanted: Callable[[str], bool], found: list[str]
) -> Iterator[None]:
    names: list[str] = []
    yield from table.queues.names(names)
    for start in range(0, len(names), _STEP):
        found += filter(wanted, names[start : start + _STEP])
        yield
