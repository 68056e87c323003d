"""Slave Acting Master, as a route shows it: the substitute of a master that is gone.

Stock switches it on with `supportActingMaster`, for the brokers that registered with
`enableActingMaster`. Who is told of a new smallest id is `RouteTable.on_min_id_change`.
"""

from rocketmq_tw.message.names import member_sync_topic
from rocketmq_tw.wire.bodies.route import MASTER_ID, PERM_WRITE, TopicRouteData


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
        if not addresses or MASTER_ID in addresses or not broker.enable_acting_master:
            continue
        if not permissions.get(broker.broker_name, PERM_WRITE) & PERM_WRITE:
            addresses[MASTER_ID] = addresses.pop(min(addresses))
    return route
