"""Remembers what the log has said already: a line that would come again and again comes now and
then.

Times are in any unit, of a clock that is never set. Failures in a row: `failures.py`.
"""

from __future__ import annotations

from collections.abc import Hashable
from math import inf
from typing import Generic, TypeVar

T = TypeVar("T")
H = TypeVar("H", bound=Hashable)


class LogThrottle(Generic[T]):
    """Has a line said where it differs from the last one, or that one was said `pause` ago."""

    __slots__ = ("_at", "_pause", "last")

    def __init__(self, pause: float = inf) -> None:
        self._pause = pause
        self._at: float | None = None
        #: What was said last; None where nothing was.
        self.last: T | None = None

    def is_due(self, what: T, now: float = 0.0) -> bool:
        """Returns whether `what` is to be said now, and takes it for said then. A line that comes
        again only when it differs needs no time."""
        if self._at is not None and what == self.last and now - self._at < self._pause:
            return False
        self.last, self._at = what, now
        return True

    def forget(self) -> None:
        """Has the next line said, whatever it is."""
        self.last = self._at = None


class LogThrottleByKey(Generic[H]):
    """Has a line said of each key where none was said of it for `pause`. Peers choose the keys:
    `most` of them are remembered, and nothing is said of further ones meanwhile."""

    __slots__ = ("_at", "_most", "_pause")

    def __init__(self, pause: float, most: int) -> None:
        self._pause = pause
        self._most = most
        #: The one that was said first comes first.
        self._at: dict[H, float] = {}

    def is_due(self, key: H, now: float) -> bool:
        """Returns whether a line of `key` is to be said now, and takes it for said then."""
        while self._at:
            first = next(iter(self._at))
            if now - self._at[first] < self._pause:
                break
            del self._at[first]
        if key in self._at or len(self._at) >= self._most:
            return False
        self._at[key] = now
        return True
