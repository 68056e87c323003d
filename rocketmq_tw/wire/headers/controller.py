"""The headers of what brokers and administrators ask of a controller, and of what it tells brokers.

Format: docs/formats/controller.md.
"""

from rocketmq_tw.wire.headers.base import Header, Int, Long

#: In place of a broker's id: no broker.
NO_BROKER = -1


class AlterSyncStateSetRequestHeader(Header, kw_only=True):
    """Request 1001; the body is a `SyncStateSetBody`."""

    broker_name: str
    master_epoch: Int
    master_broker_id: Long | None = None
    invoke_time: Long | None = None


class AlterSyncStateSetResponseHeader(Header, kw_only=True):
    """Answer to 1001; 0 where the set is refused."""

    new_sync_state_set_epoch: Int = 0


class ElectMasterRequestHeader(Header, kw_only=True):
    """Request 1002. A broker gives its own id, which a group without any master before gets for its
    first; an administrator designates one. -1: the best one. `master_epoch`: of the master that is
    to be one no more, and of no later one; `never_begun`: it has not begun that epoch. Stock knows
    no such fields and passes them over."""

    cluster_name: str = ""
    broker_name: str = ""
    broker_id: Long = -1
    designate_elect: bool = False
    invoke_time: Long | None = None
    master_epoch: Int | None = None
    never_begun: bool | None = None


class ElectMasterResponseHeader(Header, kw_only=True):
    """Answer to 1002; the body is an `ElectMasterResponseBody`. All None without a master."""

    master_broker_id: Long | None = None
    master_address: str | None = None
    master_epoch: Int | None = None
    sync_state_set_epoch: Int | None = None


class RegisterBrokerToControllerRequestHeader(Header, kw_only=True):
    """Request 1003."""

    cluster_name: str
    broker_name: str
    broker_id: Long
    broker_address: str
    invoke_time: Long | None = None


class RegisterBrokerToControllerResponseHeader(Header, kw_only=True):
    """Answer to 1003; the body is a `SyncStateSetBody`. The master is None unless it lives."""

    cluster_name: str
    broker_name: str
    master_broker_id: Long | None = None
    master_address: str | None = None
    master_epoch: Int | None = None
    sync_state_set_epoch: Int | None = None


class GetReplicaInfoRequestHeader(Header, kw_only=True):
    """Request 1004."""

    broker_name: str


class GetReplicaInfoResponseHeader(Header, kw_only=True):
    """Answer to 1004; the body is a `SyncStateSetBody`."""

    master_broker_id: Long | None = None
    master_address: str | None = None
    master_epoch: Int | None = None


class GetMetaDataResponseHeader(Header, kw_only=True):
    """Answer to 1005. `peers` are `id:host:port`, each with a `;` behind it."""

    group: str | None = None
    controller_leader_id: str | None = None
    controller_leader_address: str | None = None
    is_leader: bool = False
    peers: str | None = None


class NotifyBrokerRoleChangedRequestHeader(Header, kw_only=True):
    """Request 1008, oneway to a broker; the body is a `SyncStateSetBody`."""

    master_address: str | None = None
    master_epoch: Int | None = None
    sync_state_set_epoch: Int | None = None
    master_broker_id: Long | None = None


class CleanControllerBrokerDataRequestHeader(Header, kw_only=True):
    """Request 1011. `broker_controller_ids_to_clean` are ids with `;` between them; None: the whole
    group."""

    broker_name: str
    cluster_name: str | None = None
    broker_controller_ids_to_clean: str | None = None
    is_clean_living_broker: bool = False
    invoke_time: Long | None = None


class GetNextBrokerIdRequestHeader(Header, kw_only=True):
    """Request 1012."""

    broker_name: str
    cluster_name: str | None = None


class GetNextBrokerIdResponseHeader(Header, kw_only=True):
    """Answer to 1012."""

    cluster_name: str | None = None
    broker_name: str
    next_broker_id: Long


class ApplyBrokerIdRequestHeader(Header, kw_only=True):
    """Request 1013. The code begins with the broker's address and a `;`; it proves who owns the
    id."""

    cluster_name: str
    broker_name: str
    applied_broker_id: Long
    register_check_code: str


class ApplyBrokerIdResponseHeader(Header, kw_only=True):
    """Answer to 1013."""

    cluster_name: str
    broker_name: str
