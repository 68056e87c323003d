"""Values that are remembered for a while, the last ones."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

from twisted.internet.interfaces import IReactorTime

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class RecentValues(Generic[K, V]):
    """Values by key, each for `seconds` after it was put; at most `most` of them, of which the
    oldest are forgotten first."""

    def __init__(self, clock: IReactorTime, seconds: float, most: int) -> None:
        self._clock = clock
        self._seconds = seconds
        self._most = most
        #: With the time at which each is over; the oldest is first. In a dictionary that one would
        #: be looked for behind all that are gone.
        self._values: OrderedDict[K, tuple[float, V]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._values)

    def put(self, key: K, value: V) -> None:
        """Remembers a value, in the place of a former one of this key."""
        values, now = self._values, self._clock.seconds()
        values.pop(key, None)
        while values:
            oldest = next(iter(values))
            if len(values) < self._most and values[oldest][0] > now:
                break
            del values[oldest]
        values[key] = now + self._seconds, value

    def get(self, key: K) -> V | None:
        """Returns a value; None where it is not remembered any more."""
        found = self._values.get(key)
        return found[1] if found is not None and found[0] > self._clock.seconds() else None

    def discard(self, key: K) -> None:
        """Forgets a value, where there is one."""
        self._values.pop(key, None)
