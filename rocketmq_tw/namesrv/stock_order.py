"""Answers in the order in which stock writes them; in any thread, for names only count here."""

from __future__ import annotations

from collections.abc import Iterable

from rocketmq_tw.namesrv.hash_order import in_hash_map_order, in_hash_set_order
from rocketmq_tw.wire.bodies.cluster import ClusterInfo
from rocketmq_tw.wire.bodies.route import TopicRouteData

#: Places of stock's table of brokers, which gives the order of 106.
_BROKER_PLACES = 256


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
    """Broker names in the order of stock's table of them."""
    return in_hash_map_order(names, _BROKER_PLACES)
