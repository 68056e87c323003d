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


class AdminClient(NameServerAdmin, TopicAdmin, GroupAdmin, MemberAdmin, BrokerAdmin):
    """Asks name servers and brokers about themselves, and changes them.

    With `tls` its connections are TLS as the `tls.client` keys say. `remoting` shares connections;
    `close` ends them. `timeout`: seconds for each answer.
    """
