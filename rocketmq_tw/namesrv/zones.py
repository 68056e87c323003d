"""Routes for a client that wants the brokers of its own zone."""

from collections.abc import Mapping

from rocketmq_tw.wire.bodies.route import MASTER_ID, TopicRouteData

#: Extra fields of a request, beside its header's.
ZONE_MODE = "__ZONE_MODE"
ZONE_NAME = "__ZONE_NAME"


def wanted_zone(fields: Mapping[str, str]) -> str | None:
    """The zone that a request's fields ask for; None where they ask for none."""
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
