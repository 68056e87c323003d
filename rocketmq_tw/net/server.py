"""The listening side of a process: ports with handlers of their own, and what all of them share:
limits, TLS, checks of access."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

from twisted.internet.abstract import FileDescriptor
from twisted.internet.defer import Deferred, DeferredList, maybeDeferred, succeed
from twisted.internet.interfaces import IListeningPort
from twisted.internet.protocol import Factory
from zope.interface import implementer

from rocketmq_tw.config.net import NettyServerConfig
from rocketmq_tw.net.address import format_address
from rocketmq_tw.net.checks import RequestChecks
from rocketmq_tw.net.connection import ServerConnection
from rocketmq_tw.net.first_bytes import SpokenProtocols
from rocketmq_tw.net.haproxy import Forwarded
from rocketmq_tw.net.interfaces import (
    NO_CHECKS,
    AccessChecks,
    ConnectionBuilder,
    ConnectionCheck,
    ConnectionEvents,
    FrameHandler,
    Handler,
    IIdentified,
    IListener,
    IRemotingServer,
    RequestCheck,
    RequestObserver,
)
from rocketmq_tw.net.limits import ConnectionTable, ServerResources, WatchedConnection
from rocketmq_tw.net.networks import Networks
from rocketmq_tw.net.protocol import as_deferred
from rocketmq_tw.net.tls import ServerTls
from rocketmq_tw.runtime.periodic import PeriodicCall
from rocketmq_tw.runtime.waiters import Waiters
from rocketmq_tw.wire.command import json_start

#: Seconds that replies in flight get when a listener stops.
STOP_TIMEOUT = 3.0
_DRAIN_INTERVAL = 0.02


class OpenConnection(WatchedConnection, Hashable, Protocol):
    """A connection of a listener, of whatever protocol."""

    @property
    def unanswered(self) -> int:
        """Requests that came in and are not answered yet."""

    @property
    def drain_seconds(self) -> float | None:
        """Seconds that its replies get when the listener stops; None: as the listener says."""

    def drain(self) -> None:
        """Takes no more requests; replies still leave."""

    def lose_connection(self) -> None:
        """Closes the connection; what is written still leaves."""

    def abort(self) -> None:
        """Cuts the connection."""


class OpenConnections:
    """The connections of one listener, those included whose protocol is not known yet.

    They stand in the server's table too, which bounds and watches all of them.
    """

    def __init__(self, clock: Any, table: ConnectionTable) -> None:
        self._clock = clock
        self._table = table
        self._open: set[OpenConnection] = set()
        self._empty: Waiters[None] = Waiters()

    def __len__(self) -> int:
        return len(self._open)

    def add(self, connection: OpenConnection) -> None:
        """Takes in `connection`, which is open."""
        self._open.add(connection)
        self._table.add(connection)

    def discard(self, connection: OpenConnection) -> None:
        """Forgets `connection`: it is lost, or another one takes its place."""
        self._open.discard(connection)
        self._table.discard(connection)
        if not self._open:
            self._empty.fire(None)

    def drain(self, timeout: float) -> Deferred[None]:
        """Reads no more, closes each connection once its replies left, and after `timeout` seconds,
        where it has no limit of its own; fires when all are gone."""
        if not self._open:
            return succeed(None)
        began = self._clock.seconds()
        for connection in list(self._open):
            connection.drain()

        def look() -> None:
            waited = self._clock.seconds() - began
            for connection in list(self._open):
                limit = connection.drain_seconds
                if waited >= (timeout if limit is None else limit):
                    connection.abort()
                elif not connection.unanswered:
                    connection.lose_connection()

        def all_gone(_: None) -> None:
            looks.stop()

        looks = PeriodicCall(self._clock, "draining connections", _DRAIN_INTERVAL, look)
        gone = self._empty.wait().addCallback(all_gone)
        looks.start(now=True)
        return gone


class ConnectionFactory(Factory):
    """Builds the connections of one listener."""

    noisy = False

    def __init__(
        self,
        resources: ServerResources,
        group: OpenConnections,
        handlers: dict[int, Handler],
        frame_handlers: Mapping[bytes, FrameHandler],
        checks: RequestChecks,
        tls: ServerTls | None,
        http2: ConnectionBuilder | None,
    ) -> None:
        """`frame_handlers`: by what the headers of their requests begin with."""
        self._resources = resources
        #: Given to connections as they are made.
        self.observer: RequestObserver | None = None
        self.connection_events: ConnectionEvents | None = None
        self._group = group
        self._handlers = handlers
        self._frame_handlers = frame_handlers
        self._checks = checks
        self._http2 = http2
        self._spoken = SpokenProtocols(
            resources.clock,
            self._build_remoting,
            None if http2 is None else self._build_http2,
            tls,
            Networks(resources.config.ha_proxy_addresses),
        )

    def buildProtocol(self, addr: Any) -> Any:
        peer = format_address(addr)
        if not self._resources.connections.has_room(peer):
            return None
        idle = self._resources.config.server_channel_max_idle_time_seconds
        return self._spoken.take(peer, self._group, self._resources.clock.seconds() + idle)

    def _build_remoting(self, forwarded: Forwarded | None) -> ServerConnection:
        connection = ServerConnection(
            self._resources,
            self._group,
            self._handlers,
            self._frame_handlers,
            self._checks,
            self.observer,
            self.connection_events,
        )
        connection.forwarded = forwarded
        connection.factory = self
        return connection

    def _build_http2(self, forwarded: Forwarded | None) -> Any:
        assert self._http2 is not None
        connection = self._http2(self._resources, self._group)
        connection.forwarded = forwarded
        return connection


@implementer(IListener)
class Listener:
    """Ports that share one table of handlers, and the connections made to them.

    `RemotingServer.listener` makes them. `factory` builds their connections, also for a network
    in memory.
    """

    def __init__(
        self,
        reactor: Any,
        resources: ServerResources,
        tls: ServerTls | None,
        before_request: Sequence[RequestCheck],
        stopped: Callable[["Listener"], None],
        http2: ConnectionBuilder | None,
    ) -> None:
        self._reactor = reactor
        self._resources = resources
        self._stopped = stopped
        self.handlers: dict[int, Handler] = {}
        #: By what the header of a request begins with.
        self._frame_handlers: dict[bytes, FrameHandler] = {}
        self._checks = RequestChecks(before_request)
        self._ports: list[IListeningPort] = []
        #: Those of them that do not accept connections yet.
        self._waiting: list[FileDescriptor] = []
        self.connections = OpenConnections(resources.clock, resources.connections)
        self.factory = ConnectionFactory(
            resources,
            self.connections,
            self.handlers,
            self._frame_handlers,
            self._checks,
            tls,
            http2,
        )

    def register(self, code: int, handler: Handler) -> None:
        self.handlers[code] = handler
        # It is to have all requests of the code.
        self._frame_handlers.pop(json_start(code), None)

    def serve(
        self,
        handlers: Mapping[int, Handler],
        frame_handlers: Mapping[int, FrameHandler] = MappingProxyType({}),
    ) -> None:
        self.handlers.clear()
        self.handlers.update(handlers)
        self._frame_handlers.clear()
        self._frame_handlers.update(
            {json_start(code): handler for code, handler in frame_handlers.items()}
        )

    def add_check(self, check: RequestCheck) -> Callable[[], None]:
        return self._checks.add(check)

    def gather(self, work: Callable[..., None], *args: Any) -> None:
        self._resources.outboxes.gather(work, *args)

    def observe(self, observer: RequestObserver) -> None:
        self.factory.observer = observer

    def observe_connections(self, observer: ConnectionEvents) -> None:
        self.factory.connection_events = observer

    def listen(self, port: int | None = None, *, accepts: bool = True, shared: bool = False) -> int:
        config = self._resources.config
        listen = self._reactor.listen_shared if shared else self._reactor.listenTCP
        listening = listen(
            config.listen_port if port is None else port,
            self.factory,
            backlog=config.server_socket_backlog,
            interface=config.bind_address,
        )
        self._ports.append(listening)
        if not accepts and isinstance(listening, FileDescriptor):
            listening.stopReading()
            self._waiting.append(listening)
        self._resources.connections.tell_limit()
        return listening.getHost().port

    def accept(self) -> None:
        waiting, self._waiting = self._waiting, []
        for port in waiting:
            port.startReading()

    def stop_listening(self) -> Deferred[None]:
        ports, self._ports = self._ports, []
        self._waiting.clear()
        closed = DeferredList([maybeDeferred(port.stopListening) for port in ports])
        return closed.addCallback(lambda _: None)

    def drain(self, timeout: float | None = None) -> Deferred[None]:
        config = self._resources.config
        if timeout is None:
            graceful = config.enable_shutdown_gracefully
            timeout = config.shutdown_wait_time_seconds if graceful else STOP_TIMEOUT
        return self.connections.drain(timeout)

    def stop(self, timeout: float | None = None) -> Deferred[None]:
        def drained(_: None) -> None:
            self._stopped(self)

        closed = self.stop_listening()
        return closed.addCallback(lambda _: self.drain(timeout)).addCallback(drained)


@implementer(IRemotingServer)
class RemotingServer:
    """Makes listeners, bounds what their connections hold together, and stops all of them."""

    def __init__(
        self,
        reactor: Any,
        config: NettyServerConfig,
        *,
        tls: ServerTls | None = None,
        access: AccessChecks = NO_CHECKS,
    ) -> None:
        """`access` guards all listeners, and what asks `check`."""
        self._reactor = reactor
        self._resources = ServerResources(reactor, config)
        self._access = access
        self._tls = tls
        self._listeners: list[Listener] = []

    @property
    def bytes_in_flight(self) -> int:
        """What all connections hold now: incomplete frames, open requests, replies not taken."""
        return self._resources.budget.used

    def listener(
        self,
        *,
        before_request: Sequence[RequestCheck] = (),
        http2: ConnectionBuilder | None = None,
    ) -> Listener:
        if http2 is not None and self._tls is not None:
            self._tls.offer(b"h2")
        listener = Listener(
            self._reactor,
            self._resources,
            self._tls,
            [*self._access.requests, *before_request],
            self._listeners.remove,
            http2,
        )
        self._listeners.append(listener)
        return listener

    def check(self, connection: IIdentified) -> Deferred[None] | None:
        return check_connection(self._access.connections, connection)

    def gather(self, work: Callable[..., None], *args: Any) -> None:
        self._resources.outboxes.gather(work, *args)

    def stop(self, timeout: float | None = None) -> Deferred[None]:
        stopped = DeferredList([listener.stop(timeout) for listener in list(self._listeners)])
        return stopped.addCallback(lambda _: None)


def check_connection(
    checks: Sequence[ConnectionCheck], connection: IIdentified
) -> Deferred[None] | None:
    """Has `connection` pass all `checks`, as `IRemotingServer.check` says."""
    rest = list(checks)
    while rest:
        pending = rest.pop(0)(connection)
        if pending is not None:
            return as_deferred(pending).addCallback(lambda _: check_connection(rest, connection))
    return None
