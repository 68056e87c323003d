"""Many connections that have much to ask each take turns, so that those with little need not wait.

A round of the reactor serves what came on all connections, up to 64 KiB of each: a thousand that
send without end would keep everyone else, and all timers, waiting for seconds. Once a round takes
long, each of the others has a few of its requests carried out; the rest waits, and nothing more is
read from its connection, until others had their few.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

#: Seconds after which a round takes long, and that those who wait take of each turn.
LONG_ROUND = 0.02
#: So many requests are carried out whatever the hour.
SHARE = 4


class WaitingConnection(Protocol):
    """A connection with requests that were read and not carried out."""

    last_received: float

    def go_on(self) -> None:
        """Carries out some of them, and waits again where there are more."""


class RequestTurns:
    """Those of one server; `clock` is its reactor, and only one that tells how long a round takes
    has anybody wait. `gather` carries out what writes to many peers."""

    def __init__(self, clock: Any, gather: Callable[..., None]) -> None:
        self._clock = clock
        self._gather = gather
        self._waited: Callable[[], float] | None = getattr(clock, "waited", None)
        self._waiting: deque[WaitingConnection] = deque()
        self._is_set = False

    def is_late(self) -> bool:
        """Whether only a few requests of a connection may be carried out now."""
        if self._waiting:
            return True
        return self._waited is not None and self._waited() >= LONG_ROUND

    def wait(self, connection: WaitingConnection) -> None:
        """Has `connection` go on behind all that wait."""
        self._waiting.append(connection)
        if not self._is_set:
            self._is_set = True
            self._clock.callLater(0, self._gather, self._begin)

    def _begin(self) -> None:
        clock = self._clock
        end = clock.seconds() + LONG_ROUND
        while self._waiting:
            connection = self._waiting.popleft()
            # So long at least its requests have waited.
            clock.serve_late(clock.seconds() - connection.last_received, connection.go_on)
            if clock.seconds() >= end:
                break
        self._is_set = bool(self._waiting)
        if self._is_set:
            clock.callLater(0, self._gather, self._begin)
