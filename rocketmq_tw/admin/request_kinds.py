"""The table of what each request that commands send is: for which kind of server, and whether it
only looks."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

from rocketmq_tw.wire.codes import RequestCode


class ServerKind(Enum):
    """A kind of server: what it is called, the option that names it, a request that changes
    nothing and that a server of no other kind before this one answers."""

    NAME_SERVER = "name server", "-n", RequestCode.GET_NAMESRV_CONFIG
    BROKER = "broker", "-b", RequestCode.GET_BROKER_RUNTIME_INFO
    CONTROLLER = "controller", "-a", RequestCode.CONTROLLER_GET_METADATA_INFO
    # Brokers, which are asked before, answer this one too.
    CONTAINER = "container", "-c", RequestCode.GET_BROKER_CONFIG

    def __init__(self, title: str, option: str, question: RequestCode) -> None:
        self.title = title
        self.option = option
        self.question = question


class Effect(Enum):
    """What a request does to the server that answers it."""

    LOOKS = auto()
    CHANGES = auto()
    #: It changes something, and its answer says what a command goes on with: what would follow is
    #: unknown where it is not sent.
    TELLS = auto()


_NAME_SERVER, _BROKER = ServerKind.NAME_SERVER, ServerKind.BROKER
_CONTROLLER, _CONTAINER = ServerKind.CONTROLLER, ServerKind.CONTAINER
_LOOKS, _CHANGES, _TELLS = Effect.LOOKS, Effect.CHANGES, Effect.TELLS

#: Every request of the admin client, of the client of controllers, and of what commands use beside
#: them.
REQUESTS: Mapping[int, tuple[ServerKind, Effect]] = {
    RequestCode.SEND_MESSAGE: (_BROKER, _TELLS),
    RequestCode.PULL_MESSAGE: (_BROKER, _LOOKS),
    RequestCode.QUERY_MESSAGE: (_BROKER, _LOOKS),
    RequestCode.QUERY_CONSUMER_OFFSET: (_BROKER, _LOOKS),
    RequestCode.UPDATE_CONSUMER_OFFSET: (_BROKER, _CHANGES),
    RequestCode.UPDATE_AND_CREATE_TOPIC: (_BROKER, _CHANGES),
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: (_BROKER, _CHANGES),
    RequestCode.GET_ALL_TOPIC_CONFIG: (_BROKER, _LOOKS),
    RequestCode.UPDATE_BROKER_CONFIG: (_BROKER, _CHANGES),
    RequestCode.GET_BROKER_CONFIG: (_BROKER, _LOOKS),
    RequestCode.GET_BROKER_RUNTIME_INFO: (_BROKER, _LOOKS),
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: (_BROKER, _LOOKS),
    RequestCode.GET_MAX_OFFSET: (_BROKER, _LOOKS),
    RequestCode.GET_MIN_OFFSET: (_BROKER, _LOOKS),
    RequestCode.GET_EARLIEST_MSG_STORETIME: (_BROKER, _LOOKS),
    RequestCode.VIEW_MESSAGE_BY_ID: (_BROKER, _LOOKS),
    RequestCode.HEART_BEAT: (_BROKER, _CHANGES),
    RequestCode.UNREGISTER_CLIENT: (_BROKER, _CHANGES),
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: (_BROKER, _LOOKS),
    RequestCode.PUT_KV_CONFIG: (_NAME_SERVER, _CHANGES),
    RequestCode.GET_KV_CONFIG: (_NAME_SERVER, _LOOKS),
    RequestCode.DELETE_KV_CONFIG: (_NAME_SERVER, _CHANGES),
    RequestCode.GET_ROUTEINFO_BY_TOPIC: (_NAME_SERVER, _LOOKS),
    RequestCode.GET_BROKER_CLUSTER_INFO: (_NAME_SERVER, _LOOKS),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: (_BROKER, _CHANGES),
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: (_BROKER, _LOOKS),
    RequestCode.GET_TOPIC_STATS_INFO: (_BROKER, _LOOKS),
    RequestCode.GET_CONSUMER_CONNECTION_LIST: (_BROKER, _LOOKS),
    RequestCode.GET_PRODUCER_CONNECTION_LIST: (_BROKER, _LOOKS),
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: (_NAME_SERVER, _TELLS),
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: (_NAME_SERVER, _LOOKS),
    RequestCode.DELETE_SUBSCRIPTIONGROUP: (_BROKER, _CHANGES),
    RequestCode.GET_CONSUME_STATS: (_BROKER, _LOOKS),
    RequestCode.DELETE_TOPIC_IN_BROKER: (_BROKER, _CHANGES),
    RequestCode.DELETE_TOPIC_IN_NAMESRV: (_NAME_SERVER, _CHANGES),
    RequestCode.GET_KVLIST_BY_NAMESPACE: (_NAME_SERVER, _LOOKS),
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: (_BROKER, _TELLS),
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: (_BROKER, _LOOKS),
    RequestCode.GET_TOPICS_BY_CLUSTER: (_NAME_SERVER, _LOOKS),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: (_BROKER, _CHANGES),
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: (_BROKER, _LOOKS),
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: (_NAME_SERVER, _LOOKS),
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: (_BROKER, _LOOKS),
    RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: (_BROKER, _CHANGES),
    RequestCode.GET_CONSUMER_RUNNING_INFO: (_BROKER, _LOOKS),
    RequestCode.CONSUME_MESSAGE_DIRECTLY: (_BROKER, _TELLS),
    RequestCode.SEND_MESSAGE_V2: (_BROKER, _TELLS),
    RequestCode.CLONE_GROUP_OFFSET: (_BROKER, _CHANGES),
    RequestCode.VIEW_BROKER_STATS_DATA: (_BROKER, _LOOKS),
    RequestCode.CLEAN_UNUSED_TOPIC: (_BROKER, _CHANGES),
    RequestCode.GET_BROKER_CONSUME_STATS: (_BROKER, _LOOKS),
    RequestCode.UPDATE_NAMESRV_CONFIG: (_NAME_SERVER, _CHANGES),
    RequestCode.GET_NAMESRV_CONFIG: (_NAME_SERVER, _LOOKS),
    RequestCode.SEND_BATCH_MESSAGE: (_BROKER, _TELLS),
    RequestCode.QUERY_CONSUME_QUEUE: (_BROKER, _LOOKS),
    RequestCode.ADD_WRITE_PERM_OF_BROKER: (_NAME_SERVER, _TELLS),
    RequestCode.GET_ALL_PRODUCER_INFO: (_BROKER, _LOOKS),
    RequestCode.DELETE_EXPIRED_COMMITLOG: (_BROKER, _CHANGES),
    RequestCode.GET_TOPIC_CONFIG: (_BROKER, _LOOKS),
    RequestCode.SET_MESSAGE_REQUEST_MODE: (_BROKER, _CHANGES),
    RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC: (_BROKER, _CHANGES),
    RequestCode.ADD_BROKER: (_CONTAINER, _CHANGES),
    RequestCode.REMOVE_BROKER: (_CONTAINER, _CHANGES),
    RequestCode.BROKER_HEARTBEAT: (_CONTROLLER, _CHANGES),
    RequestCode.GET_BROKER_HA_STATUS: (_BROKER, _LOOKS),
    RequestCode.RESET_MASTER_FLUSH_OFFSET: (_BROKER, _CHANGES),
    RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET: (_CONTROLLER, _CHANGES),
    RequestCode.CONTROLLER_ELECT_MASTER: (_CONTROLLER, _TELLS),
    RequestCode.CONTROLLER_REGISTER_BROKER: (_CONTROLLER, _CHANGES),
    RequestCode.CONTROLLER_GET_REPLICA_INFO: (_CONTROLLER, _LOOKS),
    RequestCode.CONTROLLER_GET_METADATA_INFO: (_CONTROLLER, _LOOKS),
    RequestCode.CONTROLLER_GET_SYNC_STATE_DATA: (_CONTROLLER, _LOOKS),
    RequestCode.GET_BROKER_EPOCH_CACHE: (_BROKER, _LOOKS),
    RequestCode.UPDATE_CONTROLLER_CONFIG: (_CONTROLLER, _CHANGES),
    RequestCode.GET_CONTROLLER_CONFIG: (_CONTROLLER, _LOOKS),
    RequestCode.CLEAN_BROKER_DATA: (_CONTROLLER, _CHANGES),
    RequestCode.CONTROLLER_GET_NEXT_BROKER_ID: (_CONTROLLER, _LOOKS),
    RequestCode.CONTROLLER_APPLY_BROKER_ID: (_CONTROLLER, _CHANGES),
    RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG: (_BROKER, _CHANGES),
    RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG: (_BROKER, _CHANGES),
    RequestCode.GET_COLD_DATA_FLOW_CTR_INFO: (_BROKER, _LOOKS),
    RequestCode.SET_COMMITLOG_READ_MODE: (_BROKER, _CHANGES),
    RequestCode.POP_ROLLBACK: (_BROKER, _CHANGES),
}


def kind_for(code: int) -> ServerKind:
    """Returns the kind of server that is meant to answer a request; a broker where it is not known
    here."""
    kind, _ = REQUESTS.get(code, (_BROKER, _CHANGES))
    return kind


def effect_of(code: int) -> Effect:
    """Returns what a request does; what is not known here counts as a change."""
    _, effect = REQUESTS.get(code, (_BROKER, _CHANGES))
    return effect
