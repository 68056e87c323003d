"""Looking at the properties of many records without a read of the log for each."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from rocketmq_tw.message.layout import FIXED, body_end, properties_behind, properties_of
from rocketmq_tw.store.interface import ILog

#: Bytes that one read takes at most, so that neighbours need none of their own.
_AHEAD = 65536
#: Bytes between two records that are worth reading to save a system call.
_GAP = 2048
#: Of a larger record only what stands around its body is read.
_LARGE = 16384
_LONGEST_FIXED = max(layout.size for layout in FIXED.values())


class PropertiesWindow:
    """Properties of the records that stand at `positions` with `sizes`, which are asked for in this
    order; those that are passed over may be missing among them."""

    def __init__(self, log: ILog, positions: Sequence[int], sizes: Sequence[int]) -> None:
        self._log = log
        self._positions = positions
        self._sizes = sizes
        self._data = b""
        self._at = 0

    def properties(self, position: int, size: int) -> bytes:
        """Those of one record; empty where it cannot be read or is damaged."""
        if size > _LARGE:
            return self._properties_of_large(position, size)
        start = position - self._at
        if start < 0 or start + size > len(self._data):
            self._fill(position, size)
            start = 0
        return properties_of(self._data, start, size)

    def _fill(self, position: int, size: int) -> None:
        """Reads a record with the neighbours behind it."""
        positions, sizes = self._positions, self._sizes
        end = position + size
        index = bisect_left(positions, position) + 1
        while index < len(positions) and end <= positions[index] <= end + _GAP:
            if positions[index] + sizes[index] > position + _AHEAD:
                break
            end = positions[index] + sizes[index]
            index += 1
        self._data = self._log.read(end - position, position)
        self._at = position

    def _properties_of_large(self, position: int, size: int) -> bytes:
        magic, behind = body_end(self._log.read(_LONGEST_FIXED, position), 0)
        if not 0 < behind < size:
            return b""
        tail = self._log.read(size - behind, position + behind)
        return properties_behind(tail, magic, 0, size - behind)
