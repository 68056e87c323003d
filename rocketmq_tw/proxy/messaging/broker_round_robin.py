"""Divides work among brokers, one after the other, so that one that does not answer holds up its
own work only."""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class _BrokerWork(Generic[T]):
    """The work that is to be done at one broker."""

    __slots__ = ("later", "under_way", "urgent")

    def __init__(self) -> None:
        self.urgent: deque[T] = deque()
        self.later: deque[T] = deque()
        self.under_way = 0


class BrokerRoundRobin(Generic[T]):
    """Gives out work, so much for each broker at a time, one broker after the other."""

    def __init__(self, most: int) -> None:
        """`most`: items of one broker that may be under way."""
        self._most = most
        self._brokers: dict[str, _BrokerWork[T]] = {}
        #: Brokers that have both work and room for it.
        self._ready: deque[str] = deque()
        self._size = 0

    def __len__(self) -> int:
        """How many items wait or are under way."""
        return self._size

    def add(self, broker: str, item: T, *, urgent: bool) -> None:
        """Adds work; what is urgent goes before what is not."""
        work = self._brokers.get(broker)
        if work is None:
            work = self._brokers[broker] = _BrokerWork()
        (work.urgent if urgent else work.later).append(item)
        self._size += 1
        if len(work.urgent) + len(work.later) == 1 and work.under_way < self._most:
            self._ready.append(broker)

    def next(self) -> T | None:
        """Returns what is to be done next, which is under way until `over`; None where there is
        nothing, or no room."""
        if not self._ready:
            return None
        broker = self._ready.popleft()
        work = self._brokers[broker]
        item = (work.urgent or work.later).popleft()
        work.under_way += 1
        if (work.urgent or work.later) and work.under_way < self._most:
            self._ready.append(broker)
        return item

    def over(self, broker: str) -> None:
        """Notes that an item of a broker is done."""
        work = self._brokers[broker]
        self._size -= 1
        work.under_way -= 1
        if work.urgent or work.later:
            if work.under_way == self._most - 1:
                self._ready.append(broker)
        elif not work.under_way:
            del self._brokers[broker]

    def clear(self) -> None:
        """Drops what waits."""
        self._ready.clear()
        for work in self._brokers.values():
            self._size -= len(work.urgent) + len(work.later)
            work.urgent.clear()
            work.later.clear()
