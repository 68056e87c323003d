"""Computes how long to wait for something that ought to answer and does not."""

import time
from collections.abc import Callable, Hashable

from rocketmq_tw.runtime.retries import GrowingPause

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0


class Overdue:
    """Notes since when each key fails; one is late once that is longer than `limit` seconds."""

    def __init__(self, limit: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._clock = clock
        self._since: dict[Hashable, float] = {}

    def answered(self, key: Hashable) -> None:
        self._since.pop(key, None)

    def works(self, key: Hashable) -> bool:
        """Returns whether no failure of `key` is noted since it last answered."""
        return key not in self._since

    def is_late(self, key: Hashable) -> bool:
        """Notes one more failure of `key`."""
        now = self._clock()
        return now - self._since.setdefault(key, now) > self._limit


class Backoff:
    """Counts how long a thing does not work, and pauses a little longer each time."""

    def __init__(
        self,
        limit: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._limit = limit
        self._clock = clock
        self._sleep = sleep
        self._since: float | None = None
        self._pause = GrowingPause(_FIRST_PAUSE, _LONGEST_PAUSE)

    def worked(self) -> None:
        self._since = None
        self._pause.worked()

    def pause(self) -> bool:
        """Waits before the next try; False where the limit is used up."""
        now = self._clock()
        if self._since is None:
            self._since = now
        if now + self._pause.next > self._since + self._limit:
            return False
        self._sleep(self._pause.failed())
        return True
