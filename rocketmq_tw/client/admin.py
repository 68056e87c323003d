"""The admin client: one method for each request that asks or changes a server.

Brokers are named by address (`host:port`); name servers are asked in turn, but what changes them
goes to all of them. Every method returns a Deferred, which fails with `BrokerError` where a server
refuses.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import javaproperties
from twisted.internet.defer import Deferred

from rocketmq_tw.client.commands import read_route, route_command
from rocketmq_tw.client.errors import check_success
from rocketmq_tw.client.names import NameServers
from rocketmq_tw.config.net import TlsConfig
from rocketmq_tw.message.names import AUTO_CREATE_TOPIC
from rocketmq_tw.net.client import RemotingClient
from rocketmq_tw.net.interfaces import IRemotingClient
from rocketmq_tw.wire.bodies.base import decode_body, encode_body
from rocketmq_tw.wire.bodies.cluster import ClusterInfo
from rocketmq_tw.wire.bodies.consumers import (
    ConsumerConnection,
    ConsumerRunningInfo,
)
from rocketmq_tw.wire.bodies.groups import SubscriptionGroupConfig, SubscriptionGroupTable
from rocketmq_tw.wire.bodies.kv import KVTable
from rocketmq_tw.wire.bodies.offsets import (
    ConsumeStats,
    TopicStatsTable,
)
from rocketmq_tw.wire.bodies.route import TopicRouteData
from rocketmq_tw.wire.bodies.stats import HARuntimeInfo
from rocketmq_tw.wire.bodies.topics import GroupList, TopicConfig, TopicList
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.base import Header
from rocketmq_tw.wire.headers.clients import (
    GetConsumerConnectionListRequestHeader,
    GetConsumerRunningInfoRequestHeader,
)
from rocketmq_tw.wire.headers.groups import (
    DeleteSubscriptionGroupRequestHeader,
    GetConsumeStatsRequestHeader,
)
from rocketmq_tw.wire.headers.namesrv import (
    AddWritePermOfBrokerRequestHeader,
    AddWritePermOfBrokerResponseHeader,
    DeleteTopicFromNamesrvRequestHeader,
    GetKVConfigRequestHeader,
    GetKVConfigResponseHeader,
    GetTopicsByClusterRequestHeader,
    PutKVConfigRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
)
from rocketmq_tw.wire.headers.topics import (
    CreateTopicRequestHeader,
    DeleteTopicRequestHeader,
    GetTopicStatsInfoRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
)

B = TypeVar("B")
H = TypeVar("H", bound=Header)
T = TypeVar("T")

ADMIN_TIMEOUT = 5.0


class AdminClient:
    """Asks name servers and brokers about themselves, and changes them.

    With `tls` its connections are TLS as the `tls.client` keys say.
    """

    def __init__(
        self,
        reactor: Any,
        name_servers: str | Sequence[str],
        *,
        remoting: IRemotingClient | None = None,
        tls: TlsConfig | None = None,
        timeout: float = ADMIN_TIMEOUT,
    ) -> None:
        self.remoting: IRemotingClient = remoting or RemotingClient(reactor, tls=tls)
        self.names = NameServers(self.remoting, name_servers)
        self._timeout = timeout

    def close(self) -> Deferred[None]:
        """Closes the connections."""
        return self.remoting.close()

    # Name servers: what is asked of one

    def topic_route(self, topic: str) -> Deferred[TopicRouteData | None]:
        """The route of a topic; None where it has none."""
        return self._ask_names(lambda: route_command(topic), read_route)

    def cluster_info(self) -> Deferred[ClusterInfo]:
        """Clusters, broker names and addresses."""
        return self._names_body(RequestCode.GET_BROKER_CLUSTER_INFO, ClusterInfo)

    def topic_list(self) -> Deferred[TopicList]:
        """All topics that name servers know."""
        return self._names_body(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, TopicList)

    def topics_of_cluster(self, cluster: str) -> Deferred[TopicList]:
        header = GetTopicsByClusterRequestHeader(cluster=cluster)
        return self._names_body(RequestCode.GET_TOPICS_BY_CLUSTER, TopicList, header)

    def kv_config(self, namespace: str, key: str) -> Deferred[str | None]:
        """One value; fails with QUERY_NOT_FOUND where there is none."""
        header = GetKVConfigRequestHeader(namespace=namespace, key=key)
        return self._ask_names(
            lambda: RemotingCommand.request(RequestCode.GET_KV_CONFIG, header),
            lambda address, response: (
                check_success(address, response).header(GetKVConfigResponseHeader).value
            ),
        )

    # Name servers: what is said to all

    def put_kv_config(self, namespace: str, key: str, value: str) -> Deferred[None]:
        header = PutKVConfigRequestHeader(namespace=namespace, key=key, value=value)
        return self._tell_names(RequestCode.PUT_KV_CONFIG, header)

    def delete_topic_in_names(self, topic: str, cluster: str | None = None) -> Deferred[None]:
        header = DeleteTopicFromNamesrvRequestHeader(topic=topic, cluster_name=cluster)
        return self._tell_names(RequestCode.DELETE_TOPIC_IN_NAMESRV, header)

    def wipe_write_permission(self, name_server: str, broker_name: str) -> Deferred[int]:
        """Takes the broker's topics out of what producers see; the number of topics changed."""
        return self._header(
            name_server,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER,
            WipeWritePermOfBrokerRequestHeader(broker_name=broker_name),
            WipeWritePermOfBrokerResponseHeader,
        ).addCallback(lambda header: header.wipe_topic_count)

    def add_write_permission(self, name_server: str, broker_name: str) -> Deferred[int]:
        """Undoes `wipe_write_permission`."""
        return self._header(
            name_server,
            RequestCode.ADD_WRITE_PERM_OF_BROKER,
            AddWritePermOfBrokerRequestHeader(broker_name=broker_name),
            AddWritePermOfBrokerResponseHeader,
        ).addCallback(lambda header: header.add_topic_count)

    # Topics of a broker

    def update_topic(
        self, broker: str, config: TopicConfig, *, attributes: str | None = None
    ) -> Deferred[None]:
        """Creates or changes a topic on one broker.

        `attributes` are changes, `+name=value` and `-name` with commas between them; without
        them those of `config` are set.
        """
        if attributes is None:
            attributes = ",".join(
                f"+{name}={value}" for name, value in (config.attributes or {}).items()
            )
        header = CreateTopicRequestHeader(
            topic=config.topic_name,
            default_topic=AUTO_CREATE_TOPIC,
            read_queue_nums=config.read_queue_nums,
            write_queue_nums=config.write_queue_nums,
            perm=config.perm,
            topic_filter_type=config.topic_filter_type,
            topic_sys_flag=config.topic_sys_flag,
            order=config.order,
            attributes=attributes or None,
        )
        return self._tell(broker, RequestCode.UPDATE_AND_CREATE_TOPIC, header)

    def delete_topic(self, broker: str, topic: str) -> Deferred[None]:
        header = DeleteTopicRequestHeader(topic=topic)
        return self._tell(broker, RequestCode.DELETE_TOPIC_IN_BROKER, header)

    def topic_stats(self, broker: str, topic: str) -> Deferred[TopicStatsTable]:
        """Offsets of each queue and when it last changed."""
        header = GetTopicStatsInfoRequestHeader(topic=topic)
        return self._body(broker, RequestCode.GET_TOPIC_STATS_INFO, TopicStatsTable, header)

    def groups_of_topic(self, broker: str, topic: str) -> Deferred[GroupList]:
        header = QueryTopicConsumeByWhoRequestHeader(topic=topic)
        return self._body(broker, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, GroupList, header)

    # Groups of a broker

    def update_group(self, broker: str, config: SubscriptionGroupConfig) -> Deferred[None]:
        """Creates or changes a consumer group on one broker."""
        return self._tell(
            broker, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, encode_body(config)
        )

    def groups(self, broker: str) -> Deferred[SubscriptionGroupTable]:
        """All groups that one broker knows, with their settings."""
        code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        return self._body(broker, code, SubscriptionGroupTable)

    def delete_group(
        self, broker: str, group: str, *, clean_offset: bool = False
    ) -> Deferred[None]:
        header = DeleteSubscriptionGroupRequestHeader(
            group_name=group, clean_offset=clean_offset, remove_offset=clean_offset
        )
        return self._tell(broker, RequestCode.DELETE_SUBSCRIPTIONGROUP, header)

    def consume_stats(
        self, broker: str, group: str, topic: str | None = None
    ) -> Deferred[ConsumeStats]:
        """How far the group is in each queue of the broker."""
        header = GetConsumeStatsRequestHeader(consumer_group=group, topic=topic)
        return self._body(broker, RequestCode.GET_CONSUME_STATS, ConsumeStats, header)

    # Clients of a broker

    def consumer_connections(self, broker: str, group: str) -> Deferred[ConsumerConnection]:
        header = GetConsumerConnectionListRequestHeader(consumer_group=group)
        return self._body(
            broker, RequestCode.GET_CONSUMER_CONNECTION_LIST, ConsumerConnection, header
        )

    def consumer_running_info(
        self, broker: str, group: str, client_id: str, *, jstack: bool = False
    ) -> Deferred[ConsumerRunningInfo]:
        header = GetConsumerRunningInfoRequestHeader(
            consumer_group=group, client_id=client_id, jstack_enable=jstack
        )
        return self._body(
            broker, RequestCode.GET_CONSUMER_RUNNING_INFO, ConsumerRunningInfo, header
        )

    # The broker itself

    def runtime_info(self, broker: str) -> Deferred[KVTable]:
        """Names and values as stock's brokerStatus shows them."""
        return self._body(broker, RequestCode.GET_BROKER_RUNTIME_INFO, KVTable)

    def broker_config(self, broker: str) -> Deferred[dict[str, str]]:
        return self._properties(broker, RequestCode.GET_BROKER_CONFIG)

    def update_broker_config(self, broker: str, changes: dict[str, str]) -> Deferred[None]:
        body = javaproperties.dumps(changes, timestamp=None).encode()
        return self._tell(broker, RequestCode.UPDATE_BROKER_CONFIG, None, body)

    def ha_status(self, broker: str) -> Deferred[HARuntimeInfo]:
        return self._body(broker, RequestCode.GET_BROKER_HA_STATUS, HARuntimeInfo)

    # What the methods above are made of

    def request(
        self, address: str, command: RemotingCommand, timeout: float | None = None
    ) -> Deferred[RemotingCommand]:
        """Any request to any server; the answer whatever its code."""
        return self.remoting.request(address, command, timeout or self._timeout)

    def _read(
        self,
        address: str,
        command: RemotingCommand,
        read: Callable[[str, RemotingCommand], T],
    ) -> Deferred[T]:
        answer = self.remoting.request(address, command, self._timeout)
        return answer.addCallback(lambda response: read(address, response))

    def _tell(
        self, address: str, code: int, header: Header | None = None, body: bytes = b""
    ) -> Deferred[None]:
        command = RemotingCommand.request(code, header, body)
        return self._read(address, command, check_success).addCallback(lambda _: None)

    def _body(
        self, address: str, code: int, body_type: type[B], header: Header | None = None
    ) -> Deferred[B]:
        return self._read(address, RemotingCommand.request(code, header), _body_reader(body_type))

    def _header(self, address: str, code: int, header: Header, answer: type[H]) -> Deferred[H]:
        return self._read(
            address,
            RemotingCommand.request(code, header),
            lambda address, response: check_success(address, response).header(answer),
        )

    def _properties(self, address: str, code: int) -> Deferred[dict[str, str]]:
        return self._read(
            address,
            RemotingCommand.request(code),
            lambda address, response: javaproperties.loads(
                check_success(address, response).body.decode()
            ),
        )

    def _ask_names(
        self,
        make: Callable[[], RemotingCommand],
        read: Callable[[str, RemotingCommand], T],
    ) -> Deferred[T]:
        return self.names.ask(make).addCallback(lambda answer: read(*answer))

    def _names_body(
        self, code: int, body_type: type[B], header: Header | None = None
    ) -> Deferred[B]:
        return self._ask_names(
            lambda: RemotingCommand.request(code, header), _body_reader(body_type)
        )

    def _tell_names(self, code: int, header: Header) -> Deferred[None]:
        async def tell_all() -> None:
            for address in self.names.addresses:
                await self._tell(address, code, header)

        return Deferred.fromCoroutine(tell_all())


def _body_reader(body_type: type[B]) -> Callable[[str, RemotingCommand], B]:
    return lambda address, response: decode_body(body_type, check_success(address, response).body)
