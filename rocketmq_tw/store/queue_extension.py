"""The extension of a consume queue, with what its units have no room for.

A queue's unit has the *address* of its extra there in place of the hash code of its message's tag:
that, the store time and the bits of filters that the message matches.
Format: docs/formats/consumequeue-ext.md.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rocketmq_tw.config.store import MessageStoreConfig
from rocketmq_tw.store.segments import Segments, ShortFiles

_HEAD = struct.Struct(">hqqh")
#: Java's short is the size of an extra.
_MAX_SIZE = 0x7FFF
#: Stands behind the last extra of a file, which has room for it and two bytes more.
_END = struct.pack(">h", -1)
_END_ROOM = 4
#: Addresses are offsets from here, and below all hash codes of tags and all times.
_FIRST_ADDRESS = -(1 << 63)
_LAST_ADDRESS = -(1 << 31) - 1
_BLOCK = 1 << 15
#: Some 2 us each: expressions may be asked.
_WORK = 32


class UnitExtra(NamedTuple):
    """The extra of a message: hash code of its tag, store time in ms, and the bits of the filters
    that it matches (empty where they were not calculated)."""

    tags_code: int
    store_timestamp: int
    bits: bytes = b""

    @property
    def size(self) -> int:
        """The size of the record in a file, in bytes."""
        return _HEAD.size + len(self.bits)


def is_address(tags_code: int) -> bool:
    """Returns whether the tag code of a queue's unit is the address of an extra."""
    return tags_code <= _LAST_ADDRESS


class QueueExtension:
    """The extension of one queue. New extras stay in memory as long as the queue's new units do;
    the queue decides what is kept, when it is written and where it is cut."""

    def __init__(self, segments: Segments, make_directory: Callable[[], None]) -> None:
        self.segments = segments
        self._make_directory = make_directory
        self._end = 0
        #: Up to here the files have it, up to there queue's units do: the rest may be dropped.
        self._written = self._kept = 0
        #: What stands between `_written` and `_end`.
        self._tail = bytearray()

    def load(self) -> None:
        """Lists the files; the queue cuts them. A file that is missing or too short is found by
        that."""
        self.segments.load(
            "mappedFileSizeConsumeQueueExt", short=ShortFiles.EXTEND, drop_behind_gap=True
        )
        self._end_at(self.segments.end)

    def add(self, extra: UnitExtra) -> int:
        """Buffers an extra and returns its address; returns the tag's hash code instead where the
        extra would be too large."""
        size, file_size = extra.size, self.segments.file_size
        if size > min(_MAX_SIZE, file_size - _END_ROOM):
            return extra.tags_code
        room = file_size - self._end % file_size
        if size > room - _END_ROOM:
            self._tail += _END + bytes(room - len(_END))
            self._end += room
        address = _FIRST_ADDRESS + self._end
        self._tail += _HEAD.pack(size, extra.tags_code, extra.store_timestamp, len(extra.bits))
        self._tail += extra.bits
        self._end += size
        return address

    def keep(self) -> None:
        """Keeps all extras added so far, since the queue shows their units now."""
        self._kept = self._end

    def drop_pending(self) -> None:
        """Drops the extras added since `keep`, as the queue dropped their units."""
        del self._tail[self._kept - self._written :]
        self._end = self._kept

    def write_out(self) -> None:
        """Writes the extras that are in memory only. Where that raises `OSError` they stay
        there."""
        segments = self.segments
        if self._written < self._kept and not segments.starts:
            self._make_directory()
        while self._written < self._kept:
            room = segments.file_size - self._written % segments.file_size
            part = bytes(self._tail[: min(room, self._kept - self._written)])
            segments.write([part], self._written)
            self._written += len(part)
            del self._tail[: len(part)]

    def find(self, addresses: Sequence[int]) -> list[UnitExtra | None]:
        """Returns the extra at each address, None where it is no address or nothing stands there.
        Fast for ascending addresses."""
        found: list[UnitExtra | None] = []
        data, start = b"", 0
        for address in addresses:
            extra = None
            if is_address(address):
                offset = address - _FIRST_ADDRESS
                extra = _parse(data, offset - start)
                if extra is None:
                    data, start = self._read(offset), offset
                    extra = _parse(data, 0)
            found.append(extra)
        return found

    def _read(self, offset: int) -> bytes:
        if offset < self._written:
            return self.segments.pread(min(_BLOCK, self._written - offset), offset)
        start = offset - self._written
        return bytes(self._tail[start : start + _BLOCK])

    # What the queue has not any more

    def end_behind(self, address: int) -> bool:
        """Cuts the file behind the extra at an address. Returns False where that is lost: what is
        added goes into a new file then."""
        (extra,) = self.find([address])
        if extra is None:
            self.end_somewhere()
            return False
        end = address - _FIRST_ADDRESS + extra.size
        self.segments.cut(end, durable=False)
        self._end_at(end)
        return True

    def end_somewhere(self) -> None:
        """No extra is known to be the last one: what is added goes into another file."""
        self._end_at(self.segments.end)

    def clear(self) -> None:
        """Removes all files: the queue has no units."""
        self.segments.clear()
        self._end_at(0)

    def remove_first_before(self, address: int | None) -> bool:
        """Removes the first file if all of it stands in front of an address, or without one in
        front of the end; whether it did. The last file stays."""
        offset = self._end if address is None else address - _FIRST_ADDRESS
        starts = self.segments.starts
        if len(starts) < 2 or starts[1] > offset:
            return False
        self.segments.remove_first()
        return True

    def _end_at(self, end: int) -> None:
        self._end = self._written = self._kept = end
        self._tail.clear()


def _parse(data: bytes, at: int) -> UnitExtra | None:
    """Returns the extra at a place in bytes; None where there is no whole one."""
    if not 0 <= at <= len(data) - _HEAD.size:
        return None
    size, tags_code, store_timestamp, bits_size = _HEAD.unpack_from(data, at)
    bits = data[at + _HEAD.size : at + _HEAD.size + max(bits_size, 0)]
    extra = UnitExtra(tags_code, store_timestamp, bits)
    return extra if extra.size == size and len(bits) == max(bits_size, 0) else None


#: (topic, properties, store time) -> the bits of filters that a message matches.
BitsOf = Callable[[str, bytes, int], bytes]


class QueueExtensions:
    """The extensions of a store's queues, in `directory`. The configuration says whether new queues
    get one; existing ones are read in any case, and removed with their messages."""

    def __init__(self, config: MessageStoreConfig, directory: str) -> None:
        self.directory = directory
        self.file_size = config.mapped_file_size_consume_queue_ext
        #: Whether what is dispatched gets an extra.
        self.are_written = config.enable_consume_queue_ext
        #: What a message's extra costs at its dispatch, in keys for the index.
        self.work = _WORK if self.are_written else 0
        self.bits_of: BitsOf = lambda topic, properties, store_timestamp: b""

    def extra_of(
        self, topic: str, properties: bytes, tags_code: int, store_timestamp: int
    ) -> UnitExtra:
        """Returns the extra of a message that is being dispatched."""
        bits = self.bits_of(topic, properties, store_timestamp)
        return UnitExtra(tags_code, store_timestamp, bits)
