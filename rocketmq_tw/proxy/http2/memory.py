"""The memory of streams: one account for each, all of them in the budget of the server."""

from __future__ import annotations

from rocketmq_tw.net.limits import Budget
from rocketmq_tw.proxy.http2.interfaces import Held

_PURPOSES = len(Held)


class MemoryRefused(Exception):
    """The server may not hold so many bytes."""


class ConnectionMemory:
    """Counts what is held for one connection: frames that are not carried out, and what its streams
    hold."""

    __slots__ = ("_budget", "_frames", "used")

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._frames = 0
        #: Bytes that are counted for the connection.
        self.used = 0

    def hold_frames(self, size: int) -> None:
        """Counts so many bytes of frames from now on; raises `MemoryRefused`, and then counts no
        more than before."""
        self.grow(size - self._frames)
        self._frames = size

    def grow(self, size: int) -> None:
        """Counts so many bytes more, or fewer; raises `MemoryRefused`, and then counts none."""
        budget = self._budget
        self.used += size
        budget.used += size
        if size > 0 and budget.used > budget.limit and budget.refuses(self.used):
            self.used -= size
            budget.used -= size
            raise MemoryRefused


class StreamMemory:
    """The account of one stream."""

    __slots__ = ("_connection", "_held")

    def __init__(self, connection: ConnectionMemory) -> None:
        self._connection = connection
        self._held = [0] * _PURPOSES

    def hold(self, purpose: Held, size: int) -> None:
        """Counts so many bytes for a purpose from now on; raises `MemoryRefused`, and then counts
        no more than before."""
        held = self._held
        grown = size - held[purpose]
        if grown:
            self._connection.grow(grown)
            held[purpose] = size

    def release(self) -> None:
        """Counts nothing more."""
        held = self._held
        for purpose, size in enumerate(held):
            if size:
                self._connection.grow(-size)
                held[purpose] = 0
