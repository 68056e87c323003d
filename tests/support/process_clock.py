"""The clock and the ports of one process among several on one clock and one network in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall, IStreamClientEndpoint
from twisted.internet.task import Clock

from rocketmq_tw.net.client import RemotingClient
from tests.support.network import MemoryAddress, MemoryNetwork


class _Port:
    """A port of the network in memory, as a reactor's."""

    def __init__(self, network: MemoryNetwork, address: str) -> None:
        self._network = network
        self._address = address

    def getHost(self) -> MemoryAddress:
        return MemoryAddress(self._address)

    def stopListening(self) -> Deferred[None]:
        self._network.stop(self._address)
        return succeed(None)


class ProcessClock(Clock):
    """The reactor of a process at `host`; `die` is its kill -9: its connections are lost, and
    nothing that it meant to do happens any more."""

    def __init__(self, shared: Clock, network: MemoryNetwork, host: str) -> None:
        super().__init__()
        self._shared = shared
        self._network = network
        self._host = host
        self._alive = True
        self._paused: list[Callable[[], None]] | None = None

    def seconds(self) -> float:
        return self._shared.seconds()

    def callLater(
        self, delay: float, callable: Callable[..., object], *args: object, **kw: object
    ) -> IDelayedCall:
        def run() -> None:
            if self._paused is not None:
                self._paused.append(run)
            elif self._alive:
                callable(*args, **kw)

        return self._shared.callLater(delay, run)

    def advance(self, amount: float) -> None:
        self._shared.advance(amount)

    def listenTCP(self, port: int, factory: Any, backlog: int = 50, interface: str = "") -> _Port:
        address = f"{self._host}:{port}"
        factory.doStart()
        self._network.listen(address, factory)
        return _Port(self._network, address)

    def client(self) -> RemotingClient:
        """The process's client."""
        return RemotingClient(self, endpoint_for=self.endpoint)

    def endpoint(self, address: str) -> IStreamClientEndpoint:
        """How the process reaches an address."""
        return self._network.endpoint(address, self._host)

    def pause(self) -> None:
        """As SIGSTOP: nothing happens and nothing is read until `go_on`."""
        self._paused = []
        for end in self._ends():
            end.hold()

    def go_on(self) -> None:
        """As SIGCONT."""
        late, self._paused = self._paused or [], None
        for end in self._ends():
            end.let_go()
        for run in late:
            self._shared.callLater(0, run)

    def die(self) -> None:
        """The process is gone."""
        self._alive = False
        self._network.forget(self._host)

    def _ends(self) -> list[Any]:
        return self._network.ends(self._host)
