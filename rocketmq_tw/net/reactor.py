"""The reactor of a server: Twisted's for epoll, which spends less on what can be read.

Twisted serves each event in a log context of its own, a dictionary copied for it, which is a tenth
of all that a broker computes for a send. Nothing of ours asks for the context: a `Logger` names its
source itself. And a turn has an end of its own, where a timer of 0 s costs a broker that has one
send a turn a twentieth.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from select import EPOLLIN
from typing import Any

from twisted.internet.epollreactor import EPollReactor
from twisted.internet.error import ConnectionFdescWentAway
from twisted.internet.main import installReactor
from twisted.logger import Logger
from twisted.python import log
from zope.interface import implementer

from rocketmq_tw.net.descriptors import PatientPort
from rocketmq_tw.net.interfaces import ISharedPorts
from rocketmq_tw.net.stalls import STALL_SECONDS, StallLog
from rocketmq_tw.runtime.turns import IReactorTurns
from rocketmq_tw.runtime.waking_time import STOOD_STILL_SECONDS

#: Behind so many events of a round the turn ends: 10 ms where each is a send.
EVENTS_OF_A_TURN = 256

_GONE = ConnectionFdescWentAway("closed, but not taken from the reactor")


@implementer(IReactorTurns, ISharedPorts)
class ServerReactor(EPollReactor):
    """An `EPollReactor` in all that can be seen, but for the prefix in the log of what fails, ports
    that wait for descriptors (`PatientPort`), and an end of each turn that needs no timer."""

    log = Logger()

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        """`now` tells how long things take."""
        self._turn_ends: list[Callable[[], None]] = []
        self._now = now
        self._stalls = StallLog(now)
        self._round_began = now()
        super().__init__()

    def waited(self) -> float:
        """Returns how many seconds ago the round of events began: so long, at least, what is served
        now was there and not read."""
        return self._now() - self._round_began

    def serve_late(self, seconds: float, call: Callable[[], None]) -> None:
        """Calls `call`, which serves what was read `seconds` ago: `waited` tells so meanwhile."""
        began, self._round_began = self._round_began, self._now() - seconds
        try:
            call()
        finally:
            self._round_began = began

    def at_turn_end(self, call: Callable[[], None]) -> None:
        """Calls `call` behind all events and timers of this turn, before the next wait."""
        self._turn_ends.append(call)

    def listenTCP(
        self, port: int, factory: Any, backlog: int = 50, interface: str = ""
    ) -> PatientPort:
        listening = PatientPort(port, factory, backlog, interface, self)
        listening.startListening()
        return listening

    def listen_shared(
        self, port: int, factory: Any, backlog: int = 50, interface: str = ""
    ) -> PatientPort:
        """See `ISharedPorts`."""
        listening = PatientPort(port, factory, backlog, interface, self)
        listening.is_shared = True
        listening.startListening()
        return listening

    def runUntilCurrent(self) -> None:
        """Calls the timers that are due, then the calls for the end of the turn."""
        # Twisted tells nobody what it calls, so only the timer in front can be named.
        began = self._now()
        waiting = self._pendingTimedCalls
        first = waiting[0] if waiting else None
        super().runUntilCurrent()
        timed = self._now()
        if timed - began >= STALL_SECONDS:
            name = f", the first {_name(first)}" if first is not None and first.called else ""
            self._stalls.report(timed - began, f"timers and calls of threads{name}")
        if not self._turn_ends:
            return
        names = []
        while self._turn_ends:
            calls, self._turn_ends = self._turn_ends, []
            names += calls
            for call in calls:
                try:
                    call()
                except Exception:
                    self.log.failure("work at the end of a turn of the reactor failed")
        took = self._now() - timed
        if took >= STALL_SECONDS:
            self._stalls.report(took, f"the end of a turn: {', '.join(map(_name, names))}")

    def doPoll(self, timeout: float | None) -> None:
        """One round: waits for `timeout` seconds at most, or without end, and serves what is
        ready. A turn ends behind each `EVENTS_OF_A_TURN` of it: where thousands of clients say
        something at once, neither answers nor timers wait for the last of them."""
        selectables = self._selectables
        asked = self._now()
        events = self._poller.poll(-1 if timeout is None else timeout, len(selectables))
        began = self._round_began = self._now()
        most = EVENTS_OF_A_TURN
        if timeout is not None and began - asked > timeout + STOOD_STILL_SECONDS:
            # The process stood still. Before timers end who was silent, all that came is read.
            most = max(len(events), 1)
        later = {fd: selectables.get(fd) for fd, _ in events[most:]}
        for start in range(0, len(events), most):
            turn = events[start : start + most]
            if start:
                self.runUntilCurrent()
                # A timer may have closed one, and its number is another's now.
                turn = [one for one in turn if selectables.get(one[0]) is later[one[0]]]
            self._serve(turn)

    def _serve(self, events: Sequence[tuple[int, int]]) -> None:
        selectables = self._selectables
        began = self._now()
        for fd, event in events:
            selectable = selectables.get(fd)
            if selectable is None:
                # Another one of this round has closed it.
                continue
            why: Any
            if event == EPOLLIN:
                try:
                    gone = selectable.fileno() == -1
                    why = _GONE if gone else selectable.doRead()
                except BaseException as error:
                    why = error
                    log.err()
                if why:
                    log.callWithLogger(
                        selectable, self._disconnectSelectable, selectable, why, True
                    )
            else:
                log.callWithLogger(selectable, self._doReadOrWrite, selectable, fd, event)
        took = self._now() - began
        if took >= STALL_SECONDS and len(events) > 1:
            # Each for itself may have been quick. A slow one is named by its connection.
            served = Counter(_served(selectables.get(fd)) for fd, _ in events).most_common()
            names = ", ".join(f"{name} x {count}" for name, count in served)
            self._stalls.report(took, f"one turn of {len(events)} events: {names}")

    doIteration = doPoll


def _served(selectable: Any) -> str:
    """Returns what an event of a round was for, as a line of the log has it."""
    if selectable is None:
        return "closed"
    return type(getattr(selectable, "protocol", selectable)).__name__


def _name(call: Any) -> str:
    """Returns what a callable is called in a line of the log."""
    function = getattr(call, "func", call)
    function = getattr(function, "f", function)
    return getattr(function, "__qualname__", type(function).__qualname__)


def install() -> None:
    """Makes it the process's reactor."""
    installReactor(ServerReactor())
