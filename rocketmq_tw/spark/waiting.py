"""How long something that ought to answer has not."""

import time
from collections.abc import Callable, Hashable


class Overdue:
    """Notes since when each key fails; one is late once that is longer than `limit` seconds."""

    def __init__(self, limit: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._clock = clock
        self._since: dict[Hashable, float] = {}

    def answered(self, key: Hashable) -> None:
        self._since.pop(key, None)

    def is_late(self, key: Hashable) -> bool:
        """Notes one more failure of `key`."""
        now = self._clock()
        return now - self._since.setdefault(key, now) > self._limit
