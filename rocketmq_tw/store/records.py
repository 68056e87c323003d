"""One read of the log that serves several records: forwards in large pieces, or of neighbours."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence

from rocketmq_tw.message.layout import (
    FIXED,
    body_end,
    properties_behind,
    properties_of_each,
)
from rocketmq_tw.store.interface import ILog

_SIZE = 1 << 20


class ReadWindow:
    """`data` is what was read from offset `start` on, towards `end`; `read` gives so many bytes at
    an offset, fewer at the end of a file."""

    def __init__(self, read: Callable[[int, int], bytes], start: int, end: int) -> None:
        self.data = b""
        self.start = start
        self._read = read
        self._end = end

    def has(self, position: int, size: int) -> bool:
        """Reads on until `data` has so many bytes from `position`, which never goes back; returns
        False where the file ends before."""
        if position + size > self.start + len(self.data):
            self.data = self._read(max(size, min(_SIZE, self._end - position)), position)
            self.start = position
        return position + size <= self.start + len(self.data)


#: Bytes that one read takes at most, so that neighbours need none of their own.
_AHEAD = 131072
#: Bytes read for each one wanted, at most, to save system calls.
_WORTH = 8
#: Bytes from which on a record's body is not read, only what stands around it.
_LARGE = 16384
_LONGEST_FIXED = max(layout.size for layout in FIXED.values())


def properties_of_records(log: ILog, positions: Sequence[int], sizes: Sequence[int]) -> list[bytes]:
    """Properties of the first of these records, one at least: of as many as are read at once. They
    are empty where a record cannot be read or is damaged."""
    first, size = positions[0], sizes[0]
    if size > _LARGE:
        return [_properties_of_large(log, first, size)]
    count = _neighbours(positions, sizes)
    positions, sizes = positions[:count], sizes[:count]
    data = log.read(positions[-1] + sizes[-1] - first, first)
    return properties_of_each(data, [position - first for position in positions], sizes)


def _neighbours(positions: Sequence[int], sizes: Sequence[int]) -> int:
    """Returns how many records lie close to the first and behind each other."""
    first = positions[0]
    count = bisect_left(positions, first + _AHEAD - _LARGE)
    while count > 1:
        near = positions[:count]
        span = near[-1] + sizes[count - 1] - first
        if (
            min(near) == first
            and max(near) == near[-1]
            and max(sizes[:count]) <= _LARGE
            and span <= _WORTH * sum(sizes[:count])
        ):
            return count
        count //= 2
    return 1


def _properties_of_large(log: ILog, position: int, size: int) -> bytes:
    magic, behind = body_end(log.read(_LONGEST_FIXED, position), 0)
    if not 0 < behind < size:
        return b""
    tail = log.read(size - behind, position + behind)
    return properties_behind(tail, magic, 0, size - behind)
