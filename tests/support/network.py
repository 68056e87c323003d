"""The network in memory, driven by a clock, and a peer that records.

`MemoryNetwork` carries the real protocols between real clients and servers: `clock.advance(0)`
delivers all that is on its way, unless its weather is `Trouble`. `FakePeer` is enough where one
handler is tested by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import Any

from twisted.internet.defer import Deferred, fail
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
from twisted.python.failure import Failure
from zope.interface import implementer

from rocketmq_tw.config.net import NettyClientConfig
from rocketmq_tw.net.client import RemotingClient
from rocketmq_tw.net.errors import ConnectionLost
from rocketmq_tw.net.interfaces import ANONYMOUS, Handler, IPeer, PeerIdentity
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
        self,
        address: str = "127.0.0.1:50000",
        local_address: str = "127.0.0.1:10911",
        identity: PeerIdentity = ANONYMOUS,
    ) -> None:
        self.address = address
        self.local_address = local_address
        self.identity = identity
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

    @property
    def watchers(self) -> int:
        """How many are told when the connection is lost."""
        return len(self._lost)

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


class Weather:
    """How a network in memory treats what is sent: all arrives a clock turn later and in one piece,
    and what was under way when a connection is broken off is lost."""

    def delay(self) -> float:
        """Seconds on the way."""
        return 0.0

    def late(self) -> float:
        """Seconds that the last words of a connection or a process take."""
        return 0.0

    def loses(self, chance: float) -> bool:
        """Whether what an end had sent is lost where it does not end in good order."""
        return True

    def piece(self, size: int) -> int:
        """How many of `size` bytes arrive first."""
        return size


class Trouble(Weather):
    """What is sent takes up to `slowest` seconds and the last words on a connection up to `latest`;
    it comes in pieces, and some comes although its writer is dead; `chance` decides."""

    def __init__(self, chance: Random, *, slowest: float, latest: float) -> None:
        self.chance = chance
        self._slowest = slowest
        self._latest = latest

    def delay(self) -> float:
        chance = self.chance.random()
        if chance < 0.9:
            return 0.0005 + 0.004 * chance
        return self._slowest * self.chance.random()

    def late(self) -> float:
        return self.delay() if self.chance.random() < 0.5 else self._latest * self.chance.random()

    def loses(self, chance: float) -> bool:
        return self.chance.random() < chance

    def piece(self, size: int) -> int:
        if size > 1 and self.chance.random() < 0.05:
            return self.chance.randrange(1, size)
        return size


@implementer(ITransport, IConsumer, IPushProducer)
class MemoryTransport:
    """One end of a connection: what is written arrives at the other end in order, as the network's
    weather has it.

    With `hold()` nothing arrives any more until `let_go()`: an end that does not read, which
    pauses the producer at the other end as a full socket does.
    """

    def __init__(self, network: MemoryNetwork, local: str, remote: str) -> None:
        self._network = network
        self._local, self._remote = MemoryAddress(local), MemoryAddress(remote)
        self.protocol: Any = None
        self.other: MemoryTransport
        self.unsent: list[bytes] = []
        self.producer: Any = None
        self.producer_paused = False
        self.reading = True
        self.disconnecting = False
        self.disconnected = False
        #: This end is over; the other one hears of it behind what is on its way, with this.
        self.farewell: Exception | None = None
        #: The other end is told although it does not read: its system knows that it is over.
        self._resets = False
        #: Nothing passes in either direction, and nobody is told.
        self.frozen = False
        #: The host has lost its power: the other end hears nothing of that.
        self._vanished = False
        #: What is on its way comes not before this time.
        self._not_before = 0.0
        self._delivery_due = False

    def getPeer(self) -> MemoryAddress:
        return self._remote

    def getHost(self) -> MemoryAddress:
        return self._local

    def write(self, data: bytes) -> None:
        if self.disconnected or self.farewell is not None:
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
        self._close_if_all_is_on_its_way()
        self._schedule()

    def _close_if_all_is_on_its_way(self) -> None:
        if self.producer is None and not self._is_full():
            self._close(ConnectionDone())

    def abortConnection(self) -> None:
        if self._network.weather.loses(0.5):
            self.unsent.clear()
        self._close(TransportLost(), resets=True)

    def break_off(self) -> None:
        """The network tells this end that the connection is lost."""
        self._not_before = self._network.clock.seconds() + self._network.weather.late()
        self._close(TransportLost())

    def freeze(self) -> None:
        """Nothing passes any more, and neither end is told."""
        self.frozen = self.other.frozen = True

    def die(self, *, power: bool) -> None:
        """The process is gone: what it has written arrives or not; after a power loss the other
        end hears nothing before it sends something to a host that is there again."""
        self.reading = False
        self.disconnected = True
        if self._network.weather.loses(0.7 if power else 0.2):
            self.unsent.clear()
        self._vanished = power
        self.farewell = None if power else TransportLost()
        self._not_before = self._network.clock.seconds() + self._network.weather.late()
        self._schedule()
        self.other._schedule()

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        self.producer = producer

    def unregisterProducer(self) -> None:
        self.producer = None
        if self.disconnecting:
            self._close_if_all_is_on_its_way()

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
        return sum(map(len, self.unsent)) > self._network.buffer_size

    def _close(self, reason: Exception, *, resets: bool = False) -> None:
        if (self.disconnecting and self.farewell is not None) or self.disconnected:
            return
        self.disconnecting = True
        self.reading = False
        self.farewell = reason
        # As by TCP where something stays unread.
        self._resets = resets or bool(self.other.unsent)
        self._network.clock.callLater(0, self._lost, reason)
        self._schedule()
        self.other._schedule()

    def _lost(self, reason: Exception) -> None:
        if not self.disconnected:
            self.disconnected = True
            self.disconnecting = True
            self.protocol.connectionLost(Failure(reason))

    def _schedule(self, delay: float | None = None) -> None:
        if self._delivery_due or not (self.unsent or self.farewell or self.producer_paused):
            return
        self._delivery_due = True
        network = self._network
        network.clock.callLater(network.weather.delay() if delay is None else delay, self._deliver)

    def _deliver(self) -> None:
        self._delivery_due = False
        network, other = self._network, self.other
        if self.frozen:
            return
        if network.clock.seconds() < self._not_before:
            self._schedule(self._not_before - network.clock.seconds())
            return
        if not network.reaches(self._local.host, self._remote.host):
            network.held.append(self)
            return
        if other.disconnected:
            if not other._vanished:
                self.unsent.clear()
            elif network.is_up(self._remote.host) and self.reading:
                self.unsent.clear()
                self._lost(TransportLost())
            return
        if self.unsent and other.reading:
            data = b"".join(self.unsent)
            self.unsent.clear()
            piece = network.weather.piece(len(data))
            if piece < len(data):
                self.unsent.append(data[piece:])
            other.protocol.dataReceived(data[:piece])
        if self.producer is not None and self.producer_paused and not self._is_full():
            self.producer_paused = False
            self.producer.resumeProducing()
        if self.disconnecting and self.farewell is None:
            self._close_if_all_is_on_its_way()
        if self.unsent and other.reading:
            self._schedule()
        elif self.farewell is not None and self._is_heard():
            other._lost(self.farewell)

    def _is_heard(self) -> bool:
        """Whether the other end hears that this one is over."""
        if self._resets:
            return not self._network.is_stopped(self._remote.host)
        return self.other.reading and not self.unsent


@implementer(IStreamClientEndpoint)
class _MemoryEndpoint:
    def __init__(self, network: MemoryNetwork, local_host: str, address: str) -> None:
        self._network, self._local_host, self._address = network, local_host, address

    def connect(self, factory: Any) -> Deferred[Any]:
        return self._network.connect(self._local_host, self._address, factory)


class MemoryNetwork:
    """Hosts that listen at addresses, and the connections between them; `buffer_size` are the
    bytes that a connection takes before its producer pauses."""

    def __init__(
        self, clock: Any, weather: Weather | None = None, *, buffer_size: int = 65536
    ) -> None:
        self.clock = clock
        self.weather = weather or Weather()
        self.buffer_size = buffer_size
        #: Pairs of hosts: nothing comes from the first to the second.
        self.cut: set[tuple[str, str]] = set()
        #: What waits for the end of a cut.
        self.held: list[MemoryTransport] = []
        #: Hosts whose process is stopped and answers nobody.
        self._stopped: set[str] = set()
        self._down: set[str] = set()
        self._listening: dict[str, Any] = {}
        self._ends: dict[str, list[MemoryTransport]] = {}
        #: Connections that wait for somebody to answer.
        self._connecting: list[Callable[[], None]] = []
        #: How many processes a host has had.
        self._lives: dict[str, int] = {}
        self._next_port = 50000
        #: How many connections there ever were.
        self.made = 0

    def listen(self, address: str, factory: Any) -> None:
        """`factory.buildProtocol` serves the connections to `address`."""
        self._listening[address] = factory

    def close(self, address: str) -> None:
        """`address` takes no more connections; those that it has go on."""
        self._listening.pop(address, None)

    def serve(self, address: str, handlers: Mapping[int, Handler]) -> None:
        """A plain server with a table of handlers."""
        self.listen(address, Factory.forProtocol(lambda: RemotingProtocol(self.clock, handlers)))

    def stop(self, address: str) -> None:
        """`address` goes down: its connections are lost and new ones are refused."""
        self._listening.pop(address, None)
        for end in self.ends(MemoryAddress(address).host):
            if repr(end.getHost()) == address:
                end.abortConnection()

    def ends(self, host: str) -> list[MemoryTransport]:
        """The open connections' ends at a host, the oldest first."""
        found = [end for end in self._ends.get(host, []) if not end.disconnected]
        self._ends[host] = found
        return list(found)

    # Processes and hosts

    def die(self, host: str, *, power: bool = False) -> None:
        """The process of a host is gone, or the host with it."""
        if power:
            self._down.add(host)
        self._lives[host] = self._lives.get(host, 0) + 1
        for address in [each for each in self._listening if each.startswith(f"{host}:")]:
            del self._listening[address]
        for end in self.ends(host):
            end.die(power=power)

    def came_up(self, host: str) -> None:
        """The host is there and may have a process."""
        self._down.discard(host)
        self._stopped.discard(host)
        self._try_again()
        for end in self._ends.get(host, ()):
            if end._vanished:
                end.other._schedule()

    def pause(self, host: str) -> None:
        """The process of a host neither reads nor answers."""
        self._stopped.add(host)
        for end in self.ends(host):
            end.hold()

    def go_on(self, host: str) -> None:
        """The process of a host is not stopped any more."""
        self._stopped.discard(host)
        for end in self.ends(host):
            end.let_go()
        self._try_again()

    def is_stopped(self, host: str) -> bool:
        """Whether the process of the host is paused."""
        return host in self._stopped

    def is_up(self, host: str) -> bool:
        """Whether the host has power."""
        return host not in self._down

    # Faults of the network

    def reaches(self, source: str, target: str) -> bool:
        """Whether what one host sends comes to another one."""
        return (source, target) not in self.cut

    def reset(self, host: str, chance: Random) -> None:
        """A host takes one of its connections for lost; what it has sent may come yet."""
        ends = self.ends(host)
        if ends:
            chance.choice(ends).break_off()

    def heal(self) -> None:
        """Nothing is cut or frozen any more; what was held goes on."""
        self.cut.clear()
        for ends in self._ends.values():
            for end in ends:
                if end.frozen:
                    end.frozen = False
                    end._schedule()
        held, self.held = self.held, []
        for end in held:
            end._schedule()
        self._try_again()

    # Connections

    def client(
        self,
        local_host: str = "127.0.0.1",
        config: NettyClientConfig | None = None,
        *,
        clock: Any = None,
    ) -> RemotingClient:
        """The real client over this network; `clock` is its process's."""
        return RemotingClient(
            clock or self.clock,
            config,
            endpoint_for=lambda address: self.endpoint(address, local_host),
        )

    def endpoint(self, address: str, local_host: str = "127.0.0.1") -> IStreamClientEndpoint:
        """How `local_host` reaches `address`."""
        return _MemoryEndpoint(self, local_host, address)

    def connect(self, local_host: str, address: str, factory: Any) -> Deferred[Any]:
        """Connects a protocol of `factory` to `address`; refused where nobody listens. Where
        nothing comes back, the one that asks gives up by itself."""
        asked: Deferred[Any] = Deferred()
        target, life = MemoryAddress(address).host, self._lives.get(local_host)

        def try_it() -> None:
            if asked.called or self._lives.get(local_host) != life:
                return
            if (
                not self.reaches(local_host, target)
                or not self.reaches(target, local_host)
                or not self.is_up(target)
                or {local_host, target} & self._stopped
            ):
                self._connecting.append(try_it)
                return
            self._connect_now(asked, local_host, address, factory)

        delay = self.weather.delay()
        if delay:
            self.clock.callLater(delay, try_it)
        else:
            try_it()
        return asked

    def _connect_now(
        self, asked: Deferred[Any], local_host: str, address: str, factory: Any
    ) -> None:
        server_factory = self._listening.get(address)
        if server_factory is None:
            asked.errback(ConnectionRefusedError(string=f"nobody listens on {address}"))
            return
        self._next_port += 1
        self.made += 1
        local = f"{local_host}:{self._next_port}"
        near = MemoryTransport(self, local, address)
        far = MemoryTransport(self, address, local)
        near.other, far.other = far, near
        far.protocol = server_factory.buildProtocol(far.getPeer())
        if far.protocol is not None:
            near.protocol = factory.buildProtocol(near.getPeer())
        if near.protocol is None:
            asked.errback(ConnectionRefusedError(string=f"{address} closed the connection"))
            return
        for end in (near, far):
            self._ends.setdefault(end.getHost().host, []).append(end)
        far.protocol.makeConnection(far)
        near.protocol.makeConnection(near)
        asked.callback(near.protocol)

    def _try_again(self) -> None:
        connecting, self._connecting = self._connecting, []
        for try_it in connecting:
            self.clock.callLater(self.weather.delay(), try_it)

    def settle(self) -> None:
        """Delivers all that is on its way, and what that causes, without time going on."""
        self.clock.advance(0)
