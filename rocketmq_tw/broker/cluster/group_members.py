"""Asks name servers which brokers of this broker's group live.

Between two registrations a broker tells them that it is there (904), and asks which others are
(901). Name servers of 4.9 know neither: with `compatibleWithOldNameSrv` the version of the topics
(322) is the heartbeat, and the route of a topic that each broker of the group registers, and nobody
else, names its members (105). Documents: "Slave Acting Master", lightweight heartbeats.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from twisted.internet.defer import Deferred, DeferredList
from twisted.logger import Logger

from rocketmq_tw.broker.assembly.host import Addresses, Host
from rocketmq_tw.broker.role.holder import RoleHolder
from rocketmq_tw.broker.tables.topics.table import TopicTable
from rocketmq_tw.client.errors import check_success
from rocketmq_tw.client.name_server_commands import read_route, route_command
from rocketmq_tw.message.names import member_sync_topic
from rocketmq_tw.net.client import send_unheard
from rocketmq_tw.runtime.listeners import Listeners
from rocketmq_tw.wire.bodies.base import decode_body, encode_body
from rocketmq_tw.wire.bodies.route import BrokerMemberGroupBody
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.namesrv import (
    BrokerHeartbeatRequestHeader,
    GetBrokerMemberGroupRequestHeader,
    QueryDataVersionRequestHeader,
)

#: Broker id -> address.
LivingMembers = Mapping[int, str]

log = Logger()


class GroupMembers:
    """Tells `name_servers`, addresses, that this broker lives, and asks them who else does."""

    def __init__(
        self,
        host: Host,
        addresses: Addresses,
        role: RoleHolder,
        topics: TopicTable,
        name_servers: Sequence[str],
    ) -> None:
        self._config = host.config
        self._client = host.client
        self._clock = host.reactor
        self._addresses = addresses
        self._role = role
        self._topics = topics
        self.name_servers = tuple(name_servers)
        #: Told of all answers to each `ask`.
        self.answered = Listeners[Mapping[str, "LivingMembers | None"]](
            "name servers told the group"
        )

    def beat(self) -> None:
        """Sends a heartbeat to each name server; nothing waits for it. It is given up where no
        connection is there within `sendHeartbeatTimeoutMillis`."""
        seconds = self._config.send_heartbeat_timeout_millis / 1000
        for address in self.name_servers:
            send_unheard(self._client, self._clock, address, self._heartbeat(), seconds)

    def ask(self) -> Deferred[dict[str, LivingMembers | None]]:
        """Fires with the answer of each name server, None where there was none within
        `sendHeartbeatTimeoutMillis`; never fails."""

        def answered(
            results: list[tuple[bool, LivingMembers | None]],
        ) -> dict[str, LivingMembers | None]:
            answers = dict(zip(self.name_servers, (its for _, its in results), strict=True))
            self.answered.tell(answers)
            return answers

        asked = DeferredList([self._ask(address) for address in self.name_servers])
        return asked.addCallback(answered)

    def _ask(self, address: str) -> Deferred[LivingMembers | None]:
        name = self._config.broker_name
        if self._config.compatible_with_old_name_srv:
            command = route_command(member_sync_topic(name))
            read = self._members_of_route
        else:
            cluster = self._config.broker_cluster_name
            header = GetBrokerMemberGroupRequestHeader(cluster_name=cluster, broker_name=name)
            command = RemotingCommand.request(RequestCode.GET_BROKER_MEMBER_GROUP, header)
            read = _members_of_group
        seconds = self._config.send_heartbeat_timeout_millis / 1000
        asked = self._client.request(address, command, seconds)
        return asked.addCallback(lambda response: read(address, response)).addErrback(
            lambda failure: log.debug(
                "name server {address} does not tell the group: {why}",
                address=address,
                why=failure.getErrorMessage(),
            )
        )

    def _heartbeat(self) -> RemotingCommand:
        config, state = self._config, self._role.state
        if config.compatible_with_old_name_srv:
            return RemotingCommand.request(
                RequestCode.QUERY_DATA_VERSION,
                QueryDataVersionRequestHeader(
                    broker_name=config.broker_name,
                    broker_addr=self._addresses.broker,
                    cluster_name=config.broker_cluster_name,
                    broker_id=state.broker_id,
                ),
                encode_body(self._topics.data_version),
                oneway=True,
            )
        header = BrokerHeartbeatRequestHeader(
            cluster_name=config.broker_cluster_name,
            broker_addr=self._addresses.broker,
            broker_name=config.broker_name,
            broker_id=state.broker_id,
        )
        return RemotingCommand.request(RequestCode.BROKER_HEARTBEAT, header, oneway=True)

    def _members_of_route(self, address: str, response: RemotingCommand) -> LivingMembers:
        config, route = self._config, read_route(address, response)
        for broker in () if route is None else route.broker_datas:
            if broker.broker_name == config.broker_name and broker.cluster in (
                None,
                config.broker_cluster_name,
            ):
                return dict(broker.broker_addrs)
        return {}


def _members_of_group(address: str, response: RemotingCommand) -> LivingMembers:
    body = check_success(address, response).body
    group = decode_body(BrokerMemberGroupBody, body).broker_member_group
    return {} if group is None else dict(group.broker_addrs)
