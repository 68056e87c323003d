"""The clock and the ports of one process among several on one clock and one network in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall, IStreamClientEndpoint
from twisted.internet.task import Clock
from zope.interface import implementer

from rocketmq_tw.net.client import RemotingClient
from tests.support.network import MemoryAddress, MemoryNetwork


class MemoryPort:
    """A port of the network in memory, as a reactor's."""

    def __init__(self, network: MemoryNetwork, address: str) -> None:
        self._network = network
        self._address = address

    def getHost(self) -> MemoryAddress:
        return MemoryAddress(self._address)

    def stopListening(self) -> Deferred[None]:
        self._network.stop(self._address)
        return succeed(None)


@implementer(IDelayedCall)
class _Call:
    """A call of a process that may be paused: one that falls due then waits, and may still be
    cancelled or put off."""

    def __init__(self, process: ProcessClock, delay: float, action: Callable[[], object]) -> None:
        self._process = process
        self._action = action
        self._inner = process.shared.callLater(delay, self._due)
        self._waits = False

    def _due(self) -> None:
        self._waits = self._process.paused
        if self._waits:
            self._process.late.append(self)
        elif self._process.alive:
            self._action()

    def go_on(self) -> None:
        """The process runs again."""
        if self._waits:
            self.reset(0)

    def getTime(self) -> float:
        return self._inner.getTime()

    def active(self) -> bool:
        return self._waits or bool(self._inner.active())

    def cancel(self) -> None:
        if self._waits:
            self._waits = False
        else:
            self._inner.cancel()

    def delay(self, secondsLater: float) -> None:
        if self._waits:
            self.reset(secondsLater)
        else:
            self._inner.delay(secondsLater)

    def reset(self, secondsFromNow: float) -> None:
        if self._waits:
            self._waits = False
            self._inner = self._process.shared.callLater(secondsFromNow, self._due)
        else:
            self._inner.reset(secondsFromNow)


class ProcessClock(Clock):
    """The reactor of a process at `host`; `die` is its kill -9: its connections are lost, and
    nothing that it meant to do happens any more."""

    def __init__(self, shared: Clock, network: MemoryNetwork, host: str) -> None:
        super().__init__()
        self.shared = shared
        self._network = network
        self._host = host
        self.alive = True
        self.paused = False
        #: What fell due while it was paused.
        self.late: list[_Call] = []

    def seconds(self) -> float:
        return self.shared.seconds()

    def callLater(
        self, delay: float, callable: Callable[..., object], *args: object, **kw: object
    ) -> IDelayedCall:
        return _Call(self, delay, lambda: callable(*args, **kw))

    def advance(self, amount: float) -> None:
        self.shared.advance(amount)

    def listenTCP(
        self, port: int, factory: Any, backlog: int = 50, interface: str = ""
    ) -> MemoryPort:
        address = f"{self._host}:{port}"
        factory.doStart()
        self._network.listen(address, factory)
        return MemoryPort(self._network, address)

    def client(self) -> RemotingClient:
        """The process's client."""
        return RemotingClient(self, endpoint_for=self.endpoint)

    def endpoint(self, address: str) -> IStreamClientEndpoint:
        """How the process reaches an address."""
        return self._network.endpoint(address, self._host)

    def pause(self) -> None:
        """As SIGSTOP: nothing happens and nothing is read until `go_on`."""
        self.paused = True
        for end in self._ends():
            end.hold()

    def go_on(self) -> None:
        """As SIGCONT."""
        self.paused = False
        late, self.late = self.late, []
        for end in self._ends():
            end.let_go()
        for call in late:
            call.go_on()

    def die(self) -> None:
        """The process is gone."""
        self.alive = False
        self._network.forget(self._host)

    def _ends(self) -> list[Any]:
        return self._network.ends(self._host)
