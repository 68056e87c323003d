"""Brokers that are asked over the network."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred, DeferredList, fail
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from rocketmq_tw.client.name_servers import NameServers
from rocketmq_tw.config.proxy import ProxyConfig
from rocketmq_tw.net.errors import ConnectError, RemotingError
from rocketmq_tw.net.interfaces import IPeer, IRemotingClient
from rocketmq_tw.proxy.brokers import ABSENT_SECONDS, IBrokers, IProxyClient
from rocketmq_tw.proxy.cluster.departures import Departures
from rocketmq_tw.proxy.cluster.known_brokers import KnownBrokers
from rocketmq_tw.proxy.cluster.lanes import Lanes
from rocketmq_tw.proxy.cluster.topic_routes import TopicRoutes
from rocketmq_tw.proxy.memberships import ASKED_OF_CLIENTS, Membership, addressee_of
from rocketmq_tw.wire.bodies.route import TopicRouteData
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError

#: Seconds that a broker has to answer that a client is gone.
_LEAVE_SECONDS = 3.0

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
        self._lanes = Lanes(config.max_connections_per_broker)
        self._departures = Departures(self._lanes, self._ask_over_lane)
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
            connection = self._connection(broker_name, request, client)
        except RequestError:
            return fail()
        asked = connection.request(address, request, timeout)
        return asked.addErrback(self._not_answered)

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
        return told.addErrback(
            lambda failure: log.info(
                "broker {name} is not sent request {code}: {error}",
                name=broker_name,
                code=request.code,
                error=failure.getErrorMessage(),
            )
        )

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

    # Lanes

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
        client = self._lanes.find(lane, addressee_of(request))
        if client is None:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, "the client that is asked is at this proxy no more"
            )
        broker_name = self._known.name_at(peer.address)
        if broker_name is not None:
            request.ext_fields.setdefault("bname", broker_name)
        return client.ask(request, self._config.grpc_proxy_relay_request_timeout_in_seconds)

    def _ask_over_lane(
        self, broker_name: str, lane: int, request: RemotingCommand
    ) -> Deferred[RemotingCommand]:
        address = self._known.address(broker_name)
        if address is None:
            return fail(ConnectError(broker_name, "no name server knows this broker"))
        return self._lane(lane).request(address, request, _LEAVE_SECONDS)

    def _not_answered(self, failure: Failure) -> Failure:
        if failure.check(RemotingError):
            self._known.refresh()
        return failure
