"""Groups of brokers as a controller tells of them, and the epochs of a broker's log.

Format: docs/formats/controller.md.
"""

from rocketmq_tw.structs import field
from rocketmq_tw.wire.bodies.base import Body
from rocketmq_tw.wire.bodies.route import BrokerMemberGroup


class SyncStateSetBody(Body):
    """Of 1001, 1003, 1004 and 1008: the ids of the replicas that have all of the master's log, and
    how often this set has changed."""

    sync_state_set: list[int] = field(default_factory=list)
    sync_state_set_epoch: int = 0


class ElectMasterResponseBody(Body):
    """Of the answer to 1002; the group is there only where a new master was elected."""

    broker_member_group: BrokerMemberGroup | None = None
    sync_state_set: list[int] = field(default_factory=list)


class ReplicaIdentity(Body):
    """A replica and whether its heartbeats come."""

    broker_name: str | None = None
    broker_id: int | None = None
    broker_address: str | None = None
    alive: bool = False


class ReplicasInfo(Body):
    """One group: its master, and its replicas inside and outside the SyncStateSet."""

    master_broker_id: int | None = None
    master_address: str | None = None
    master_epoch: int = 0
    sync_state_set_epoch: int = 0
    in_sync_replicas: list[ReplicaIdentity] = field(default_factory=list)
    not_in_sync_replicas: list[ReplicaIdentity] = field(default_factory=list)


class BrokerReplicasInfo(Body):
    """Answer to 1006, by broker name."""

    replicas_info_table: dict[str, ReplicasInfo] = field(default_factory=dict)


class EpochEntryBody(Body):
    """A master's reign in a log: where it began, and where the next one did; the last one's end is
    not known, a large number."""

    epoch: int = 0
    start_offset: int = 0
    end_offset: int = 2**63 - 1


class EpochEntryCache(Body):
    """Answer to 1007: all reigns in the log of one broker, which ends at `max_offset`."""

    cluster_name: str | None = None
    broker_name: str | None = None
    broker_id: int = 0
    epoch_list: list[EpochEntryBody] = field(default_factory=list)
    max_offset: int = 0
