"""HA links in memory, for simulations: bytes arrive when the world delivers them, or never."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from twisted.internet.error import ConnectionLost
from twisted.python.failure import Failure

from tests.support.network import MemoryAddress

#: Bytes that a transport takes before it wants no more.
FULL = 600


class World(Protocol):
    """Where links are: all of them, and what happens before the next step."""

    links: list[Link]
    soon: list[Callable[[], None]]


class End:
    """A transport; what is written waits in `unsent` until the world delivers it."""

    def __init__(self, link: Link, local: str, remote: str) -> None:
        self.link = link
        self.protocol: Any = None
        #: Whose end it is, where the world wants to know.
        self.node: Any = None
        self.other: End
        self.unsent = bytearray()
        self.reading = True
        self.lost = False
        self._addresses = MemoryAddress(local), MemoryAddress(remote)
        self._producer: Any = None
        self._full = False

    def getHost(self) -> MemoryAddress:
        return self._addresses[0]

    def getPeer(self) -> MemoryAddress:
        return self._addresses[1]

    def setTcpNoDelay(self, _enabled: bool) -> None:
        """Nothing is delayed for company here."""

    def registerProducer(self, producer: Any, _streaming: bool) -> None:
        self._producer = producer

    def pauseProducing(self) -> None:
        self.reading = False

    def resumeProducing(self) -> None:
        self.reading = True

    def write(self, data: bytes) -> None:
        if self.lost:
            return
        self.unsent += data
        if self._producer is not None and not self._full and len(self.unsent) > FULL:
            self._full = True
            self._producer.pauseProducing()

    def deliver(self, count: int) -> None:
        """The other end reads `count` bytes, unless it does not read."""
        if self.other.lost or not self.other.reading:
            return
        data = bytes(self.unsent[:count])
        del self.unsent[:count]
        if data:
            self.other.protocol.dataReceived(data)
        if self._full and not self.lost and len(self.unsent) <= FULL:
            self._full = False
            self._producer.resumeProducing()

    def abortConnection(self) -> None:
        self.link.world.soon.append(lambda: self.lose())

    def lose(self) -> None:
        """This end hears that the connection is gone; the other one does unless it is frozen."""
        if self.lost:
            return
        self.lost = True
        self.unsent.clear()
        self.protocol.connectionLost(Failure(ConnectionLost()))
        if not self.link.frozen:
            self.link.world.soon.append(self.other.lose)


class Link:
    """One connection of `slave` to the master that listens at `address`."""

    def __init__(self, world: World, slave: Any, address: str) -> None:
        self.world = world
        self.slave = slave
        #: Nothing passes any more, and neither end is told.
        self.frozen = False
        local = f"10.0.0.2:{20000 + len(world.links)}"
        self.near, self.far = End(self, local, address), End(self, address, local)
        self.near.other, self.far.other = self.far, self.near

    @property
    def gone(self) -> bool:
        return self.near.lost and self.far.lost
