"""Asks name servers, and tells them, as administrators do."""

from collections.abc import Callable
from typing import NamedTuple

from twisted.internet.defer import Deferred

from rocketmq_tw.client.admin.requests import ServerRequests
from rocketmq_tw.client.errors import check_success
from rocketmq_tw.client.name_server_commands import read_route, route_command
from rocketmq_tw.wire.bodies.route import ClusterInfo, TopicRouteData
from rocketmq_tw.wire.bodies.topics import TopicList
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.namesrv import (
    AddWritePermOfBrokerRequestHeader,
    AddWritePermOfBrokerResponseHeader,
    DeleteKVConfigRequestHeader,
    DeleteTopicFromNamesrvRequestHeader,
    GetKVConfigRequestHeader,
    GetKVConfigResponseHeader,
    GetTopicsByClusterRequestHeader,
    PutKVConfigRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
)


class PermissionChange(NamedTuple):
    """In how many topics a name server changed the permission of a broker, and what it has to say
    of it, as that it will not last."""

    topics: int
    remark: str


class NameServerAdmin(ServerRequests):
    """Routes, clusters, values and write permissions. One name server is asked; all are told what
    is to change, also behind one that is down (`at_each`), but for write permissions, where the
    name server is given."""

    def topic_route(self, topic: str) -> Deferred[TopicRouteData | None]:
        """Fires with the route of a topic; None where it has none."""
        return self._ask_names(lambda: route_command(topic), read_route)

    def cluster_info(self) -> Deferred[ClusterInfo]:
        """Clusters, broker names and addresses."""
        return self._names_body(RequestCode.GET_BROKER_CLUSTER_INFO, ClusterInfo)

    def cluster_info_of(self, name_server: str) -> Deferred[ClusterInfo]:
        """Fires with what one name server says of clusters, broker names and addresses."""
        return self._body(name_server, RequestCode.GET_BROKER_CLUSTER_INFO, ClusterInfo)

    def topic_list(self) -> Deferred[TopicList]:
        """Fires with all topics that name servers know."""
        return self._names_body(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, TopicList)

    def topics_of_cluster(self, cluster: str) -> Deferred[TopicList]:
        """Fires with the topics that the brokers of a cluster have."""
        header = GetTopicsByClusterRequestHeader(cluster=cluster)
        return self._names_body(RequestCode.GET_TOPICS_BY_CLUSTER, TopicList, header)

    def kv_config(self, namespace: str, key: str) -> Deferred[str | None]:
        """Fires with one value; fails with QUERY_NOT_FOUND where there is none."""
        header = GetKVConfigRequestHeader(namespace=namespace, key=key)
        return self._ask_names(
            lambda: RemotingCommand.request(RequestCode.GET_KV_CONFIG, header),
            lambda address, response: (
                check_success(address, response).header(GetKVConfigResponseHeader).value
            ),
        )

    def kv_config_of(self, name_server: str, namespace: str, key: str) -> Deferred[str | None]:
        """Fires with one value as one name server has it; fails with QUERY_NOT_FOUND where it has
        none."""
        header = GetKVConfigRequestHeader(namespace=namespace, key=key)
        code = RequestCode.GET_KV_CONFIG
        answer = self._header(name_server, code, header, GetKVConfigResponseHeader)
        return answer.addCallback(lambda header: header.value)

    def put_kv_config(self, namespace: str, key: str, value: str) -> Deferred[None]:
        """Sets one value."""
        header = PutKVConfigRequestHeader(namespace=namespace, key=key, value=value)
        return self._tell_names(RequestCode.PUT_KV_CONFIG, header)

    def delete_kv_config(self, namespace: str, key: str) -> Deferred[None]:
        """Removes one value; one that is not there is no error."""
        header = DeleteKVConfigRequestHeader(namespace=namespace, key=key)
        return self._tell_names(RequestCode.DELETE_KV_CONFIG, header)

    def name_server_config(self, name_server: str) -> Deferred[dict[str, str]]:
        """Keys and values of one name server's configuration, as .properties files have them."""
        return self._properties(name_server, RequestCode.GET_NAMESRV_CONFIG)

    def update_name_server_config(self, name_server: str, changes: dict[str, str]) -> Deferred[str]:
        """Gives keys of one name server new values, all or none; fires with what it has to say of
        it, as that no start will know of them."""
        return self._change_properties(name_server, RequestCode.UPDATE_NAMESRV_CONFIG, changes)

    def delete_topic_in_names(self, topic: str, cluster: str | None = None) -> Deferred[None]:
        """Takes the topic out of the routes, of one cluster or of all."""
        header = DeleteTopicFromNamesrvRequestHeader(topic=topic, cluster_name=cluster)
        return self._tell_names(RequestCode.DELETE_TOPIC_IN_NAMESRV, header)

    def wipe_write_permission(
        self, name_server: str, broker_name: str
    ) -> Deferred[PermissionChange]:
        """Takes the broker's topics out of what producers see."""
        header = WipeWritePermOfBrokerRequestHeader(broker_name=broker_name)
        return self._change_permission(
            name_server,
            RemotingCommand.request(RequestCode.WIPE_WRITE_PERM_OF_BROKER, header),
            lambda response: response.header(WipeWritePermOfBrokerResponseHeader).wipe_topic_count,
        )

    def add_write_permission(
        self, name_server: str, broker_name: str
    ) -> Deferred[PermissionChange]:
        """Undoes `wipe_write_permission`."""
        header = AddWritePermOfBrokerRequestHeader(broker_name=broker_name)
        return self._change_permission(
            name_server,
            RemotingCommand.request(RequestCode.ADD_WRITE_PERM_OF_BROKER, header),
            lambda response: response.header(AddWritePermOfBrokerResponseHeader).add_topic_count,
        )

    def _change_permission(
        self,
        name_server: str,
        command: RemotingCommand,
        topics_of: Callable[[RemotingCommand], int],
    ) -> Deferred[PermissionChange]:
        def read(address: str, response: RemotingCommand) -> PermissionChange:
            topics = topics_of(check_success(address, response))
            return PermissionChange(topics, response.remark or "")

        return self._read(name_server, command, read)
