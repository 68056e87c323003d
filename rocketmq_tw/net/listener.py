"""Ports of a server with a table of handlers of their own."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from twisted.internet.defer import Deferred, DeferredList, maybeDeferred, succeed
from twisted.internet.interfaces import IListeningPort
from twisted.internet.protocol import Factory
from twisted.internet.task import LoopingCall
from zope.interface import implementer

from rocketmq_tw.net.address import format_address
from rocketmq_tw.net.connection import Observer, ServerConnection
from rocketmq_tw.net.interfaces import Handler, IListener, RequestCheck, ServedRequest
from rocketmq_tw.net.shared import ConnectionTable, Shared
from rocketmq_tw.net.tls import FirstByte, ServerTls

#: Seconds that replies in flight get when a listener stops.
STOP_TIMEOUT = 3.0
_DRAIN_INTERVAL = 0.02


class OpenConnections:
    """The connections of one listener, those included whose first byte is not there yet.

    They stand in the server's table too, which bounds and watches all of them.
    """

    def __init__(self, clock: Any, table: ConnectionTable) -> None:
        self._clock = clock
        self._table = table
        self._open: set[ServerConnection | FirstByte] = set()
        self._empty: list[Deferred[None]] = []

    def __len__(self) -> int:
        return len(self._open)

    def add(self, connection: ServerConnection | FirstByte) -> None:
        """Takes in `connection`, which is open."""
        self._open.add(connection)
        self._table.add(connection)

    def discard(self, connection: ServerConnection | FirstByte) -> None:
        """Forgets `connection`: it is lost, or another one takes its place."""
        self._open.discard(connection)
        self._table.discard(connection)
        if not self._open:
            waiting, self._empty = self._empty, []
            for deferred in waiting:
                deferred.callback(None)

    def drain(self, timeout: float) -> Deferred[None]:
        """Reads no more, closes each connection once its replies left, all after `timeout` seconds;
        fires when all are gone."""
        if not self._open:
            return succeed(None)
        deadline = self._clock.seconds() + timeout
        for connection in list(self._open):
            connection.drain()

        def look() -> None:
            late = self._clock.seconds() >= deadline
            for connection in list(self._open):
                if late:
                    connection.abort()
                elif not connection.unanswered:
                    connection.lose_connection()

        def all_gone(_: object) -> None:
            if looking.running:
                looking.stop()

        looking = LoopingCall(look)
        looking.clock = self._clock
        gone: Deferred[None] = Deferred()
        self._empty.append(gone)
        looking.start(_DRAIN_INTERVAL)
        return gone.addCallback(all_gone)


class ConnectionFactory(Factory):
    """Builds the connections of one listener."""

    noisy = False

    def __init__(
        self,
        shared: Shared,
        group: OpenConnections,
        handlers: dict[int, Handler],
        before_request: Sequence[RequestCheck],
        observers: Sequence[Observer],
        tls: ServerTls | None,
    ) -> None:
        self._shared = shared
        self._observers = observers
        self._group = group
        self._handlers = handlers
        self._before_request = before_request
        self._tls = tls

    def buildProtocol(self, addr: Any) -> Any:
        if not self._shared.connections.has_room(format_address(addr)):
            return None
        connection = ServerConnection(
            self._shared, self._group, self._handlers, self._before_request, self._observers
        )
        connection.factory = self
        if self._tls is None:
            return connection
        idle = self._shared.config.server_channel_max_idle_time_seconds
        return self._tls.wrap(connection, self._group, self._shared.clock.seconds() + idle)


@implementer(IListener)
class Listener:
    """Ports that share one table of handlers, and the connections made to them.

    `RemotingServer.listener` makes them. `factory` builds their connections, also for a network
    in memory.
    """

    def __init__(
        self,
        reactor: Any,
        shared: Shared,
        tls: ServerTls | None,
        before_request: Sequence[RequestCheck],
        stopped: Callable[["Listener"], None],
    ) -> None:
        self._reactor = reactor
        self._shared = shared
        self._stopped = stopped
        self.handlers: dict[int, Handler] = {}
        self._observers: list[Observer] = []
        self._ports: list[IListeningPort] = []
        self.connections = OpenConnections(shared.clock, shared.connections)
        self.factory = ConnectionFactory(
            shared, self.connections, self.handlers, before_request, self._observers, tls
        )

    def register(self, code: int, handler: Handler) -> None:
        self.handlers[code] = handler

    def serve(self, handlers: Mapping[int, Handler]) -> None:
        self.handlers.clear()
        self.handlers.update(handlers)

    def gather(self, work: Callable[..., None], *args: Any) -> None:
        self._shared.outboxes.gather(work, *args)

    def observe(self, observer: Observer) -> Callable[[], None]:
        # Wrapped, so that each call adds one and takes back its own.
        def told(request: ServedRequest) -> None:
            observer(request)

        def end() -> None:
            if told in self._observers:
                self._observers.remove(told)

        self._observers.append(told)
        return end

    def listen(self, port: int | None = None) -> int:
        config = self._shared.config
        listening = self._reactor.listenTCP(
            config.listen_port if port is None else port,
            self.factory,
            backlog=config.server_socket_backlog,
            interface=config.bind_address,
        )
        self._ports.append(listening)
        self._shared.connections.tell_limit()
        return listening.getHost().port

    def stop_listening(self) -> Deferred[None]:
        ports, self._ports = self._ports, []
        closed = DeferredList([maybeDeferred(port.stopListening) for port in ports])
        return closed.addCallback(lambda _: None)

    def drain(self, timeout: float | None = None) -> Deferred[None]:
        config = self._shared.config
        if timeout is None:
            graceful = config.enable_shutdown_gracefully
            timeout = config.shutdown_wait_time_seconds if graceful else STOP_TIMEOUT
        return self.connections.drain(timeout)

    def stop(self, timeout: float | None = None) -> Deferred[None]:
        def drained(_: None) -> None:
            self._stopped(self)

        closed = self.stop_listening()
        return closed.addCallback(lambda _: self.drain(timeout)).addCallback(drained)
