"""The order in which stock writes answers, which follows from Java's hash tables.

Clients sort the queues of a route, but take the brokers as they come: two name servers that answer
in different orders would spread clients differently. May be called in any thread, since only the
names count.
"""

from __future__ import annotations

from collections.abc import Iterable

from rocketmq_tw.message.tags import java_hash_code
from rocketmq_tw.wire.bodies.route import ClusterInfo, TopicRouteData

#: Places of stock's table of brokers, which gives the order of 106.
_BROKER_PLACES = 256
#: Places of a new `java.util.HashMap`, which doubles when it is three quarters full.
SMALLEST = 16


def order_route(route: TopicRouteData) -> None:
    """Puts queues and brokers in order; each broker of a queue must be there."""
    queues = {queue.broker_name: queue for queue in route.queue_datas}
    brokers = {broker.broker_name: broker for broker in route.broker_datas}
    names = in_hash_map_order(queues)
    route.queue_datas = [queues[name] for name in names]
    route.broker_datas = [brokers[name] for name in in_hash_set_order(names)]


def order_cluster_info(info: ClusterInfo) -> None:
    """Puts brokers, and the names in each cluster, in order."""
    brokers = info.broker_addr_table
    info.broker_addr_table = {name: brokers[name] for name in in_broker_order(brokers)}
    info.cluster_addr_table = {
        cluster: in_hash_map_order(sorted(names))
        for cluster, names in info.cluster_addr_table.items()
    }


def in_broker_order(names: Iterable[str]) -> list[str]:
    """Returns broker names in the order of stock's table of them."""
    return in_hash_map_order(names, _BROKER_PLACES)


def in_hash_map_order(names: Iterable[str], places: int = SMALLEST) -> list[str]:
    """Returns `names` as a `java.util.HashMap` gives them that they were put into one after the
    other.

    `places` is the table's initial size, a power of two.
    """
    names = list(names)
    while len(names) * 4 > places * 3:
        places *= 2

    def place(name: str) -> int:
        code = java_hash_code(name) & 0xFFFFFFFF
        return (code ^ code >> 16) & (places - 1)

    return sorted(names, key=place)


def in_hash_set_order(names: Iterable[str]) -> list[str]:
    """Returns `names` as a `java.util.HashSet` gives them that was made of all at once: it has room
    to spare."""
    names = list(names)
    places = SMALLEST
    while places < len(names) * 4 // 3 + 1:
        places *= 2
    return in_hash_map_order(names, places)
