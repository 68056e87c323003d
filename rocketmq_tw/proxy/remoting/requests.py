"""The requests of classic clients, by code."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.proxy.brokers import Endpoint, IBrokers
from rocketmq_tw.proxy.heartbeat_sync.sync import HeartbeatSync
from rocketmq_tw.proxy.metadata import Metadata
from rocketmq_tw.proxy.remoting.broker_ports import NO_PORTS, BrokerPorts
from rocketmq_tw.proxy.remoting.clients import ClassicClients
from rocketmq_tw.proxy.remoting.groups import ClassicGroups
from rocketmq_tw.proxy.remoting.heartbeats import ClassicHeartbeats
from rocketmq_tw.proxy.remoting.notices import OtherMemberNotices
from rocketmq_tw.proxy.remoting.passing import Passing, limit_hold
from rocketmq_tw.proxy.remoting.pops import UndeliveredPops
from rocketmq_tw.proxy.remoting.routes import ClassicRoutes
from rocketmq_tw.proxy.remoting.sends import ClassicSends
from rocketmq_tw.proxy.remoting.targets import Targets, named_broker
from rocketmq_tw.runtime.periodic import PeriodicCall
from rocketmq_tw.runtime.slices import Slices
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import RemotingCommand

#: Seconds between two scans for silent clients.
_SCAN_SECONDS = 10.0
#: Requests that go to the one broker that they name or whose queue they are about.
_TO_ONE_BROKER = (
    RequestCode.CONSUMER_SEND_MSG_BACK,
    RequestCode.RECALL_MESSAGE,
    RequestCode.PULL_MESSAGE,
    RequestCode.LITE_PULL_MESSAGE,
    RequestCode.POP_MESSAGE,
    RequestCode.ACK_MESSAGE,
    RequestCode.BATCH_ACK_MESSAGE,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
    RequestCode.PEEK_MESSAGE,
    RequestCode.NOTIFICATION,
    RequestCode.POLLING_INFO,
    RequestCode.QUERY_CONSUMER_OFFSET,
    RequestCode.UPDATE_CONSUMER_OFFSET,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
    RequestCode.GET_MAX_OFFSET,
    RequestCode.GET_MIN_OFFSET,
    RequestCode.GET_EARLIEST_MSG_STORETIME,
    RequestCode.LOCK_BATCH_MQ,
    RequestCode.UNLOCK_BATCH_MQ,
)
_OF_GROUPS = (
    RequestCode.GET_CONSUMER_LIST_BY_GROUP,
    RequestCode.GET_CONSUMER_CONNECTION_LIST,
    RequestCode.GET_CONSUMER_RUNNING_INFO,
)


class ClassicRequests:
    """Answers classic clients, whose brokers all have the proxy's address. `advertised` is what
    routes name in place of the address at which a client asked, but for `ports`; with `metadata`
    topics take messages of their type only (enableTopicMessageTypeCheck)."""

    def __init__(
        self,
        brokers: IBrokers,
        clock: IReactorTime,
        heartbeat_sync: HeartbeatSync,
        pops: UndeliveredPops,
        advertised: Endpoint | None = None,
        metadata: Metadata | None = None,
        ports: BrokerPorts = NO_PORTS,
    ) -> None:
        self.clients = ClassicClients(brokers, ports)
        self._passing = Passing(brokers, clock)
        self._targets = Targets(brokers)
        self._routes = ClassicRoutes(brokers, self.clients, ports, advertised)
        self._heartbeats = ClassicHeartbeats(brokers, self.clients, clock, heartbeat_sync.telling)
        self._pops = pops
        self._groups = ClassicGroups(
            clock, brokers, self.clients, self._passing, heartbeat_sync.members
        )
        self._sends = ClassicSends(
            brokers, self.clients, self._passing, self._targets, metadata, heartbeat_sync.topic
        )
        in_slices = Slices(clock)
        self._notices = OtherMemberNotices(
            clock, brokers, self.clients, heartbeat_sync.members, in_slices
        )
        self._expiring = PeriodicCall(
            clock,
            "the scan for silent classic clients",
            _SCAN_SECONDS,
            lambda: in_slices(self.clients.expire(clock.seconds())),
        )

    def start(self) -> None:
        """Looks for silent clients from now on."""
        self._expiring.start()

    def stop(self) -> None:
        """Looks for silent clients no more."""
        self._expiring.stop()
        self._notices.stop()

    def handlers(self) -> dict[int, Handler]:
        """Returns the handlers by request code. No request of administrators is among them: a
        broker would take it for one of the proxy, and judge by its address."""
        return {
            **dict.fromkeys(map(int, _TO_ONE_BROKER), self.pass_on),
            **self._sends.handlers(),
            **dict.fromkeys(map(int, _OF_GROUPS), self._groups.of_group),
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self._routes.route,
            RequestCode.HEART_BEAT: self._heartbeats.heartbeat,
            RequestCode.UNREGISTER_CLIENT: self._heartbeats.unregister,
            RequestCode.CHECK_CLIENT_CONFIG: self._groups.check_client,
            RequestCode.QUERY_ASSIGNMENT: self._groups.assignment,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self._groups.consume_directly,
        }

    def pass_on(
        self, request: RemotingCommand, peer: IPeer
    ) -> RemotingCommand | Deferred[RemotingCommand]:
        """Passes a request on to its one broker."""
        timeout = limit_hold(request)
        name = named_broker(request) or self.clients.of(peer).broker_name
        if name is not None:
            return self._pass_to(name, request, peer, timeout)
        found = Deferred.fromCoroutine(self._targets.find(request))
        return found.addCallback(self._pass_to, request, peer, timeout)

    def _pass_to(
        self, name: str, request: RemotingCommand, peer: IPeer, timeout: float
    ) -> RemotingCommand | Deferred[RemotingCommand]:
        client = self.clients.of(peer)
        self.clients.note_broker(client, name)
        answer = self._passing.to(name, request, client, timeout)
        if request.code == RequestCode.POP_MESSAGE and isinstance(answer, Deferred):
            return self._pops.watch(answer, request, name, peer)
        return answer
