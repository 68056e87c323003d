"""Reads the records that entries hold, one after the other.

Records of a plain log in front of the entries are read as well. The second number tells both apart:
of a record it is the magic, of an entry the size, and no size equals that magic
(docs/formats/dledger-commitlog.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rocketmq_tw.message.layout import (
    BLANK_MAGIC,
    BLANK_SIZE,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_SIZE,
    SIZE_AND_MAGIC,
)
from rocketmq_tw.message.record import RecordHead, parse_head
from rocketmq_tw.raft.core.entry import ENTRY_HEADER_SIZE, MAGIC
from rocketmq_tw.raft.store.format import ENTRY_BLANK_MAGIC
from rocketmq_tw.store.records import ReadWindow

_RECORD_MAGICS = (MAGIC_V1, MAGIC_V2)


class RecordsOfEntries:
    """A `RecordScan` over the entries from `position` to `end`, where an entry or a record starts;
    entries without a record are passed over. `read` gives so many bytes at an offset, fewer at the
    end of a file of `file_size`."""

    def __init__(
        self,
        read: Callable[[int, int], bytes],
        file_size: int,
        position: int,
        end: int,
        *,
        check_body: bool = True,
    ) -> None:
        self._window = ReadWindow(read, position, end)
        self._file_size = file_size
        self._check_body = check_body
        self.position = position
        self.end = end
        self.damaged = False

    def __iter__(self) -> Iterator[RecordHead]:
        while self.end - self.position >= BLANK_SIZE:
            position = self.position
            room = self._file_size - position % self._file_size
            if not self._window.has(position, BLANK_SIZE):
                self.damaged = True
                return
            first, second = self._two_numbers(position)
            if second == BLANK_MAGIC or first == ENTRY_BLANK_MAGIC:
                self.damaged = room not in (first, second)
                if self.damaged or position + room > self.end:
                    return
                self.position = position + room
                continue
            front = 0 if second in _RECORD_MAGICS else ENTRY_HEADER_SIZE
            size, least = (second, front) if front else (first, MIN_RECORD_SIZE)
            if (front and first != MAGIC) or not least <= size <= room - BLANK_SIZE:
                self.damaged = True
                return
            if position + size > self.end:
                return
            head = None
            if self._holds_record(position, front, size):
                head = self._head(position + front, size - front)
                if head is None:
                    self.damaged = True
                    return
            self.position = position + size
            if head is not None:
                yield head

    def _holds_record(self, position: int, front: int, size: int) -> bool:
        if size - front < MIN_RECORD_SIZE or not self._window.has(position, front + BLANK_SIZE):
            return False
        return self._two_numbers(position + front)[1] in _RECORD_MAGICS

    def _two_numbers(self, position: int) -> tuple[int, int]:
        found: tuple[int, int] = SIZE_AND_MAGIC.unpack_from(
            self._window.data, position - self._window.start
        )
        return found

    def _head(self, position: int, size: int) -> RecordHead | None:
        """Returns the record of so many bytes; None where it is damaged."""
        window = self._window
        if not window.has(position, size):
            return None
        head = parse_head(window.data, position - window.start, check_body=self._check_body)
        if head is None or head.physical_offset != position or head.size != size:
            return None
        return head
