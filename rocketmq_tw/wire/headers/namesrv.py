"""The headers of what brokers and clients ask of a name server.

Format: docs/formats/remoting.md.
"""

from rocketmq_tw.wire.headers.base import Header, Int, Long, TopicRpcHeader

#: From stock 4.9.4 on clients read standard JSON.
_FIRST_STANDARD_JSON_VERSION = 401


class RegisterBrokerRequestHeader(Header):
    """Request 103. 4.9.7 sends neither `heartbeat_timeout_millis` nor `enable_acting_master`; a
    `body_crc32` of 0 is not checked."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: Long
    heartbeat_timeout_millis: Long | None = None
    enable_acting_master: bool | None = None
    compressed: bool = False
    body_crc32: Int | None = None


class RegisterBrokerResponseHeader(Header):
    """Answer to 103; both None where the broker is the master."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


class UnRegisterBrokerRequestHeader(Header):
    """Request 104."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Long


class GetRouteInfoRequestHeader(TopicRpcHeader):
    """Request 105."""

    topic: str
    accept_standard_json_only: bool | None = None

    def reads_standard_json(self, version: int) -> bool:
        """Returns whether a client of a version that sent this reads standard JSON."""
        return version >= _FIRST_STANDARD_JSON_VERSION or self.accept_standard_json_only is True


class PutKVConfigRequestHeader(Header):
    """Request 100."""

    namespace: str
    key: str
    value: str


class GetKVConfigRequestHeader(Header):
    """Request 101."""

    namespace: str
    key: str


class GetKVConfigResponseHeader(Header):
    """Answer to 101."""

    value: str | None = None


class DeleteKVConfigRequestHeader(Header):
    """Request 102."""

    namespace: str
    key: str


class GetKVListByNamespaceRequestHeader(Header):
    """Request 219."""

    namespace: str


class WipeWritePermOfBrokerRequestHeader(Header):
    """Request 205."""

    broker_name: str


class WipeWritePermOfBrokerResponseHeader(Header):
    """Answer to 205."""

    wipe_topic_count: Int


class AddWritePermOfBrokerRequestHeader(Header):
    """Request 327."""

    broker_name: str


class AddWritePermOfBrokerResponseHeader(Header):
    """Answer to 327."""

    add_topic_count: Int


class DeleteTopicFromNamesrvRequestHeader(TopicRpcHeader):
    """Request 216."""

    topic: str
    cluster_name: str | None = None


class RegisterTopicRequestHeader(TopicRpcHeader):
    """Request 217; the body is a `TopicRouteData`."""

    topic: str


class GetTopicsByClusterRequestHeader(Header):
    """Request 224."""

    cluster: str


class QueryDataVersionRequestHeader(Header):
    """Request 322; the body is a `DataVersion`."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Long


class QueryDataVersionResponseHeader(Header):
    """Answer to 322."""

    changed: bool


class GetBrokerMemberGroupRequestHeader(Header):
    """Request 901."""

    cluster_name: str
    broker_name: str


class BrokerHeartbeatRequestHeader(Header):
    """Request 904; `heartbeat_timeout_mills` is stock's spelling."""

    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: Long | None = None
    epoch: Int | None = None
    max_offset: Long | None = None
    confirm_offset: Long | None = None
    heartbeat_timeout_mills: Long | None = None
    election_priority: Int | None = None


class NotifyMinBrokerIdChangeRequestHeader(Header):
    """Request 905, to a broker."""

    min_broker_id: Long | None = None
    broker_name: str | None = None
    min_broker_addr: str | None = None
    offline_broker_addr: str | None = None
    ha_broker_addr: str | None = None
