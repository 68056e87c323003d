"""The reactor of a server: Twisted's for epoll, which spends less on what can be read.

Twisted serves each event in a log context of its own, a dictionary copied for it, which is a tenth
of all that a broker computes for a send. Nothing of ours asks for the context: a `Logger` names its
source itself. And a turn has an end of its own, where a timer of 0 s costs a broker that has one
send a turn a twentieth.
"""

from __future__ import annotations

from collections.abc import Callable
from select import EPOLLIN
from typing import Any

from twisted.internet.epollreactor import EPollReactor
from twisted.internet.error import ConnectionFdescWentAway
from twisted.internet.main import installReactor
from twisted.logger import Logger
from twisted.python import log

_GONE = ConnectionFdescWentAway("closed, but not taken from the reactor")


class ServerReactor(EPollReactor):
    """An `EPollReactor` in all that can be seen, but for the prefix in the log of what fails, and
    with an end of each turn that needs no timer."""

    log = Logger()

    def __init__(self) -> None:
        self._turn_ends: list[Callable[[], None]] = []
        super().__init__()

    def at_turn_end(self, call: Callable[[], None]) -> None:
        """Calls `call` behind all events and timers of this turn, before the next wait."""
        self._turn_ends.append(call)

    def runUntilCurrent(self) -> None:
        """Calls what is due, then what waits for the end of the turn."""
        super().runUntilCurrent()
        while self._turn_ends:
            calls, self._turn_ends = self._turn_ends, []
            for call in calls:
                try:
                    call()
                except Exception:
                    self.log.failure("at the end of a turn")

    def doPoll(self, timeout: float | None) -> None:
        """One round: waits for `timeout` seconds at most, or without end, and serves what is
        ready."""
        selectables = self._selectables
        for fd, event in self._poller.poll(-1 if timeout is None else timeout, len(selectables)):
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

    doIteration = doPoll


def install() -> None:
    """Makes it the process's reactor."""
    installReactor(ServerReactor())
