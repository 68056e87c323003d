"""Work at brokers in turns, so that a broker that does not answer holds up its own work only."""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class _Lane(Generic[T]):
    """What is to be done at one broker."""

    __slots__ = ("later", "under_way", "urgent")

    def __init__(self) -> None:
        self.urgent: deque[T] = deque()
        self.later: deque[T] = deque()
        self.under_way = 0


class BrokerTurns(Generic[T]):
    """Gives out work, so much for each broker at a time; brokers take turns."""

    def __init__(self, most: int) -> None:
        """`most`: items of one broker that may be under way."""
        self._most = most
        self._lanes: dict[str, _Lane[T]] = {}
        #: Brokers that have both work and room for it.
        self._ready: deque[str] = deque()
        self._size = 0

    def __len__(self) -> int:
        """How many items wait or are under way."""
        return self._size

    def add(self, broker: str, item: T, *, urgent: bool) -> None:
        """Adds work; what is urgent goes before what is not."""
        lane = self._lanes.get(broker)
        if lane is None:
            lane = self._lanes[broker] = _Lane()
        (lane.urgent if urgent else lane.later).append(item)
        self._size += 1
        if len(lane.urgent) + len(lane.later) == 1 and lane.under_way < self._most:
            self._ready.append(broker)

    def next(self) -> T | None:
        """Returns what is to be done next, which is under way until `over`; None where there is
        nothing, or no room."""
        if not self._ready:
            return None
        broker = self._ready.popleft()
        lane = self._lanes[broker]
        item = (lane.urgent or lane.later).popleft()
        lane.under_way += 1
        if (lane.urgent or lane.later) and lane.under_way < self._most:
            self._ready.append(broker)
        return item

    def over(self, broker: str) -> None:
        """Notes that an item of a broker is done."""
        lane = self._lanes[broker]
        self._size -= 1
        lane.under_way -= 1
        if lane.urgent or lane.later:
            if lane.under_way == self._most - 1:
                self._ready.append(broker)
        elif not lane.under_way:
            del self._lanes[broker]

    def clear(self) -> None:
        """Drops what waits."""
        self._ready.clear()
        for lane in self._lanes.values():
            self._size -= len(lane.urgent) + len(lane.later)
            lane.urgent.clear()
            lane.later.clear()
