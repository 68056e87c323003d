"""Reading the log forwards, record by record."""

from __future__ import annotations

from collections.abc import Iterator

from rocketmq_tw.message.layout import (
    BLANK_MAGIC,
    BLANK_SIZE,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_SIZE,
    SIZE_AND_MAGIC,
)
from rocketmq_tw.message.record import RecordHead, parse_head
from rocketmq_tw.store.records import ReadWindow
from rocketmq_tw.store.segments import Segments

#: What a disk writes whole or not at all.
SECTOR = 512


class LogScan:
    """Iterates over the records from `position` to `end`.

    `position` is behind the last record given out. When the iteration ends, `damaged` says that
    what stands there is no record, else the end was reached or a record is not complete yet.
    """

    def __init__(
        self,
        segments: Segments,
        position: int,
        end: int,
        *,
        check_body: bool = True,
    ) -> None:
        self._file_size = segments.file_size
        self._window = ReadWindow(segments.pread, position, end)
        self._check_body = check_body
        self.position = position
        self.end = end
        self.damaged = False

    def __iter__(self) -> Iterator[RecordHead]:
        file_size, end, check_body = self._file_size, self.end, self._check_body
        window, has = self._window, self._window.has
        while end - self.position >= BLANK_SIZE:
            position = self.position
            room = file_size - position % file_size
            if not has(position, BLANK_SIZE):
                self.damaged = True
                return
            size, magic = SIZE_AND_MAGIC.unpack_from(window.data, position - window.start)
            if magic == BLANK_MAGIC:
                if size != room:
                    self.damaged = True
                    return
                if position + room > end:
                    return
                self.position = position + room
                continue
            if (
                magic != MAGIC_V1 and magic != MAGIC_V2
            ) or not MIN_RECORD_SIZE <= size <= room - BLANK_SIZE:
                self.damaged = True
                return
            if position + size > end:
                return
            head = None
            if has(position, size):
                head = parse_head(window.data, position - window.start, check_body=check_body)
            if head is None or head.physical_offset != position or head.size != size:
                self.damaged = True
                return
            self.position = position + size
            yield head


def may_lack_a_sector(head: RecordHead) -> bool:
    """Returns whether a sector's whole part of the properties is zeros, as a power loss can leave
    it where nothing was synced. Nothing tells that from zeros that a user put there: no checksum
    covers properties."""
    properties = head.properties
    if b"\0" not in properties:
        return False
    first = head.physical_offset + head.size - len(properties)
    start = 0
    while start < len(properties):
        end = start + SECTOR - (first + start) % SECTOR
        if not any(properties[start:end]):
            return True
        start = end
    return False
