"""The scheduler of a simulation, and the reactor of each process in it."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count
from typing import Any

from twisted.internet.base import DelayedCall
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.task import Clock
from zope.interface import implementer

from rocketmq_tw.net.client import RemotingClient
from tests.support.network import MemoryAddress, MemoryNetwork

#: Seconds that a call is late.
MOMENT = 1e-6


class EventClock(Clock):
    """Each call is made at its own time, calls of one time in the order in which they were asked
    for; many calls that wait cost nothing."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting: list[tuple[float, int, DelayedCall]] = []
        self._numbers = count()

    def callLater(
        self, delay: float, callable: Callable[..., object], *args: object, **kw: object
    ) -> DelayedCall:
        call = DelayedCall(
            self.rightNow + delay, callable, args, kw, lambda _: None, self.put, self.seconds
        )
        self.put(call)
        return call

    def step(self, until: float) -> bool:
        """Makes the next call that is due at `until` (seconds); False where there is none, and it
        is `until` then."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= max(until, self.rightNow):
            due, _, call = heapq.heappop(waiting)
            if call.called or call.cancelled:
                continue
            if call.getTime() > due:
                self.put(call)
                continue
            # A moment later, as in any reactor: who asks for the time is never too early.
            self.rightNow = max(self.rightNow, due + MOMENT)
            call.called = 1
            call.func(*call.args, **call.kw)
            return True
        self.rightNow = max(self.rightNow, until)
        return False

    def advance(self, amount: float) -> None:
        until = self.rightNow + amount
        while self.step(until):
            pass

    def jump(self, amount: float) -> None:
        """Time goes on and nothing happens meanwhile, as where a machine was asleep."""
        self.rightNow += amount

    def put(self, call: DelayedCall) -> None:
        """Lets a call wait for its time."""
        heapq.heappush(self._waiting, (call.getTime(), next(self._numbers), call))


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
        #: By address, what it has listened with.
        self.factories: dict[str, Any] = {}

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
        self.factories[address] = factory
        factory.doStart()
        self._network.listen(address, factory)
        return MemoryPort(self._network, address)

    def client(self) -> RemotingClient:
        """The process's client."""
        return self._network.client(self._host, clock=self)

    def pause(self) -> None:
        """As SIGSTOP: nothing happens and nothing is read until `go_on`."""
        self.paused = True
        self._network.pause(self._host)

    def go_on(self) -> None:
        """As SIGCONT."""
        self.paused = False
        late, self.late = self.late, []
        self._network.go_on(self._host)
        for call in late:
            call.go_on()

    def die(self, *, power: bool = False) -> None:
        """The process is gone, or the machine with it."""
        self.alive = False
        self._network.die(self._host, power=power)
