"""A network in memory with delays, cuts and hosts that vanish."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone, ConnectionRefusedError
from twisted.internet.error import ConnectionLost as TransportLost
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from zope.interface import implementer

from tests.support.network import MemoryAddress, MemoryNetwork, MemoryTransport


class TroubledTransport(MemoryTransport):
    """One end of a connection. What is written travels for a while, in order; it may come in
    pieces, and it may come although its writer has closed or is dead."""

    other: TroubledTransport

    def __init__(self, network: TroubledNetwork, local: str, remote: str) -> None:
        super().__init__(network.clock, local, remote)
        self._network = network
        #: This end is over; the other one hears of it behind what is on its way, with this.
        self.farewell: Exception | None = None
        #: The host has lost its power: the other end hears nothing of that.
        self.vanished = False
        #: What is on its way comes not before this time.
        self._not_before = 0.0

    def loseConnection(self) -> None:
        if self.producer is None:
            self._close(ConnectionDone())
        else:
            self.disconnecting = True
            self._schedule()

    def unregisterProducer(self) -> None:
        super().unregisterProducer()
        if self.disconnecting:
            self._close(ConnectionDone())

    def abortConnection(self) -> None:
        if self._network.chance.random() < 0.5:
            self.unsent.clear()
        self._close(TransportLost())

    def break_off(self) -> None:
        """The network tells this end that the connection is lost."""
        self._not_before = self._clock.seconds() + self._network.late()
        self._close(TransportLost())

    def die(self, *, power: bool) -> None:
        """The process is gone: what it has written arrives or not; after a power loss the other
        end hears nothing before it sends something to a host that is there again."""
        self.reading = False
        self.disconnected = True
        chance = self._network.chance
        if chance.random() < (0.7 if power else 0.2):
            self.unsent.clear()
        self.vanished = power
        self.farewell = None if power else TransportLost()
        self._not_before = self._clock.seconds() + self._network.late()
        self._schedule()
        self.other._schedule()

    def _close(self, reason: Exception) -> None:
        if (self.disconnecting and self.farewell is not None) or self.disconnected:
            return
        self.disconnecting = True
        self.reading = False
        self.farewell = reason
        self._clock.callLater(0, self._lost, reason)
        self._schedule()
        self.other._schedule()

    def _lost(self, reason: Exception) -> None:
        if not self.disconnected:
            self.disconnected = True
            self.disconnecting = True
            self.protocol.connectionLost(Failure(reason))

    def write(self, data: bytes) -> None:
        if self.farewell is None:
            super().write(data)

    def _schedule(self, delay: float | None = None) -> None:
        if self._delivery_due or not (self.unsent or self.farewell or self.producer_paused):
            return
        self._delivery_due = True
        self._clock.callLater(self._network.delay() if delay is None else delay, self._deliver)

    def _deliver(self) -> None:
        self._delivery_due = False
        network, other = self._network, self.other
        if self._clock.seconds() < self._not_before:
            self._schedule(self._not_before - self._clock.seconds())
            return
        if not network.reaches(self._local.host, self._remote.host):
            network.held.append(self)
            return
        if other.disconnected:
            if not other.vanished:
                self.unsent.clear()
            elif network.is_up(self._remote.host) and self.reading:
                self.unsent.clear()
                self._lost(TransportLost())
            return
        if self.unsent and other.reading:
            data = b"".join(self.unsent)
            self.unsent.clear()
            if len(data) > 1 and network.chance.random() < 0.05:
                cut = network.chance.randrange(1, len(data))
                self.unsent.append(data[cut:])
                data = data[:cut]
            other.protocol.dataReceived(data)
        if self.producer is not None and self.producer_paused and not self._is_full():
            self.producer_paused = False
            self.producer.resumeProducing()
        if self.unsent and other.reading:
            self._schedule()
        elif self.farewell is not None and not self.unsent and other.reading:
            other._lost(self.farewell)


@implementer(IStreamClientEndpoint)
class _Endpoint:
    def __init__(self, network: TroubledNetwork, host: str, address: str) -> None:
        self._network, self._host, self._address = network, host, address

    def connect(self, factory: Any) -> Deferred[Any]:
        return self._network.connect(self._host, self._address, factory)


class TroubledNetwork(MemoryNetwork):
    """Hosts, each with a process; `chance` decides how long what they send is on its way, up to
    `slowest` seconds; the last words on a connection take up to `latest`."""

    def __init__(self, clock: Clock, chance: Random, *, slowest: float, latest: float) -> None:
        super().__init__(clock)
        self.chance = chance
        self._slowest = slowest
        self._latest = latest
        #: Pairs of hosts: nothing comes from the first to the second.
        self.cut: set[tuple[str, str]] = set()
        #: What waits for the end of a cut.
        self.held: list[TroubledTransport] = []
        self._waiting: list[Callable[[], None]] = []
        self._down: set[str] = set()
        #: Hosts whose process is stopped and answers nobody.
        self.stopped: set[str] = set()
        self._ends: dict[str, list[TroubledTransport]] = {}
        #: How many processes a host has had.
        self._lives: dict[str, int] = {}

    def delay(self) -> float:
        """Seconds on the way."""
        chance = self.chance.random()
        if chance < 0.9:
            return 0.0005 + 0.004 * chance
        return self._slowest * self.chance.random()

    def late(self) -> float:
        """Seconds that the last words of a connection or a process take."""
        return self.delay() if self.chance.random() < 0.5 else self._latest * self.chance.random()

    def reaches(self, source: str, target: str) -> bool:
        """Whether what one host sends comes to another one."""
        return (source, target) not in self.cut

    def is_up(self, host: str) -> bool:
        """Whether the host has power."""
        return host not in self._down

    def came_up(self, host: str) -> None:
        """The host has power, and a new process."""
        self._down.discard(host)
        self.stopped.discard(host)
        self._try_again()
        for end in self._ends.get(host, ()):
            if end.vanished:
                end.other._schedule()

    def heal(self) -> None:
        """The end of all cuts."""
        self.cut.clear()
        held, self.held = self.held, []
        for end in held:
            end._schedule()
        self._try_again()

    def go_on(self, host: str) -> None:
        """The process of a host is not stopped any more."""
        self.stopped.discard(host)
        self._try_again()

    def reset(self, host: str) -> None:
        """A host takes one of its connections for lost; what it has sent may come yet."""
        ends = self.ends(host)
        if ends:
            end = self.chance.choice(ends)
            assert isinstance(end, TroubledTransport)
            end.break_off()

    def ends(self, host: str) -> list[MemoryTransport]:
        found = [end for end in self._ends.get(host, []) if not end.disconnected]
        self._ends[host] = found
        return list(found)

    def stop(self, address: str) -> None:
        self._listening.pop(address, None)
        for end in self.ends(address.rpartition(":")[0]):
            if repr(end.getHost()) == address:
                end.abortConnection()

    def die(self, host: str, *, power: bool) -> None:
        """The process of a host is gone, or the host with it."""
        if power:
            self._down.add(host)
        self._lives[host] = self._lives.get(host, 0) + 1
        for address in [each for each in self._listening if each.startswith(f"{host}:")]:
            del self._listening[address]
        for end in self.ends(host):
            assert isinstance(end, TroubledTransport)
            end.die(power=power)

    def endpoint(self, address: str, local_host: str = "127.0.0.1") -> IStreamClientEndpoint:
        return _Endpoint(self, local_host, address)

    def connect(self, local_host: str, address: str, factory: Any) -> Deferred[Any]:
        """Whoever asks gives up by himself where nothing comes back."""
        asked: Deferred[Any] = Deferred()
        target, life = MemoryAddress(address).host, self._lives.get(local_host)

        def try_it() -> None:
            if asked.called or self._lives.get(local_host) != life:
                return
            if (
                not self.reaches(local_host, target)
                or not self.reaches(target, local_host)
                or target in self._down
                or {local_host, target} & self.stopped
            ):
                self._waiting.append(try_it)
                return
            self._connect_now(asked, local_host, address, factory)

        self.clock.callLater(self.delay(), try_it)
        return asked

    def _connect_now(
        self, asked: Deferred[Any], local_host: str, address: str, factory: Any
    ) -> None:
        server_factory = self._listening.get(address)
        if server_factory is None:
            asked.errback(ConnectionRefusedError(string=f"nobody listens on {address}"))
            return
        self._next_port += 1
        local = f"{local_host}:{self._next_port}"
        near = TroubledTransport(self, local, address)
        far = TroubledTransport(self, address, local)
        near.other, far.other = far, near
        far.protocol = server_factory.buildProtocol(far.getPeer())
        near.protocol = factory.buildProtocol(near.getPeer())
        if far.protocol is None or near.protocol is None:
            asked.errback(ConnectionRefusedError(string=f"{address} closed the connection"))
            return
        for end in (near, far):
            self._ends.setdefault(end.getHost().host, []).append(end)
        far.protocol.makeConnection(far)
        near.protocol.makeConnection(near)
        asked.callback(near.protocol)

    def _try_again(self) -> None:
        waiting, self._waiting = self._waiting, []
        for try_it in waiting:
            self.clock.callLater(self.delay(), try_it)
