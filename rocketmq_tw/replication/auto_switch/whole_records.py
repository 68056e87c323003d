"""Frames that end behind a record.

A slave that a controller makes the master may have got the last frame of a backlog and not the one
behind it. Stock 5.3.3 never gets out of that election where its log ends in the midst of a record.
"""

from __future__ import annotations

from rocketmq_tw.message.layout import BLANK_MAGIC, MAGIC_V1, MAGIC_V2, SIZE_AND_MAGIC
from rocketmq_tw.replication.auto_switch.frames import MAX_BODY
from rocketmq_tw.replication.links.master_link import ReadLog

_MAGICS = frozenset({MAGIC_V1, MAGIC_V2, BLANK_MAGIC})


class WholeRecords:
    """Cuts a log's bytes, read in order, behind their last whole record; a record that no
    frame has room for goes in pieces, as do bytes that are no records."""

    def __init__(self, read_log: ReadLog) -> None:
        self._read_log = read_log
        #: Of a record that goes in pieces.
        self._rest = 0

    def restart(self) -> None:
        """The next bytes start a record."""
        self._rest = 0

    def cut(self, offset: int, data: bytes) -> bytes:
        """`data`, which stands at `offset`, up to the end of its last whole record; more than that
        where its first one is not whole."""
        if self._rest:
            piece = data[: self._rest]
            self._rest -= len(piece)
            return piece
        end = size = 0
        while (size := _size_at(data, end)) and end + size <= len(data):
            end += size
        if end or not size:
            return data[:end] if end else data
        if size <= MAX_BODY:
            whole = self._read_log(offset, size)
            if len(whole) == size:
                return whole
        self._rest = size - len(data)
        return data


def _size_at(data: bytes, position: int) -> int:
    """The size of the record that starts there; 0 where none does."""
    if len(data) - position < SIZE_AND_MAGIC.size:
        return 0
    size, magic = SIZE_AND_MAGIC.unpack_from(data, position)
    return size if magic in _MAGICS and size >= SIZE_AND_MAGIC.size else 0
