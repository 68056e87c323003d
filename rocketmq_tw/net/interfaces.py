"""The interfaces by which handlers and callers of the remoting protocol see a connection."""

from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from enum import Enum, auto
from typing import Any

import attrs
from twisted.internet.defer import Deferred
from zope.interface import Attribute, Interface

from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.frame import Frame

#: Answers one request: a response, a Deferred or coroutine of one, or None: then the handler
#: replies through `peer.reply`, now or later. A `RequestError` becomes a response with its code and
#: remark; any other exception SYSTEM_ERROR, logged. Oneway requests are answered as all others: the
#: answer is not sent, but tells the server that the request is over. A handler that answers much
#: later empties `request.body` before it returns, since the server counts it as held memory.
Handler = Callable[[RemotingCommand, "IPeer"], Any]

#: Takes a request of its code before that becomes a command, where it is one that it knows, and
#: answers it through the peer, later. Where it returns False the request goes to the code's
#: `Handler`, as if nobody had looked at it.
FrameHandler = Callable[[Frame, "IFramePeer"], bool]

#: Looks at a request before its handler does (accounts, limits). It refuses by a `RequestError`
#: that it raises, or that its Deferred or coroutine fails with. While that has not fired, nothing
#: else of the connection is carried out, answers to our requests included: so it must not ask the
#: peer. It is given up, cancelled, where the connection is lost. One that leaves some requests
#: alone says so as an `ISelectiveCheck`.
RequestCheck = Callable[[RemotingCommand, "IPeer"], "Deferred[Any] | Awaitable[Any] | None"]

#: Looks at a connection of another protocol, as HA's is, before anything is taken from it or sent
#: over it. It refuses, takes its time and is given up as a `RequestCheck`.
ConnectionCheck = Callable[["IIdentified"], "Deferred[Any] | Awaitable[Any] | None"]


@attrs.frozen
class PeerIdentity:
    """The identity of a peer, as a check has found out. Identities are compared by their name."""

    #: The name of the account.
    name: str
    #: Whether it may do what removes data or ends a service.
    is_administrator: bool = attrs.field(default=False, eq=False)


#: The identity of a peer that no check has identified.
ANONYMOUS = PeerIdentity("")


@attrs.frozen
class AccessChecks:
    """The checks of a server's ports: the listeners' requests, and connections of other protocols
    that belong to it. Each check may set the peer's `identity`."""

    requests: Sequence[RequestCheck] = ()
    connections: Sequence[ConnectionCheck] = ()


#: Every peer is let in, and stays anonymous.
NO_CHECKS = AccessChecks()


#: Builds a connection of another protocol that shares a listener's ports, as HTTP/2 does, from the
#: server's resources (`net.limits.ServerResources`) and what is told when it opens and when it is
#: lost (`net.connection.ConnectionObserver`). It is an `OpenConnection` (`net/server.py`); its
#: `forwarded` is set before it is connected.
ConnectionBuilder = Callable[[Any, Any], Any]


class IIdentified(Interface):
    """The other end of a connection, of whatever protocol."""

    address: str = Attribute("`host:port` of the other end.")
    identity: PeerIdentity = Attribute("Who it is: `ANONYMOUS` until a check sets it.")


class IPeer(IIdentified):
    """The other end of one connection, as a handler sees it."""

    local_address: str = Attribute("`host:port` of this end.")
    connected: bool = Attribute("False once the connection is lost.")

    def request(command: RemotingCommand, timeout: float) -> "Deferred[RemotingCommand]":
        """Sends a request; fires with the response, fails with `RequestTimeout` or
        `ConnectionLost`."""

    def send_oneway(command: RemotingCommand) -> None:
        """Sends without waiting for anything; dropped where the connection is lost."""

    def reply(response: RemotingCommand) -> None:
        """Ends a request, whose `opaque` and oneway flag `response` has, as `request.response()`
        makes it: sends it, unless the request was oneway or the connection is lost."""

    def when_lost(callback: Callable[["IPeer"], None]) -> None:
        """Calls `callback(peer)` once when the connection is lost; at once if it is already."""

    def when_ready(callback: Callable[[], None]) -> None:
        """Calls `callback` once the other end keeps up with what is written: at once, or when it
        has taken it; never where the connection is lost before."""

    def close(reason: str) -> None:
        """Closes the connection and logs why."""


class IFramePeer(IPeer):
    """What a `FrameHandler` sees of the connection that its frames came on."""

    def accepts(frame: Frame, code: int) -> bool:
        """Returns whether the request in `frame` may be opened: its header need not be looked at
        for its size, there is memory, and all checks let requests of its code pass."""

    def has_open(opaque: int) -> bool:
        """Returns whether a request with this opaque is open: then no other one may be opened."""

    def opened(code: int, opaque: int, size: int, *, oneway: bool) -> None:
        """Takes a request that `accepts` has let in, with a body of so many bytes, which counts as
        held until it is over."""

    def reply_encoded(opaque: int, answer: bytes) -> None:
        """Ends such a request with success: sends its answer, an encoded command, unless the
        connection is lost; an empty one where the request was oneway."""


class ISharedPorts(Interface):
    """A reactor by which several processes may listen on one port."""

    def listen_shared(port: int, factory: Any, backlog: int = 50, interface: str = "") -> Any:
        """Listens as `listenTCP` does, where other processes of the user that call this may listen
        too: each connection comes to one of them."""


#: What became of a response, in stock's words: it was written; none was wanted; its connection was
#: lost.
WRITTEN, ONEWAY, LOST = "success", "oneway", "write_channel_failed"

#: Request code; response code, None where the connection was lost before there was one; whether the
#: request was held until there was something to answer; what became of the response (not an `Enum`,
#: whose hash is slow).
RequestResult = tuple[int, int | None, bool, str]

#: Told of each request that is over, with the milliseconds from its arrival until its response was
#: written. It is called for each message that comes, so it has to be fast.
RequestObserver = Callable[[RequestResult, float], None]


class ConnectionEvent(Enum):
    """What becomes of a connection; a closed one may have been idle, or failed, before."""

    CONNECT = auto()
    CLOSE = auto()
    #: Nothing came for `serverChannelMaxIdleTimeSeconds`.
    IDLE = auto()
    #: It ended otherwise than by one of its ends.
    EXCEPTION = auto()


#: Told of each of them.
ConnectionEvents = Callable[[ConnectionEvent], None]


class ISelectiveCheck(Interface):
    """A `RequestCheck` that leaves some requests alone, and says which: those it never sees. Frame
    handlers take requests only where all checks that might see them let them pass."""

    codes: Set[int] = Attribute("The codes of the requests that it may refuse; they never change.")

    def lets_all_pass() -> bool:
        """Returns whether it is sure to let each request pass now, whatever is in it. It is called
        for each message that comes, so it has to be fast."""


class IListener(Interface):
    """Ports of a server that share one table of handlers, and the connections made to them."""

    handlers: Mapping[int, Handler] = Attribute("The table, request code to handler.")
    factory: Any = Attribute("Builds the connections, also those of a network in memory.")

    def register(code: int, handler: Handler) -> None:
        """Answers requests with `code` by `handler`."""

    def listen(port: int | None = None, *, accepts: bool = True, shared: bool = False) -> int:
        """Listens on `port` of the server's address, on the configured port by default; 0 lets the
        kernel choose. May be called for several ports. Without `accepts` the port is taken, and its
        connections wait until `accept` is called. A port that is `shared` may be listened on by
        other processes of the user that share it too.

        Returns the port. Raises `twisted.internet.error.CannotListenError`.
        """

    def accept() -> None:
        """Accepts connections at all ports, also those that wait."""

    def serve(
        handlers: Mapping[int, Handler], frame_handlers: Mapping[int, FrameHandler] = {}
    ) -> None:
        """Answers requests by these handlers and by no others from now on; those of a code with a
        frame handler by that one, as far as it takes them."""

    def add_check(check: RequestCheck) -> Callable[[], None]:
        """Has requests pass `check` too, behind the others, from now on; what is returned ends
        that, and does nothing when it is called again."""

    def gather(work: Callable[..., None], *args: Any) -> None:
        """Calls `work` with `args`; its answers leave in one piece for each connection."""

    def observe(observer: RequestObserver) -> None:
        """Calls `observer` at the end of each request of connections that are made from now on; a
        former observer is told of them no more. A request whose connection is lost ends with
        it."""

    def observe_connections(observer: ConnectionEvents) -> None:
        """Calls `observer` when a remoting connection is made, is idle, fails and is lost, of those
        that are made from now on; a former observer is told of them no more."""

    def stop_listening() -> "Deferred[None]":
        """Closes the ports and keeps the connections; fires when the ports are closed."""

    def drain(timeout: float | None = None) -> "Deferred[None]":
        """Reads no more, lets replies in flight leave, closes the connections of this listener;
        fires when all are gone.

        They get `timeout` seconds; by default `shutdownWaitTimeSeconds` where
        `enableShutdownGracefully` is set, 3 otherwise.
        """

    def stop(timeout: float | None = None) -> "Deferred[None]":
        """Closes the ports, then the connections as `drain` does. The server goes on."""


class IRemotingServer(Interface):
    """Makes listeners, which share its address, limits and TLS. Its maker stops it."""

    def listener(
        *,
        before_request: Sequence[RequestCheck] = (),
        http2: ConnectionBuilder | None = None,
    ) -> IListener:
        """Makes a listener with its own handlers and connections. Requests pass the server's checks
        first, then `before_request`. `http2` builds the connections of clients that begin as
        HTTP/2 does; without it the ports speak remoting only."""

    def check(connection: IIdentified) -> "Deferred[None] | None":
        """Checks a connection of another protocol before it is served. None where it may be, at
        once; else fires when it may be, fails with `RequestError` where it may not. Raises that,
        too."""

    def stop(timeout: float | None = None) -> "Deferred[None]":
        """Stops all listeners; fires when all is closed."""


class IRemotingClient(Interface):
    """Requests to addresses; connections are made, kept and remade beneath."""

    lost: Any = Attribute("`Listeners[str]`, told of the address of a connection that was lost.")

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
