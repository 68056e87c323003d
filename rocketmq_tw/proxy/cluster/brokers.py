"""Brokers that are asked over the network."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred, DeferredList, fail, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from rocketmq_tw.client.message import SendResult
from rocketmq_tw.client.name_servers import NameServers
from rocketmq_tw.config.proxy import ProxyConfig
from rocketmq_tw.net.errors import ConnectError, RemotingError
from rocketmq_tw.net.interfaces import IPeer, IRemotingClient
from rocketmq_tw.proxy.broker_lines import BrokerLines
from rocketmq_tw.proxy.brokers import (
    ABSENT_SECONDS,
    IBrokers,
    IProxyClient,
    Outgoing,
    send_by_request,
)
from rocketmq_tw.proxy.cluster.departures import Departures
from rocketmq_tw.proxy.cluster.known_brokers import KnownBrokers
from rocketmq_tw.proxy.cluster.lanes import Lanes
from rocketmq_tw.proxy.cluster.topic_routes import TopicRoutes
from rocketmq_tw.proxy.memberships import ASKED_OF_CLIENTS, Membership, addressee_of
from rocketmq_tw.runtime.listeners import Listeners
from rocketmq_tw.runtime.log_throttle import LogThrottleByKey
from rocketmq_tw.wire.bodies.base import encode_body
from rocketmq_tw.wire.bodies.clients import decode_heartbeat
from rocketmq_tw.wire.bodies.queues import MessageQueue
from rocketmq_tw.wire.bodies.route import TopicRouteData
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError

#: Seconds that a broker has to answer that a client is gone.
_LEAVE_SECONDS = 3.0
#: Seconds between two lines of the log about a group with more clients than connections, and how
#: many such groups are remembered for that.
_WARN_SECONDS = 600.0
_MOST_WARNED = 100

log = Logger()


@implementer(IBrokers)
class ClusterBrokers:
    """All brokers of a cluster. `connect` makes a client with a connection of its own to each
    broker: one for requests of the proxy itself, and one for each lane of clients."""

    def __init__(
        self, clock: IReactorTime, config: ProxyConfig, connect: Callable[[], IRemotingClient]
    ) -> None:
        self._config = config
        self._connect = connect
        self._own = connect()
        names = NameServers(self._own, config.namesrv_addr)
        self._routes = TopicRoutes(clock, config, names)
        self._known = KnownBrokers(clock, names)
        self._routes.on_change(lambda topic, route: self._known.learn(route))
        self._clock = clock
        self._lanes = Lanes(config.max_connections_per_broker)
        self._lanes.unseen_changed.add(self._unseen_changed)
        self.unseen_changed = Listeners[str]("brokers see other members of a group")
        self._said_untold = BrokerLines(clock)
        self._warned = LogThrottleByKey[str](_WARN_SECONDS, _MOST_WARNED)
        self._departures = Departures(clock, self._lanes, self._ask_over_lane)
        self._connections: list[IRemotingClient] = []

    def start(self) -> None:
        """Looks for brokers from now on."""
        self._routes.start()
        self._known.start()

    def stop(self) -> Deferred[Any]:
        """Asks no more; fires when all connections are closed."""
        self._routes.stop()
        self._known.stop()
        self._departures.stop()
        return DeferredList([client.close() for client in (self._own, *self._connections)])

    def not_ready(self) -> str:
        """Returns why clients cannot be served yet; an empty text once they can. What is known
        later stays in use where no name server answers."""
        return "" if self._known.is_told else "no name server has told it of a broker"

    # IBrokers

    def route(
        self, topic: str, absent_seconds: float = ABSENT_SECONDS
    ) -> Deferred[TopicRouteData | None]:
        return self._routes.get(topic, absent_seconds)

    def known_route(self, topic: str) -> TopicRouteData | None:
        return self._routes.known(topic)

    def refresh_route(self, topic: str) -> Deferred[TopicRouteData | None]:
        return self._routes.refresh(topic)

    def ask(
        self,
        broker_name: str,
        request: RemotingCommand,
        timeout: float,
        client: IProxyClient | None = None,
    ) -> Deferred[RemotingCommand]:
        address = self._known.address(broker_name)
        if address is None:
            self._known.refresh()
            return fail(ConnectError(broker_name, "no name server knows this broker"))
        try:
            if client is not None and request.code == RequestCode.HEART_BEAT:
                seen = self._as_seen(request, client)
                if seen is None:
                    return succeed(request.response())
                request = seen
            connection = self._connection(broker_name, request, client)
        except RequestError:
            return fail()
        asked = connection.request(address, request, timeout)
        return asked.addErrback(self._not_answered)

    def send(self, queue: MessageQueue, outgoing: Outgoing, timeout: float) -> Deferred[SendResult]:
        return send_by_request(self, queue, outgoing, timeout)

    def withdraw(self, request: RemotingCommand, client: IProxyClient | None = None) -> bool:
        return False

    def tell(
        self, broker_name: str, request: RemotingCommand, client: IProxyClient | None = None
    ) -> Deferred[None]:
        address = self._known.address(broker_name)
        told: Deferred[None]
        if address is None:
            told = fail(ConnectError(broker_name, "no name server knows this broker"))
        else:
            try:
                told = self._connection(broker_name, request, client).send_oneway(address, request)
            except RequestError:
                told = fail()
        return told.addErrback(self._not_told, broker_name, request.code)

    def enter(
        self,
        client: IProxyClient,
        memberships: Collection[Membership],
        broker_names: Collection[str] | None = None,
    ) -> None:
        for departure in self._lanes.enter(client, memberships, broker_names):
            self._departures.tell(departure)

    def leave(self, client: IProxyClient, memberships: Collection[Membership]) -> None:
        self._departures.tell(self._lanes.leave(client, memberships))

    def forget(self, client: IProxyClient) -> None:
        self._departures.tell(self._lanes.remove(client))

    def names(self) -> Sequence[str]:
        return self._known.names()

    def are_told(self) -> bool:
        return self._known.is_told

    def unseen(self, group: str) -> Collection[IProxyClient]:
        return self._lanes.unseen(Membership(group, True))

    # Lanes

    def _as_seen(self, request: RemotingCommand, client: IProxyClient) -> RemotingCommand | None:
        """Returns a client's heartbeat without the groups in which brokers see another one on its
        lane; None where no other group is left. Raises `RequestError`."""
        unseen = self._lanes.unseen_in(client)
        if not unseen:
            return request
        data = decode_heartbeat(request.body)
        data.consumer_data_set = [
            each
            for each in data.consumer_data_set
            if Membership(each.group_name, True) not in unseen
        ]
        data.producer_data_set = [
            each
            for each in data.producer_data_set
            if Membership(each.group_name, False) not in unseen
        ]
        if not data.consumer_data_set and not data.producer_data_set:
            return None
        # It is that of all groups.
        data.heartbeat_fingerprint = data.without_sub = None
        seen = RemotingCommand.request(RequestCode.HEART_BEAT, body=encode_body(data))
        seen.ext_fields = request.ext_fields
        seen.language, seen.version = request.language, request.version
        return seen

    def _unseen_changed(self, membership: Membership) -> None:
        group, is_consumer = membership
        if not is_consumer:
            return
        count = len(self.unseen(group))
        if count and self._warned.is_due(group, self._clock.seconds()):
            log.warn(
                "{count} consumers of {group} are more than the {limit} connections to each broker"
                " (maxConnectionsPerBroker): brokers do not see them, and divide no queues among"
                " them",
                count=count,
                group=group,
                limit=self._config.max_connections_per_broker,
            )
        self.unseen_changed.tell(group)

    def _connection(
        self, broker_name: str, request: RemotingCommand, client: IProxyClient | None
    ) -> IRemotingClient:
        place = None if client is None else self._lanes.place(client)
        if place is None:
            if client is not None and request.code == RequestCode.HEART_BEAT:
                # It had a place, and gave way to one of another host.
                raise RequestError(
                    ResponseCode.SYSTEM_BUSY, f"{client.client_id} has no connection to brokers"
                )
            return self._own
        if request.code == RequestCode.HEART_BEAT:
            place.brokers.add(broker_name)
        return self._lane(place.lane)

    def _lane(self, number: int) -> IRemotingClient:
        while len(self._connections) <= number:
            connection = self._connect()
            for code in ASKED_OF_CLIENTS:
                connection.register(code, partial(self._asked, len(self._connections)))
            self._connections.append(connection)
        return self._connections[number]

    def _asked(self, lane: int, request: RemotingCommand, peer: IPeer) -> Deferred[RemotingCommand]:
        """Passes on what a broker asks a client of a lane."""
        addressee = addressee_of(request)
        client = self._lanes.find(lane, addressee)
        broker_name = self._known.name_at(peer.address)
        if broker_name is not None:
            request.ext_fields.setdefault("bname", broker_name)
        if request.is_oneway and addressee.client_id is None:
            self._tell_unseen(lane, addressee.membership, request)
        if client is None:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, "the client that is asked is at this proxy no more"
            )
        return client.ask(request, self._config.grpc_proxy_relay_request_timeout_in_seconds)

    def _tell_unseen(
        self, lane: int, membership: Membership | None, request: RemotingCommand
    ) -> None:
        """Passes on to those that brokers do not see what a broker tells all consumers of a
        group."""
        if membership is None or not membership.is_consumer:
            return
        for client in list(self._lanes.unseen(membership)):
            place = self._lanes.place(client)
            if place is not None and place.lane == lane:
                client.ask(request, _LEAVE_SECONDS).addErrback(lambda _: None)

    def _ask_over_lane(
        self, broker_name: str, lane: int, request: RemotingCommand
    ) -> Deferred[RemotingCommand]:
        address = self._known.address(broker_name)
        if address is None:
            return fail(ConnectError(broker_name, "no name server knows this broker"))
        return self._lane(lane).request(address, request, _LEAVE_SECONDS)

    def _not_told(self, failure: Failure, broker_name: str, code: int) -> None:
        if self._said_untold.is_due(broker_name):
            log.info(
                "broker {name} is not sent request {code}: {error}",
                name=broker_name,
                code=code,
                error=failure.getErrorMessage(),
            )

    def _not_answered(self, failure: Failure) -> Failure:
        if failure.check(RemotingError):
            self._known.refresh()
        return failure
