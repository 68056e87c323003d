"""Changes routes before a name server shows them: substitutes of masters, and zones.

Slave Acting Master is switched on with `supportActingMaster`, for the brokers that registered with
`enableActingMaster` (Slave Acting Master). Brokers are told of a new smallest id by
`RouteTable.on_min_id_change`.
"""

from collections.abc import Mapping

from rocketmq_tw.message.names import member_sync_topic
from rocketmq_tw.namesrv.brokers import smallest_id
from rocketmq_tw.wire.bodies.route import MASTER_ID, TopicRouteData
from rocketmq_tw.wire.permissions import WRITE

#: Extra fields of a request, beside its header's.
ZONE_MODE = "__ZONE_MODE"
ZONE_NAME = "__ZONE_NAME"


def show_substitutes(topic: str, route: TopicRouteData) -> TopicRouteData:
    """Changes `route` so that a group without a master has its smallest id shown as 0.

    Only where the queues are read-only already: a writable queue of such a group belongs to
    brokers that know nothing of acting masters. The topics through which stock's brokers find
    each other show the ids as they are.
    """
    if topic.startswith(member_sync_topic("")):
        return route
    permissions = {queues.broker_name: queues.perm for queues in route.queue_datas}
    for broker in route.broker_datas:
        addresses = broker.broker_addrs
        smallest = smallest_id(addresses)
        if smallest is None or smallest == MASTER_ID or not broker.enable_acting_master:
            continue
        if not permissions.get(broker.broker_name, WRITE) & WRITE:
            addresses[MASTER_ID] = addresses.pop(smallest)
    return route


def wanted_zone(fields: Mapping[str, str]) -> str | None:
    """Returns the zone that a request's fields ask for; None where they ask for none."""
    if fields.get(ZONE_MODE, "").lower() != "true":
        return None
    return fields.get(ZONE_NAME, "").strip() or None


def keep_zone(route: TopicRouteData, zone: str) -> TopicRouteData:
    """Leaves the brokers of `zone` in `route`, and those without a master: then a slave far
    away is better than none."""
    kept = [
        broker
        for broker in route.broker_datas
        if MASTER_ID not in broker.broker_addrs or (broker.zone_name or "").lower() == zone.lower()
    ]
    gone = {broker.broker_name for broker in route.broker_datas}
    gone -= {broker.broker_name for broker in kept}
    addresses = {address for broker in kept for address in broker.broker_addrs.values()}
    route.broker_datas = kept
    route.queue_datas = [queue for queue in route.queue_datas if queue.broker_name not in gone]
    route.filter_server_table = {
        address: servers
        for address, servers in route.filter_server_table.items()
        if address in addresses
    }
    return route
