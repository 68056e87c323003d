"""The memory of streams: one account for each, all of them in the budget of the server."""

from __future__ import annotations

from rocketmq_tw.net.limits import Budget
from rocketmq_tw.proxy.http2.interfaces import Held


class MemoryRefused(Exception):
    """The server may not hold so many bytes."""


class ConnectionMemory:
    """What is held for one connection: frames that are not carried out, and what its streams
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
        self._change(size)
        if size > 0 and self._budget.refuses(self.used):
            self._change(-size)
            raise MemoryRefused

    def _change(self, size: int) -> None:
        self.used += size
        self._budget.used += size


class StreamMemory:
    """The account of one stream."""

    __slots__ = ("_connection", "_held")

    def __init__(self, connection: ConnectionMemory) -> None:
        self._connection = connection
        self._held = [0] * len(Held)

    def hold(self, purpose: Held, size: int) -> None:
        """Counts so many bytes for a purpose from now on; raises `MemoryRefused`, and then counts
        no more than before."""
        grown = size - self._held[purpose]
        if grown:
            self._connection.grow(grown)
            self._held[purpose] = size

    def release(self, *purposes: Held) -> None:
        """Counts nothing more for some purposes."""
        for purpose in purposes:
            self.hold(purpose, 0)
