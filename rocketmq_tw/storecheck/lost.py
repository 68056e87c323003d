"""Parts of the log whose records are lost. What leads there is right: it tells of what has to be
restored."""

from __future__ import annotations

from bisect import bisect_right

#: Further parts are not remembered.
_MOST = 10_000


class LostParts:
    """Log offsets at which there were records; parts are to be added in the order of the log."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, start: int, end: int) -> None:
        """Notes that nothing whole is from `start` on, up to `end`."""
        if len(self._starts) < _MOST:
            self._starts.append(start)
            self._ends.append(end)

    def __contains__(self, offset: int) -> bool:
        at = bisect_right(self._starts, offset) - 1
        return at >= 0 and offset < self._ends[at]
