"""TLS as stock has it: a server's three modes.

In mode permissive plaintext and TLS share a port: the first byte of a TLS handshake is 0x16,
which no remoting frame within the limit starts with.
"""

from collections.abc import Callable
from typing import Any

from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.logger import Logger
from twisted.protocols.tls import TLSMemoryBIOFactory
from twisted.python.failure import Failure

from rocketmq_tw.config.net import TlsConfig
from rocketmq_tw.net.address import format_address
from rocketmq_tw.net.tls_contexts import TlsConfigError, TlsContext, server_context

HANDSHAKE_BYTE = 0x16


class ServerTls:
    """Wraps the protocols of a server as `tls.server.mode` says."""

    log = Logger()

    def __init__(self, config: TlsConfig) -> None:
        if config.server_mode not in ("disabled", "permissive", "enforcing"):
            raise TlsConfigError(
                f"tls.server.mode is {config.server_mode!r}; give disabled, permissive or enforcing"
            )
        self._mode = config.server_mode
        self._context: TlsContext | None = None
        if self._mode != "disabled":
            self._context = server_context(config)
        elif config.server_auth_client or config.server_need_client_auth == "require":
            raise TlsConfigError(
                "tls.server.mode is disabled, so no client is checked: set it to enforcing, or"
                " tls.server.authClient to false and tls.server.need.client.auth to none"
            )
        if self._mode == "permissive" and config.server_auth_client:
            self.log.warn(
                "tls.server.mode is permissive: clients that speak plaintext are let in without a"
                " certificate, whatever tls.server.authClient says; enforcing keeps them out"
            )

    def wrap(self, protocol: Protocol, undecided: Any, deadline: float) -> Protocol:
        """What to give to the transport in place of `protocol`; it stands in `undecided` (`add`,
        `discard`) until its first byte came, and is cut where that takes until `deadline`."""
        context = self._context
        if context is None:
            return protocol

        def secured() -> Any:
            wrapped = Factory.forProtocol(lambda: protocol)
            factory = TLSMemoryBIOFactory(context.options(), False, wrapped)
            factory.noisy = False
            return factory.buildProtocol(None)

        plain = protocol if self._mode == "permissive" else None
        return FirstByte(plain, secured, undecided, deadline)


class FirstByte(Protocol):
    """Waits for the first byte and then puts the protocol that it asks for in its place."""

    log = Logger()
    #: No request came yet.
    unanswered = 0

    def __init__(
        self,
        plain: Protocol | None,
        secured: Callable[[], Any],
        undecided: Any,
        deadline: float,
    ) -> None:
        """`secured` makes what takes TLS, with the certificate of the moment."""
        self._plain, self._secured, self._undecided = plain, secured, undecided
        self._chosen: Any = None
        self._deadline = deadline

    def connectionMade(self) -> None:
        self._undecided.add(self)

    def dataReceived(self, data: bytes) -> None:
        self._choose(data[0])
        if self._chosen is not None:
            self._chosen.dataReceived(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._undecided.discard(self)
        if self._chosen is not None:
            self._chosen.connectionLost(reason)

    def check(self, now: float) -> None:
        """Cuts a connection on which nothing came for too long."""
        if now >= self._deadline:
            self.abort()

    def abort(self) -> None:
        """Cuts the connection."""
        self.transport.abortConnection()  # type: ignore[union-attr]

    drain = lose_connection = abort

    def _choose(self, first: int) -> None:
        self._undecided.discard(self)
        self._chosen = self._secured() if first == HANDSHAKE_BYTE else self._plain
        if self._chosen is None:
            self.log.warn(
                "refusing plaintext of {peer}: tls.server.mode is enforcing",
                peer=format_address(self.transport.getPeer()),  # type: ignore[union-attr]
            )
            self.abort()
            return
        self._chosen.makeConnection(self.transport)
        # From here on this layer costs nothing more than the attribute.
        self.dataReceived = self._chosen.dataReceived  # type: ignore[method-assign]
