"""The admin client: the requests of all families, those about a broker itself among them."""

import javaproperties
from twisted.internet.defer import Deferred

from rocketmq_tw.client.admin.groups import GroupAdmin, MemberAdmin
from rocketmq_tw.client.admin.name_servers import NameServerAdmin
from rocketmq_tw.client.admin.requests import ServerRequests
from rocketmq_tw.client.admin.topics import TopicAdmin
from rocketmq_tw.wire.bodies.controller import EpochEntryCache
from rocketmq_tw.wire.bodies.stats import HARuntimeInfo, KVTable
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.headers.broker import AddBrokerRequestHeader, RemoveBrokerRequestHeader

#: Seconds that a container may take to answer: it starts or stops a broker before it does.
CONTAINER_TIMEOUT = 60.0


class BrokerAdmin(ServerRequests):
    """Looks at a broker and changes its configuration."""

    def runtime_info(self, broker: str) -> Deferred[KVTable]:
        """Fires with names and values as stock's brokerStatus shows them."""
        return self._body(broker, RequestCode.GET_BROKER_RUNTIME_INFO, KVTable)

    def broker_config(self, broker: str) -> Deferred[dict[str, str]]:
        """Keys and values of the configuration, as .properties files have them."""
        return self._properties(broker, RequestCode.GET_BROKER_CONFIG)

    def update_broker_config(self, broker: str, changes: dict[str, str]) -> Deferred[None]:
        """Gives keys new values, all or none."""
        body = javaproperties.dumps(changes, timestamp=None).encode()
        return self._tell(broker, RequestCode.UPDATE_BROKER_CONFIG, None, body)

    def ha_status(self, broker: str) -> Deferred[HARuntimeInfo]:
        """Fires with how far replication is: of a master each slave, of a slave itself."""
        return self._body(broker, RequestCode.GET_BROKER_HA_STATUS, HARuntimeInfo)

    def epochs(self, broker: str) -> Deferred[EpochEntryCache]:
        """Fires with the reigns of masters in the log of a broker in controller mode."""
        return self._body(broker, RequestCode.GET_BROKER_EPOCH_CACHE, EpochEntryCache)


class ContainerAdmin(ServerRequests):
    """Adds brokers to a container and removes them."""

    def add_broker(self, container: str, path: str) -> Deferred[None]:
        """Has the container start the broker that the file at `path` of its machine describes."""
        header = AddBrokerRequestHeader(config_path=path)
        return self._tell(container, RequestCode.ADD_BROKER, header, timeout=CONTAINER_TIMEOUT)

    def remove_broker(
        self, container: str, cluster: str, name: str, broker_id: int
    ) -> Deferred[None]:
        """Has the container stop one of its brokers."""
        header = RemoveBrokerRequestHeader(
            broker_name=name, broker_cluster_name=cluster, broker_id=broker_id
        )
        return self._tell(container, RequestCode.REMOVE_BROKER, header, timeout=CONTAINER_TIMEOUT)


class AdminClient(
    NameServerAdmin, TopicAdmin, GroupAdmin, MemberAdmin, BrokerAdmin, ContainerAdmin
):
    """Asks name servers and brokers about themselves, and changes them.

    With `tls` its connections are TLS as the `tls.client` keys say. `remoting` shares connections;
    `close` ends them. `timeout`: seconds for each answer.
    """
