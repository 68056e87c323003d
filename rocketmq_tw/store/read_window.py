"""Bytes that are read forwards, many with one call."""

from __future__ import annotations

from collections.abc import Callable

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
        """Lets `data` hold so many bytes from `position`, never in front of where it was before;
        whether the file has them."""
        if position + size > self.start + len(self.data):
            self.data = self._read(max(size, min(_SIZE, self._end - position)), position)
            self.start = position
        return position + size <= self.start + len(self.data)
