"""A network in memory, driven by a `Clock`, and a peer that records.

`MemoryNetwork` carries the real protocol between real clients and servers: `clock.advance(0)`
delivers all that is on its way. `FakePeer` is enough where one handler is tested by itself.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import ConnectionDone, ConnectionRefusedError
from twisted.internet.error import ConnectionLost as TransportLost
from twisted.internet.interfaces import (
    IAddress,
    IConsumer,
    IPushProducer,
    IStreamClientEndpoint,
    ITransport,
)
from twisted.internet.protocol import Factory
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from zope.interface import implementer

from rocketmq_tw.config.net import NettyClientConfig
from rocketmq_tw.net.client import RemotingClient
from rocketmq_tw.net.errors import ConnectionLost
from rocketmq_tw.net.interfaces import ANONYMOUS, Handler, IPeer
from rocketmq_tw.net.protocol import RemotingProtocol
from rocketmq_tw.wire.command import RemotingCommand


@implementer(IPeer)
class FakePeer:
    """Records what a handler does to its peer.

    `replies` and `oneways` are commands, `ended` the answers to oneway requests, `requests` pairs
    of a command and the Deferred that the test fires with the response, `closed` the reason given
    to `close`; with `ready` False the other end does not keep up until `go_on`.
    """

    def __init__(
        self, address: str = "127.0.0.1:50000", local_address: str = "127.0.0.1:10911"
    ) -> None:
        self.address = address
        self.local_address = local_address
        self.identity = ANONYMOUS
        self.connected = True
        self.replies: list[RemotingCommand] = []
        self.oneways: list[RemotingCommand] = []
        self.ended: list[RemotingCommand] = []
        self.requests: list[tuple[RemotingCommand, Deferred[RemotingCommand]]] = []
        self.closed: str | None = None
        self.ready = True
        self._lost: list[Callable[[IPeer], None]] = []
        self._waiting: list[Callable[[], None]] = []

    def request(self, command: RemotingCommand, timeout: float) -> Deferred[RemotingCommand]:
        if not self.connected:
            return fail(ConnectionLost(self.address, "the connection is closed"))
        answer: Deferred[RemotingCommand] = Deferred()
        self.requests.append((command, answer))
        return answer

    def send_oneway(self, command: RemotingCommand) -> None:
        if self.connected:
            self.oneways.append(command)

    def reply(self, response: RemotingCommand) -> None:
        if response.is_oneway:
            self.ended.append(response)
        elif self.connected:
            self.replies.append(response)

    def when_lost(self, callback: Callable[[IPeer], None]) -> None:
        if self.connected:
            self._lost.append(callback)
        else:
            callback(self)

    def when_ready(self, callback: Callable[[], None]) -> None:
        if self.ready:
            callback()
        else:
            self._waiting.append(callback)

    def go_on(self) -> None:
        """The other end keeps up again."""
        self.ready = True
        waiting, self._waiting = self._waiting, []
        for callback in waiting:
            callback()

    def close(self, reason: str) -> None:
        self.closed = reason
        self.lose()

    def lose(self) -> None:
        """The connection goes away."""
        self.connected = False
        callbacks, self._lost = self._lost, []
        for callback in callbacks:
            callback(self)


@implementer(IAddress)
class MemoryAddress:
    """What `getPeer` and `getHost` of an in-memory transport give."""

    def __init__(self, address: str) -> None:
        self.host, _, port = address.rpartition(":")
        self.port = int(port)

    def __repr__(self) -> str:
        return f"{self.host}:{self.port}"


@implementer(ITransport, IConsumer, IPushProducer)
class MemoryTransport:
    """One end of a connection: what is written arrives at the other end a clock turn later.

    With `hold()` nothing arrives any more until `let_go()`: an end that does not read, which
    pauses the producer at the other end as a full socket does.
    """

    buffer_size = 65536

    def __init__(self, clock: Clock, local: str, remote: str) -> None:
        self._clock = clock
        self._local, self._remote = MemoryAddress(local), MemoryAddress(remote)
        self.protocol: Any = None
        self.other: MemoryTransport
        self.unsent: list[bytes] = []
        self.producer: Any = None
        self.producer_paused = False
        self.reading = True
        self.disconnecting = False
        self.disconnected = False
        self._delivery_due = False

    def getPeer(self) -> MemoryAddress:
        return self._remote

    def getHost(self) -> MemoryAddress:
        return self._local

    def write(self, data: bytes) -> None:
        if self.disconnected:
            return
        self.unsent.append(data)
        if self.producer is not None and not self.producer_paused and self._is_full():
            self.producer_paused = True
            self.producer.pauseProducing()
        self._schedule()

    def writeSequence(self, data: Iterable[bytes]) -> None:
        self.write(b"".join(data))

    def loseConnection(self) -> None:
        self.disconnecting = True
        self.reading = False
        self._schedule()

    def abortConnection(self) -> None:
        self.unsent.clear()
        self._clock.callLater(0, self._disconnect, TransportLost())

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        self.producer = producer

    def unregisterProducer(self) -> None:
        self.producer = None

    def pauseProducing(self) -> None:
        self.reading = False

    def resumeProducing(self) -> None:
        if not self.disconnecting:
            self.reading = True
            self.other._schedule()

    def stopProducing(self) -> None:
        self.loseConnection()

    def setTcpNoDelay(self, enabled: bool) -> None:
        """Asked for through TLS, which passes it on."""

    def hold(self) -> None:
        """This end stops reading by itself, as a hung process does."""
        self.reading = False

    def let_go(self) -> None:
        """This end reads again."""
        self.resumeProducing()

    def _is_full(self) -> bool:
        return sum(map(len, self.unsent)) > self.buffer_size

    def _schedule(self) -> None:
        if not self._delivery_due and not self.disconnected:
            self._delivery_due = True
            self._clock.callLater(0, self._deliver)

    def _deliver(self) -> None:
        self._delivery_due = False
        if self.disconnected or (self.unsent and not self.other.reading):
            if self.other.disconnecting:
                self.unsent.clear()
            return
        data = b"".join(self.unsent)
        self.unsent.clear()
        if data:
            self.other.protocol.dataReceived(data)
        if self.producer is not None and self.producer_paused:
            self.producer_paused = False
            self.producer.resumeProducing()
        if self.disconnecting and not self.unsent:
            self._disconnect(ConnectionDone())

    def _disconnect(self, reason: Exception) -> None:
        for end in (self, self.other):
            if not end.disconnected:
                end.disconnected = True
                end.protocol.connectionLost(Failure(reason))


@implementer(IStreamClientEndpoint)
class _MemoryEndpoint:
    def __init__(self, network: "MemoryNetwork", local_host: str, address: str) -> None:
        self._network, self._local_host, self._address = network, local_host, address

    def connect(self, factory: Any) -> Deferred[Any]:
        return self._network.connect(self._local_host, self._address, factory)


class MemoryNetwork:
    """Addresses that are listened on, and the connections between them."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        #: Both ends of each connection ever made, the client's first.
        self.connections: list[tuple[MemoryTransport, MemoryTransport]] = []
        self._listening: dict[str, Any] = {}
        self._next_port = 50000

    def listen(self, address: str, factory: Any) -> None:
        """`factory.buildProtocol` serves the connections to `address`."""
        self._listening[address] = factory

    def serve(self, address: str, handlers: Mapping[int, Handler]) -> None:
        """A plain server with a table of handlers."""
        self.listen(address, Factory.forProtocol(lambda: RemotingProtocol(self.clock, handlers)))

    def stop(self, address: str) -> None:
        """`address` goes down: its connections are lost and new ones are refused."""
        self._listening.pop(address, None)
        for _, server in self.connections:
            if str(server.getHost()) == address and not server.disconnected:
                server.abortConnection()

    def ends(self, host: str) -> list[MemoryTransport]:
        """The open connections' ends at a host."""
        return [
            end
            for pair in self.connections
            for end in pair
            if end.getHost().host == host and not end.disconnected
        ]

    def forget(self, host: str) -> None:
        """The host is gone, with all that it listens on and all its connections."""
        for address in [each for each in self._listening if each.startswith(f"{host}:")]:
            self.stop(address)
        for end in self.ends(host):
            end.abortConnection()

    def client(
        self, local_host: str = "127.0.0.1", config: NettyClientConfig | None = None
    ) -> RemotingClient:
        """The real client over this network."""
        return RemotingClient(
            self.clock,
            config,
            endpoint_for=lambda address: self.endpoint(address, local_host),
        )

    def endpoint(self, address: str, local_host: str = "127.0.0.1") -> IStreamClientEndpoint:
        """How `local_host` reaches `address`."""
        return _MemoryEndpoint(self, local_host, address)

    def connect(self, local_host: str, address: str, factory: Any) -> Deferred[Any]:
        """Connects a protocol of `factory` to `address`; refused where nobody listens."""
        server_factory = self._listening.get(address)
        if server_factory is None:
            return fail(ConnectionRefusedError(string=f"nobody listens on {address}"))
        self._next_port += 1
        local = f"{local_host}:{self._next_port}"
        near = MemoryTransport(self.clock, local, address)
        far = MemoryTransport(self.clock, address, local)
        near.other, far.other = far, near
        far.protocol = server_factory.buildProtocol(far.getPeer())
        if far.protocol is None:
            return fail(ConnectionRefusedError(string=f"{address} closed the connection"))
        near.protocol = factory.buildProtocol(near.getPeer())
        self.connections.append((near, far))
        far.protocol.makeConnection(far)
        near.protocol.makeConnection(near)
        return succeed(near.protocol)

    def settle(self) -> None:
        """Delivers all that is on its way, and what that causes, without time going on."""
        self.clock.advance(0)
