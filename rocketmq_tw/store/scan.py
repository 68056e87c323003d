"""Reading the log forwards, record by record."""

from __future__ import annotations

from collections.abc import Iterator

from rocketmq_tw.message.record import (
    BLANK_MAGIC,
    BLANK_SIZE,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_SIZE,
    SIZE_AND_MAGIC,
    RecordHead,
    parse_head,
)
from rocketmq_tw.store.segments import Segments

_WINDOW = 1 << 20
_SECTOR = 512


class LogScan:
    """Iterates over the records from `position` to `end`.

    `position` is behind the last record given out. When the iteration ends, `damaged` says that
    what stands there is no record, else the end was reached or a record is not complete yet.
    `unsynced`: a power loss may have taken sectors out of records; where only properties are hit
    no checksum tells.
    """

    def __init__(
        self,
        segments: Segments,
        position: int,
        end: int,
        *,
        check_body: bool = True,
        unsynced: bool = False,
    ) -> None:
        self._segments = segments
        self._check_body = check_body
        self._unsynced = unsynced
        self.position = position
        self.end = end
        self.damaged = False
        self._window = b""
        self._window_at = position

    def __iter__(self) -> Iterator[RecordHead]:
        file_size = self._segments.file_size
        while self.end - self.position >= BLANK_SIZE:
            position = self.position
            room = file_size - position % file_size
            at = self._load(position, BLANK_SIZE)
            if at < 0:
                self.damaged = True
                return
            size, magic = SIZE_AND_MAGIC.unpack_from(self._window, at)
            if magic == BLANK_MAGIC:
                if size != room:
                    self.damaged = True
                    return
                if position + room > self.end:
                    return
                self.position = position + room
                continue
            if (
                magic != MAGIC_V1 and magic != MAGIC_V2
            ) or not MIN_RECORD_SIZE <= size <= room - BLANK_SIZE:
                self.damaged = True
                return
            if position + size > self.end:
                return
            at = self._load(position, size)
            head = None
            if at >= 0:
                head = parse_head(self._window, at, check_body=self._check_body)
            if head is None or head.physical_offset != position or head.size != size:
                self.damaged = True
                return
            if self._unsynced and _lost_a_sector(head):
                self.damaged = True
                return
            self.position = position + size
            yield head

    def _load(self, position: int, size: int) -> int:
        """Where in the window `size` bytes from `position` stand; -1 where the file has not got
        them."""
        at = position - self._window_at
        if at < 0 or at + size > len(self._window):
            wanted = max(size, min(_WINDOW, self.end - position))
            self._window = self._segments.pread(wanted, position)
            self._window_at = position
            at = 0
        return at if at + size <= len(self._window) else -1


def _lost_a_sector(head: RecordHead) -> bool:
    """Whether a sector's whole part of the properties is zeros: the files' unwritten rest is, so
    that is what a lost sector reads as."""
    properties = head.properties
    if b"\0" not in properties:
        return False
    first = head.physical_offset + head.size - len(properties)
    start = 0
    while start < len(properties):
        end = start + _SECTOR - (first + start) % _SECTOR
        if not any(properties[start:end]):
            return True
        start = end
    return False
