"""Requests to addresses: one connection to each, made when first used and kept."""

import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import CancelledError, Deferred, DeferredList, fail, succeed
from twisted.internet.endpoints import HostnameEndpoint, wrapClientTLS
from twisted.internet.interfaces import IHandshakeListener, IReactorTime, IStreamClientEndpoint
from twisted.internet.protocol import Factory, connectionDone
from twisted.internet.tcp import Connection
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from rocketmq_tw.config.net import SPEAKS_NO_TLS, WANTS_TLS, NettyClientConfig, TlsConfig
from rocketmq_tw.net.address import split_address
from rocketmq_tw.net.checks import RequestChecks
from rocketmq_tw.net.errors import ConnectError, RequestTimeout
from rocketmq_tw.net.interfaces import Handler, IPeer, IRemotingClient, RequestCheck
from rocketmq_tw.net.outbox import Outboxes
from rocketmq_tw.net.protocol import RemotingProtocol
from rocketmq_tw.runtime.listeners import Listeners
from rocketmq_tw.runtime.periodic import PeriodicCall
from rocketmq_tw.runtime.retries import GrowingPause
from rocketmq_tw.runtime.steady_time import go_on_steadily
from rocketmq_tw.runtime.waiters import Waiters
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.frame import DEFAULT_FRAME_LIMIT

if TYPE_CHECKING:
    from rocketmq_tw.net.tls_contexts import TlsContext

#: Called with each request before it leaves and the address it goes to (signing).
Sign = Callable[[RemotingCommand, str], None]
#: Where an address is reached; tests give an in-memory one.
EndpointFor = Callable[[str], IStreamClientEndpoint]

#: After a failed attempt the next one waits this long, twice as long each time, up to the last.
FIRST_BACKOFF = 0.1
LAST_BACKOFF = 2.0
#: So long a connection outlives a host that acknowledges nothing. By itself Linux gives it up after
#: a quarter of an hour, and behind the name there may be another host by then.
UNACKNOWLEDGED_SECONDS = 20


def host_endpoints(reactor: Any, connect_timeout: float) -> EndpointFor:
    """Endpoints for `host:port` over TCP; `connect_timeout` is in seconds. An endpoint is made with
    `ValueError` where the text is no address."""

    def endpoint_for(address: str) -> IStreamClientEndpoint:
        host, port = split_address(address)
        return HostnameEndpoint(reactor, host.encode(), port, timeout=connect_timeout)

    return endpoint_for


def send_unheard(
    client: IRemotingClient,
    clock: IReactorTime,
    address: str,
    command: RemotingCommand,
    seconds: float,
) -> None:
    """Sends a oneway request that nothing waits for, such as a heartbeat. It is given up, with a
    line for debugging, where no connection is there within `seconds`."""
    sent = client.send_oneway(address, command)
    sent.addTimeout(seconds, clock)
    sent.addErrback(
        lambda failure: RemotingClient.log.debug(
            "request {code} was not sent to {address}: {why}",
            code=int(command.code),
            address=address,
            why=failure.getErrorMessage(),
        )
    )


def _context(tls: TlsConfig) -> "TlsContext":
    # OpenSSL takes a third of the start of a short command, which mostly does without.
    from rocketmq_tw.net.tls_contexts import client_context

    return client_context(tls)


def _give_up_in_time(transport: Any) -> None:
    """Has the kernel end the connection after `UNACKNOWLEDGED_SECONDS`."""
    while (below := getattr(transport, "transport", None)) is not None:
        # TLS
        transport = below
    if isinstance(transport, Connection) and hasattr(socket, "TCP_USER_TIMEOUT"):
        limit = UNACKNOWLEDGED_SECONDS * 1000
        handle: socket.socket = transport.getHandle()
        handle.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, limit)


class _ClosedUnheard(Exception):
    """The end of a connection on which nothing was received."""


class _TlsEnded(Exception):
    """The end of a connection by TLS, in words."""


class _PlainProtocol(RemotingProtocol):
    """Without TLS: says so where the server ends the connection before a word."""

    _heard = False

    def dataReceived(self, data: bytes) -> None:
        self._heard = True
        # From here on this layer costs nothing more than the attribute.
        self.dataReceived = super().dataReceived  # type: ignore[method-assign]
        super().dataReceived(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if not self._heard and not self._closing:
            reason = Failure(_ClosedUnheard(f"{reason.getErrorMessage()} {WANTS_TLS}"))
        super().connectionLost(reason)


@implementer(IHandshakeListener)
class _TlsProtocol(RemotingProtocol):
    """Within TLS: says in words why that was given up, and where it did not come to be."""

    _is_secure = False

    def handshakeCompleted(self) -> None:
        self._is_secure = True

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        from rocketmq_tw.net.tls_contexts import in_words

        words = in_words(reason.value)
        if words is None and not self._is_secure and not self._closing:
            words = f"{reason.getErrorMessage()} {SPEAKS_NO_TLS}"
        super().connectionLost(reason if words is None else Failure(_TlsEnded(words)))


class _Link:
    """One address: idle, connecting while callers wait, or connected."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.peer: RemotingProtocol | None = None
        self.attempt: Deferred[Any] | None = None
        self.waiting: Waiters[RemotingProtocol] = Waiters()
        self.pause = GrowingPause(FIRST_BACKOFF, LAST_BACKOFF)
        self.retry_at = 0.0
        self.last_error = ""
        self.last_used = 0.0

    @property
    def open_peer(self) -> RemotingProtocol | None:
        """The connection, if there is one. One that was just lost is none: the requests that fail
        with it may be tried again at once."""
        peer = self.peer
        return peer if peer is not None and peer.connected else None


@implementer(IRemotingClient)
class RemotingClient:
    """A pool with one connection an address.

    Callers that come while a connection is being made share the attempt. A lost connection is
    made again by the next request; after a failed attempt requests fail at once until the
    back-off is over, so a dead address costs its callers nothing. With `useTLS` all connections
    are TLS as `tls` says; without a `config` they are where `tls` is given. An answer longer than
    `frame_limit` bytes ends its connection. From now on the time of `reactor` goes on where the
    clock is set. Raises `TlsConfigError` that names a wrong key.
    """

    log = Logger()

    def __init__(
        self,
        reactor: IReactorTime,
        config: NettyClientConfig | None = None,
        *,
        tls: TlsConfig | None = None,
        endpoint_for: EndpointFor | None = None,
        before_send: Sequence[Sign] = (),
        before_request: Sequence[RequestCheck] = (),
        frame_limit: int = DEFAULT_FRAME_LIMIT,
    ) -> None:
        # Before anything of a client waits. A server has chosen its clock by now.
        go_on_steadily(reactor)
        self._frame_limit = frame_limit
        config = config or NettyClientConfig(use_tls=tls is not None)
        self._clock = reactor
        self._connect_timeout = config.connect_timeout_millis / 1000
        self._endpoint_for = endpoint_for or host_endpoints(reactor, self._connect_timeout)
        self._tls = _context(tls or TlsConfig()) if config.use_tls else None
        self._before_send = before_send
        self._checks = RequestChecks(before_request)
        self._handlers: dict[int, Handler] = {}
        self._links: dict[str, _Link] = {}
        self.lost = Listeners[str]("a connection is lost")
        self._outboxes = Outboxes(reactor)
        self._closed = False
        self._idle_timeout = config.client_channel_max_idle_time_seconds
        self._idle_check = PeriodicCall(
            reactor, "closing idle connections", max(1.0, self._idle_timeout / 4), self._close_idle
        )

    # IRemotingClient

    def register(self, code: int, handler: Handler) -> None:
        self._handlers[code] = handler

    def request(
        self, address: str, command: RemotingCommand, timeout: float
    ) -> Deferred[RemotingCommand]:
        for sign in self._before_send:
            sign(command, address)
        link = self._links.get(address)
        if link is not None and (peer := link.open_peer) is not None:
            link.last_used = self._clock.seconds()
            return peer.request(command, timeout)
        deadline = self._clock.seconds() + timeout
        connected = self._connect(address)
        connected.addTimeout(
            timeout,
            self._clock,
            lambda _, __: Failure(RequestTimeout(address, command.code, timeout)),
        )
        return connected.addCallback(
            lambda peer: peer.request(command, max(0.0, deadline - self._clock.seconds()))
        )

    def send_oneway(self, address: str, command: RemotingCommand) -> Deferred[None]:
        for sign in self._before_send:
            sign(command, address)
        return self._connect(address).addCallback(lambda peer: peer.send_oneway(command))

    def close(self) -> Deferred[None]:
        self._closed = True
        self._idle_check.stop()
        gone = []
        for link in list(self._links.values()):
            if link.attempt is not None:
                link.attempt.cancel()
            if link.peer is not None:
                lost: Deferred[IPeer] = Deferred()
                link.peer.when_lost(lost.callback)
                link.peer.lose_connection()
                gone.append(lost)
        return DeferredList(gone).addCallback(lambda _: None)

    # Connections

    def _connect(self, address: str) -> Deferred[RemotingProtocol]:
        link = self._links.get(address)
        if link is None:
            link = self._links[address] = _Link(address)
        now = link.last_used = self._clock.seconds()
        if self._closed:
            return fail(ConnectError(address, "the client is closed"))
        if (peer := link.open_peer) is not None:
            return succeed(peer)
        if link.attempt is None and now < link.retry_at:
            return fail(ConnectError(address, link.last_error))
        caller = link.waiting.wait()
        if link.attempt is None:
            self._start_attempt(link)
        return caller

    def _start_attempt(self, link: _Link) -> None:
        self._idle_check.start()
        try:
            endpoint = self._endpoint_for(link.address)
            if self._tls is not None:
                endpoint = wrapClientTLS(self._tls.options(), endpoint)
        except ValueError as error:
            self._not_connected(Failure(error), link)
            return
        protocol = _PlainProtocol if self._tls is None else _TlsProtocol
        factory = Factory.forProtocol(
            lambda: protocol(
                self._clock,
                self._handlers,
                outboxes=self._outboxes,
                checks=self._checks,
                frame_limit=self._frame_limit,
            )
        )
        factory.noisy = False
        attempt = link.attempt = endpoint.connect(factory)
        attempt.addTimeout(self._connect_timeout, self._clock)
        attempt.addCallbacks(
            self._connected, self._not_connected, callbackArgs=(link,), errbackArgs=(link,)
        )

    def _connected(self, protocol: Any, link: _Link) -> None:
        # Behind TLS the endpoint hands out the wrapper's inner protocol as well.
        link.attempt = None
        link.pause.worked()
        link.peer = protocol
        _give_up_in_time(protocol.transport)
        protocol.when_lost(lambda _: self._lost(link, protocol))
        if self._closed:
            protocol.lose_connection()
        link.waiting.fire(protocol)

    def _not_connected(self, failure: Failure, link: _Link) -> None:
        link.attempt = None
        link.retry_at = self._clock.seconds() + link.pause.failed()
        reason = "cancelled" if failure.check(CancelledError) else failure.getErrorMessage()
        link.last_error = f"cannot connect: {reason}"
        link.waiting.fire(Failure(ConnectError(link.address, link.last_error)))

    def _lost(self, link: _Link, protocol: RemotingProtocol) -> None:
        if link.peer is protocol:
            link.peer = None
        if self._closed:
            self._links.pop(link.address, None)
        self.lost.tell(link.address)

    def _close_idle(self) -> None:
        now = self._clock.seconds()
        for link in list(self._links.values()):
            peer = link.peer
            if peer is None:
                if link.attempt is None and now - link.last_used >= self._idle_timeout:
                    del self._links[link.address]
            elif not peer.waiting and (
                now - max(peer.last_received, link.last_used) >= self._idle_timeout
            ):
                peer.lose_connection()
                link.peer = None
