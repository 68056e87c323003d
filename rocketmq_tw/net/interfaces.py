"""What handlers and callers of the remoting protocol see of a connection."""

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from zope.interface import Attribute, Interface

from rocketmq_tw.wire.command import RemotingCommand

#: Answers one request: a response, None (nothing is sent: the request was oneway, or the handler
#: replies by itself later through `peer.reply`), or a Deferred of either. A `RequestError` becomes
#: a response with its code and remark; any other exception SYSTEM_ERROR, logged.
Handler = Callable[[RemotingCommand, "IPeer"], Any]


class IPeer(Interface):
    """The other end of one connection."""

    address: str = Attribute("`host:port` of the other end.")
    local_address: str = Attribute("`host:port` of this end.")
    connected: bool = Attribute("False once the connection is lost.")

    def request(command: RemotingCommand, timeout: float) -> "Deferred[RemotingCommand]":
        """Sends a request; fires with the response, fails with `RequestTimeout` or
        `ConnectionLost`."""

    def send_oneway(command: RemotingCommand) -> None:
        """Sends without waiting for anything; dropped where the connection is lost."""

    def reply(response: RemotingCommand) -> None:
        """Sends a response whose `opaque` is a request's; dropped where the connection is lost."""

    def when_lost(callback: Callable[["IPeer"], None]) -> None:
        """Calls `callback(peer)` once when the connection is lost; at once if it is already."""

    def when_ready(callback: Callable[[], None]) -> None:
        """Calls `callback` once the other end keeps up with what is written: at once, or when it
        has taken it; never where the connection is lost before."""

    def close(reason: str) -> None:
        """Closes the connection and logs why."""


class IRemotingClient(Interface):
    """Requests to addresses; connections are made, kept and remade beneath."""

    def request(
        address: str, command: RemotingCommand, timeout: float
    ) -> "Deferred[RemotingCommand]":
        """Sends to `host:port`; fails with `ConnectError`, `RequestTimeout` or
        `ConnectionLost`, each naming the address."""

    def send_oneway(address: str, command: RemotingCommand) -> "Deferred[None]":
        """Sends without waiting for an answer; fires once it is handed to the connection."""

    def register(code: int, handler: Handler) -> None:
        """Answers requests that the other end sends over our connections (39, 40, 220 ...)."""

    def close() -> "Deferred[None]":
        """Closes every connection; fires when all are gone."""
