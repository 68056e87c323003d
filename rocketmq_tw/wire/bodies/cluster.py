"""Clusters and the brokers in them."""

from msgspec import field

from rocketmq_tw.wire.bodies.base import Body
from rocketmq_tw.wire.bodies.route import BrokerData


class ClusterInfo(Body):
    """Answer to 106: brokers by name, broker names by cluster."""

    broker_addr_table: dict[str, BrokerData] = field(default_factory=dict)
    cluster_addr_table: dict[str, list[str]] = field(default_factory=dict)


class BrokerMemberGroup(Body):
    """The brokers that share a name, by id."""

    cluster: str | None = None
    broker_name: str | None = None
    broker_addrs: dict[int, str] = field(default_factory=dict)


class BrokerMemberGroupBody(Body):
    """Answer to 901."""

    broker_member_group: BrokerMemberGroup | None = None
