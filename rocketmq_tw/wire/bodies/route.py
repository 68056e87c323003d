"""Routes of topics, clusters and the brokers in them, as name servers tell them.

Format: docs/formats/bodies.md.
"""

from rocketmq_tw.structs import field
from rocketmq_tw.wire.bodies.base import Body
from rocketmq_tw.wire.bodies.topics import TopicQueueMappingInfo

#: The broker id of a master; slaves have greater ones.
MASTER_ID = 0


class QueueData(Body):
    """A topic's queues on one broker name."""

    broker_name: str = ""
    read_queue_nums: int = 0
    write_queue_nums: int = 0
    perm: int = 0
    topic_sys_flag: int = 0


class BrokerData(Body):
    """One broker name: broker id (0 is the master) to address. 4.9.7 has neither `zone_name` nor
    `enable_acting_master` (None leaves it out)."""

    cluster: str | None = None
    broker_name: str = ""
    broker_addrs: dict[int, str] = field(default_factory=dict)
    zone_name: str | None = None
    enable_acting_master: bool | None = False


class TopicRouteData(Body):
    """Answer to 105."""

    order_topic_conf: str | None = None
    queue_datas: list[QueueData] = field(default_factory=list)
    broker_datas: list[BrokerData] = field(default_factory=list)
    filter_server_table: dict[str, list[str]] = field(default_factory=dict)
    topic_queue_mapping_by_broker: dict[str, TopicQueueMappingInfo] | None = None


class TopicQueuesBody(Body):
    """What counts of a `TopicRouteData` that a name server is sent."""

    queue_datas: list[QueueData] = field(default_factory=list)


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
