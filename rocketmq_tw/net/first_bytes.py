"""Tells by the first bytes of a connection which protocol it speaks.

One port takes remoting, HTTP/2 and TLS with either inside, each behind the header of a load
balancer. The first byte of a TLS handshake is 0x16, and HTTP/2 begins with `PRI `: no remoting
frame within the limit starts so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
from twisted.internet.interfaces import IReactorTime
from twisted.internet.protocol import Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketmq_tw.net.address import format_address
from rocketmq_tw.net.haproxy import Forwarded, read_forwarding
from rocketmq_tw.net.networks import Networks
from rocketmq_tw.net.tls import HANDSHAKE_BYTE, ServerTls

_HTTP2 = b"PRI "

#: Makes the protocol of a connection; gets the two ends that a load balancer named, or None.
Build = Callable[[Forwarded | None], Any]


@attrs.frozen
class SpokenProtocols:
    """The protocols of a port."""

    clock: IReactorTime
    remoting: Build
    #: None where HTTP/2 is not spoken.
    http2: Build | None
    tls: ServerTls | None
    #: The load balancers whose header is believed.
    trusted: Networks

    def take(self, peer: str, undecided: Any, deadline: float) -> Any:
        """Returns what to give to the transport of a connection of `peer`. It stands in `undecided`
        (`add`, `discard`) until it is decided, and is cut where that takes until `deadline`."""
        is_trusted = peer in self.trusted
        if is_trusted or self.http2 is not None or (self.tls is not None and self.tls.is_on):
            return FirstBytes(self, undecided, deadline, is_trusted=is_trusted)
        return self.remoting(None)


class FirstBytes(Protocol):
    """Waits for the first bytes and then puts the protocol that speaks so in its place."""

    log = Logger()
    #: No request came yet.
    unanswered = 0
    drain_seconds: float | None = None

    def __init__(
        self,
        spoken: SpokenProtocols,
        undecided: Any,
        deadline: float,
        *,
        is_trusted: bool = False,
        is_secured: bool = False,
        forwarded: Forwarded | None = None,
    ) -> None:
        """`is_trusted`: a header may come in front; `is_secured`: this is within TLS."""
        self._spoken, self._undecided, self._deadline = spoken, undecided, deadline
        self._is_trusted, self._is_secured = is_trusted, is_secured
        self._forwarded = forwarded
        self._held = b""
        self._chosen: Any = None
        self._is_over = False

    def connectionMade(self) -> None:
        self._undecided.add(self)

    def dataReceived(self, data: bytes) -> None:
        if self._is_over:
            return
        self._held += data
        try:
            chosen = self._choose()
        except ValueError as error:
            self._refuse(str(error))
            return
        if chosen is None:
            return
        self._undecided.discard(self)
        held, self._held = self._held, b""
        self._chosen = chosen
        chosen.makeConnection(self.transport)
        # From here on this layer costs nothing more than the attribute.
        self.dataReceived = chosen.dataReceived  # type: ignore[method-assign]
        if held:
            chosen.dataReceived(held)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._is_over = True
        self._undecided.discard(self)
        if self._chosen is not None:
            self._chosen.connectionLost(reason)

    def check(self, now: float) -> None:
        """Cuts a connection on which nothing, or too little, came for too long."""
        if now >= self._deadline:
            self.abort()

    def abort(self) -> None:
        """Cuts the connection."""
        self._is_over = True
        self.transport.abortConnection()  # type: ignore[union-attr]

    drain = lose_connection = abort

    def _choose(self) -> Any:
        """Returns the protocol that takes what is held; None where more is needed."""
        if self._is_trusted:
            header = read_forwarding(self._held)
            if header is None:
                return None
            self._is_trusted = False
            self._forwarded = header.forwarded
            self._held = self._held[header.length :]
        if not self._held:
            return None
        spoken = self._spoken
        tls = None if self._is_secured else spoken.tls
        if tls is not None and tls.is_on:
            if self._held[0] == HANDSHAKE_BYTE:
                return tls.secure(self._within_tls(), spoken.clock)
            if tls.is_enforced:
                raise ValueError("tls.server.mode is enforcing, and it speaks plaintext")
        if spoken.http2 is not None:
            if self._held.startswith(_HTTP2):
                return spoken.http2(self._forwarded)
            if _HTTP2.startswith(self._held):
                return None
        return spoken.remoting(self._forwarded)

    def _within_tls(self) -> Any:
        spoken = self._spoken
        if spoken.http2 is None:
            return spoken.remoting(self._forwarded)
        return FirstBytes(
            spoken, self._undecided, self._deadline, is_secured=True, forwarded=self._forwarded
        )

    def _refuse(self, reason: str) -> None:
        peer = format_address(self.transport.getPeer())  # type: ignore[union-attr]
        self.log.warn("refusing {peer}: {reason}", peer=peer, reason=reason)
        self.abort()
