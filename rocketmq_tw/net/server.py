"""The listening side: connections with limits, so that no peer costs more than it may.

What one peer does never grows our memory: a frame is bounded, what all connections hold together
is bounded (`Budget`), and a peer that does not take its replies is not read from either.
"""

from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.defer import Deferred, DeferredList, maybeDeferred
from twisted.internet.interfaces import IListeningPort, IPushProducer
from twisted.internet.protocol import Factory, connectionDone
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from rocketmq_tw.config.net import NettyServerConfig
from rocketmq_tw.net.address import format_address
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.net.outbox import Outbox, Outboxes
from rocketmq_tw.net.protocol import RemotingProtocol, RequestCheck
from rocketmq_tw.net.tls import FirstByte, ServerTls
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.command import RemotingCommand

#: Seconds between two looks at idle and stuck connections.
SWEEP_INTERVAL = 5.0
#: Answers of a connection that may wait to be taken, in bytes; then no request is carried out.
ENOUGH_UNREAD = 1024 * 1024
#: Seconds that replies in flight get when the server stops.
STOP_TIMEOUT = 3.0
_DRAIN_INTERVAL = 0.02
#: What a request that waits for its answer costs beside its body, roughly.
REQUEST_OVERHEAD = 2048


class Budget:
    """The bytes that all connections of a server hold together, and how many they may."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0

    @property
    def exhausted(self) -> bool:
        return self.used > self.limit


@implementer(IPushProducer)
class ServerProtocol(RemotingProtocol):
    """A connection of a server.

    It registers itself as the producer of what it writes: while the transport says that the
    other end does not keep up, nothing is read from it, so it gets no further replies.
    """

    def __init__(self, factory: "RemotingFactory", budget: Budget) -> None:
        super().__init__(
            factory.clock,
            factory.handlers,
            before_request=factory.before_request,
            frame_limit=factory.config.frame_max_length,
        )
        self._owner = factory
        self._budget = budget
        self._outbox = Outbox(factory.outboxes, None)
        self._held = 0
        self._unread = 0
        #: Opaque -> bytes of a request that is being carried out or held.
        self._open: dict[int, int] = {}
        self._stuck_since: float | None = None
        self._draining = False
        #: When the frame that is not complete yet began.
        self._frame_since: float | None = None

    # Twisted's side

    def connectionMade(self) -> None:
        self._outbox = Outbox(self._owner.outboxes, self.transport)
        super().connectionMade()
        self.transport.registerProducer(self, True)  # type: ignore[union-attr]
        self._owner.connection_made(self)

    def dataReceived(self, data: bytes) -> None:
        self._owner.outboxes.gather(super().dataReceived, data)
        grown = self.buffered - self._held
        if not self._decoder.buffered:
            self._frame_since = None
        elif self._frame_since is None or grown < len(data):
            self._frame_since = self.last_received
        if grown:
            self._held += grown
            self._budget.used += grown
            if grown > 0 and self._budget.exhausted:
                self.close(f"its frame would take more than {self._budget.limit} bytes in flight")

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._budget.used -= self._held + self._unread + sum(self._open.values())
        self._held = self._unread = 0
        self._open.clear()
        self._stuck_since = None
        self._outbox.close()
        super().connectionLost(reason)
        self._owner.connection_lost(self)

    def lose_connection(self) -> None:
        if self.connected and not self._closing:
            self._outbox.flush()
            # A transport waits for its producer before it closes.
            self.transport.unregisterProducer()  # type: ignore[union-attr]
        super().lose_connection()

    def abort(self) -> None:
        self._outbox.close()
        super().abort()

    # IPushProducer: the transport's buffer is full, empty again, gone

    def pauseProducing(self) -> None:
        self._stuck_since = self._clock.seconds()
        self.transport.pauseProducing()  # type: ignore[union-attr]

    def resumeProducing(self) -> None:
        self._budget.used -= self._unread
        self._unread = 0
        self._stuck_since = None
        if self._frame_since is not None:
            # It was us who did not read on.
            self._frame_since = self._clock.seconds()
        self._go_on()
        if not self._closing and not self._draining and self._stuck_since is None:
            self.transport.resumeProducing()  # type: ignore[union-attr]

    def stopProducing(self) -> None:
        """The connection is lost; `connectionLost` does the rest."""

    # Limits

    def drain(self) -> None:
        """Reads nothing any more; replies still leave."""
        self._draining = True
        self._later.clear()
        self.transport.pauseProducing()  # type: ignore[union-attr]

    def check(self, now: float) -> None:
        """Closes a connection that is idle, that does not get on with a frame, or that leaves too
        much unread for too long."""
        config = self._owner.config
        idle = config.server_channel_max_idle_time_seconds
        if self._stuck_since is not None and (
            self._unread > config.max_unread_bytes
            and now - self._stuck_since >= config.max_unread_seconds
        ):
            self.close(f"it leaves {self._unread} bytes unread")
            self.abort()
        elif now - self.last_received >= idle:
            self.lose_connection()
        elif (
            self._stuck_since is None
            and self._frame_since is not None
            and now - self._frame_since >= idle
        ):
            self.close(f"it has not sent the rest of a frame within {idle} s")

    def _write(self, data: bytes) -> None:
        self._outbox.write(data)
        if self._stuck_since is not None:
            self._unread += len(data)
            self._full = self._unread >= ENOUGH_UNREAD
            self._budget.used += len(data)
            if self._budget.exhausted:
                self.close(f"it leaves {self._unread} bytes unread, which are too many for us")
                self.abort()

    def reply(self, response: RemotingCommand) -> None:
        if self._open:
            self._budget.used -= self._open.pop(response.opaque, 0)
        super().reply(response)

    def _serve(self, command: RemotingCommand) -> None:
        budget = self._budget
        if budget.used > budget.limit:
            self._refuse_busy(command)
            return
        before = self.unanswered
        super()._serve(command)
        if self.unanswered > before and self.connected:
            size = REQUEST_OVERHEAD + len(command.body)
            waiting, opaque = self._open, command.opaque
            waiting[opaque] = waiting[opaque] + size if opaque in waiting else size
            budget.used += size

    def _refuse_busy(self, command: RemotingCommand) -> None:
        if not command.is_oneway:
            self.unanswered += 1
            remark = f"{self._budget.used} bytes are in flight; send again later"
            self.reply(command.response(ResponseCode.SYSTEM_BUSY, remark))

    def _wait(self, command: RemotingCommand, result: Deferred[Any]) -> None:
        super()._wait(command, result)
        if command.is_oneway:
            # No reply will say when it is over.
            size = REQUEST_OVERHEAD + len(command.body)
            self._budget.used += size
            result.addBoth(self._give_back, size)

    def _give_back(self, result: Any, size: int) -> Any:
        self._budget.used -= size
        return result


class RemotingFactory(Factory):
    """Builds the protocols of one server and watches over them."""

    log = Logger()
    noisy = False

    def __init__(
        self,
        clock: Any,
        config: NettyServerConfig,
        handlers: dict[int, Handler],
        before_request: Sequence[RequestCheck] = (),
        tls: ServerTls | None = None,
    ) -> None:
        self.clock = clock
        self.config = config
        self.handlers = handlers
        self.before_request = before_request
        self.connections: set[ServerProtocol] = set()
        self.budget = Budget(config.max_bytes_in_flight)
        self.outboxes = Outboxes()
        self._tls = tls
        #: Connections that have not sent the byte yet that tells TLS from plaintext.
        self._undecided: set[FirstByte] = set()
        self._refusing = False
        self._sweep = LoopingCall(self._check_all)
        self._sweep.clock = clock

    def buildProtocol(self, addr: Any) -> Any:
        if len(self.connections) + len(self._undecided) >= self.config.max_connections:
            if not self._refusing:
                self._refusing = True
                self.log.warn(
                    "refusing {peer} and others: {limit} connections are open (maxConnections)",
                    peer=format_address(addr),
                    limit=self.config.max_connections,
                )
            return None
        self._refusing = False
        protocol = ServerProtocol(self, self.budget)
        protocol.factory = self
        self._watch()
        if self._tls is None:
            return protocol
        return self._tls.wrap(protocol, self._undecided, self.clock.seconds())

    def connection_made(self, protocol: ServerProtocol) -> None:
        self.connections.add(protocol)

    def connection_lost(self, protocol: ServerProtocol) -> None:
        self.connections.discard(protocol)

    def drain(self, timeout: float) -> Deferred[None]:
        """Reads no more, lets replies in flight leave, closes; fires when all are gone."""
        deadline = self.clock.seconds() + timeout
        for waiting in list(self._undecided):
            waiting.abort()
        gone = []
        for connection in self.connections:
            lost: Deferred[IPeer] = Deferred()
            connection.when_lost(lost.callback)
            gone.append(lost)
            connection.drain()

        def look() -> None:
            late = self.clock.seconds() >= deadline
            for connection in list(self.connections):
                if late:
                    connection.abort()
                elif not connection.unanswered:
                    connection.lose_connection()

        def all_gone(_: object) -> None:
            for call in (looking, self._sweep):
                if call.running:
                    call.stop()

        looking = LoopingCall(look)
        looking.clock = self.clock
        if gone:
            looking.start(_DRAIN_INTERVAL)
        return DeferredList(gone).addCallback(all_gone)

    def _watch(self) -> None:
        if not self._sweep.running:
            idle = self.config.server_channel_max_idle_time_seconds
            self._sweep.start(min(SWEEP_INTERVAL, max(0.1, idle / 4)), now=False)

    def _check_all(self) -> None:
        if not self.connections and not self._undecided:
            self._sweep.stop()
            return
        now = self.clock.seconds()
        for waiting in list(self._undecided):
            if now - waiting.since >= self.config.server_channel_max_idle_time_seconds:
                waiting.abort()
        for connection in list(self.connections):
            connection.check(now)


class RemotingServer:
    """Ports with one table of handlers."""

    def __init__(
        self,
        reactor: Any,
        config: NettyServerConfig,
        *,
        tls: ServerTls | None = None,
        before_request: Sequence[RequestCheck] = (),
    ) -> None:
        self._reactor = reactor
        self._config = config
        self.handlers: dict[int, Handler] = {}
        self.factory = RemotingFactory(reactor, config, self.handlers, before_request, tls)
        self._ports: list[IListeningPort] = []

    def register(self, code: int, handler: Handler) -> None:
        """Answers requests with `code` by `handler`."""
        self.handlers[code] = handler

    def gather(self, work: Callable[[], None]) -> None:
        """Carries out `work`; its answers leave in one piece for each connection."""
        self.factory.outboxes.gather(work)

    def listen(self, port: int | None = None) -> int:
        """Listens on the configured port, or on `port` as well (0: the kernel chooses).

        Returns the port. Raises `twisted.internet.error.CannotListenError`.
        """
        listening = self._reactor.listenTCP(
            self._config.listen_port if port is None else port,
            self.factory,
            backlog=self._config.server_socket_backlog,
            interface=self._config.bind_address,
        )
        self._ports.append(listening)
        return listening.getHost().port

    def stop(self, timeout: float | None = None) -> Deferred[None]:
        """Stops listening, lets replies in flight leave, closes; fires when all is closed.

        They get `timeout` seconds; by default `shutdownWaitTimeSeconds` where
        `enableShutdownGracefully` is set, 3 otherwise.
        """
        if timeout is None:
            graceful = self._config.enable_shutdown_gracefully
            timeout = self._config.shutdown_wait_time_seconds if graceful else STOP_TIMEOUT
        ports, self._ports = self._ports, []
        stopped = DeferredList([maybeDeferred(port.stopListening) for port in ports])
        return stopped.addCallback(lambda _: self.factory.drain(timeout or 0.0))
