"""Finds what a data file really holds, by a scan to the end of the log after any kind of stop."""

from collections.abc import Iterator
from typing import NamedTuple

from rocketmq_tw.files.atomic import write_again
from rocketmq_tw.raft.core.entry import ENTRY_HEADER_SIZE, MAGIC, Entry, chain_crc, crc_fits
from rocketmq_tw.raft.store.format import (
    COPY_AGAIN,
    ENTRY_BLANK_MAGIC,
    ENTRY_HEADER,
    INDEX_UNIT,
    INDEX_UNIT_SIZE,
    decode_entry,
    encode_index,
)
from rocketmq_tw.store.errors import StoreError
from rocketmq_tw.store.segments import Segments

_CHUNK = 1024 * 1024
#: The index of earlier files was synced when the next one was begun, so only these are scanned.
_SCANNED_FILES = 3


class Extent(NamedTuple):
    """What a recovery found: first and last entry and the end of the data; -1 and `next_pos` where
    there is none."""

    begin_index: int
    end_index: int
    end_pos: int


def recover(
    data: Segments, index: Segments, begin_pos: int, committed_index: int, sound_index: int
) -> Extent:
    """Finds the last whole entry, cuts what is behind it, writes index units that are missing.

    `begin_pos` is where the log begins if that is inside a file. All up to `sound_index` is known
    to be durable; what is behind it is written again, so that it is on return. Raises `StoreError`
    where the damage is not behind the committed entries: those must come from another member.
    """
    extent = _find(data, index, begin_pos)
    if extent.end_index < committed_index:
        raise StoreError(
            f"the log ends with entry {extent.end_index}, but {committed_index} was committed:"
            f" the disk lost or damaged data; {COPY_AGAIN}"
        )
    if extent.end_index < 0:
        data.clear(durable=True)
        index.clear(durable=True)
        return extent
    pos, first = _tail(data, index, begin_pos, sound_index, extent)
    data.cut(extent.end_pos, durable=True, keep_first=True)
    _write_again(data, pos, extent.end_pos)
    data.sync()
    index_end = (extent.end_index + 1) * INDEX_UNIT_SIZE
    index.cut(index_end, durable=True, keep_first=True)
    _write_again(index, first * INDEX_UNIT_SIZE, index_end)
    index.sync()
    return extent


def _tail(
    data: Segments, index: Segments, begin_pos: int, sound_index: int, extent: Extent
) -> tuple[int, int]:
    """Returns position and index of the first entry that need not be durable. None is in a file
    that has another one behind it: it was synced before that one was begun."""
    if sound_index >= extent.end_index:
        return extent.end_pos, extent.end_index + 1
    pos = _begin(data, data.start_of(extent.end_pos - 1), begin_pos)
    first = _header_index(data, pos)
    if first is None:
        raise StoreError(f"there is no entry at {pos}, where a file begins; {COPY_AGAIN}")
    if sound_index < first:
        return pos, first
    unit = index.pread(INDEX_UNIT_SIZE, (sound_index + 1) * INDEX_UNIT_SIZE)
    return INDEX_UNIT.unpack(unit)[1], sound_index + 1


def _write_again(segments: Segments, since: int, end: int) -> None:
    """Writes the bytes from `since` to `end` as they are read, see `files.atomic.write_again`."""
    while since < end:
        start = segments.start_of(since)
        stop = min(start + segments.file_size, end)
        # Not `Segments.write`, which writes zeros ahead: what is behind `stop` stays.
        since = start + write_again(segments.file(start), since - start, stop - start)
        if since < stop:
            raise StoreError(f"{segments.path(start)} is cut short at {since}; {COPY_AGAIN}")
        segments.unsynced.files.add(segments.path(start))


def _find(data: Segments, index: Segments, begin_pos: int) -> Extent:
    """Finds what the files hold. Writes index units that are missing, and cuts nothing."""
    empty = Extent(-1, -1, begin_pos)
    if not data.starts:
        return empty
    first_pos = _begin(data, data.starts[0], begin_pos)
    first = _header_index(data, first_pos)
    if first is None:
        return empty
    start = _scan_start(data, index, first_pos, begin_pos)
    end = _scan_and_index(data, index, start)
    if end is None and start > first_pos:
        end = _scan_and_index(data, index, first_pos)
    return empty if end is None else Extent(first, end.index, end.end_pos)


def _scan_and_index(data: Segments, index: Segments, start: int) -> Entry | None:
    """Returns the last whole entry from `start`; every one up to it has its index unit then."""
    indexed = bool(index.starts)
    last: Entry | None = None
    for entry in scan(data, start):
        unit = encode_index(entry)
        at = entry.index * INDEX_UNIT_SIZE
        if index.pread(INDEX_UNIT_SIZE, at) != unit:
            if indexed and entry.body_crc == 0:
                # Perhaps torn: see `Ledger.append`.
                break
            if index.starts and at < index.starts[0]:
                index.clear()
            index.write([unit], at, durable_name=True)
        last = entry
    return last


def _begin(data: Segments, offset: int, begin_pos: int) -> int:
    return begin_pos if offset <= begin_pos < offset + data.file_size else offset


def _header_index(data: Segments, pos: int) -> int | None:
    """Returns the index of the entry at `pos`; None where there is none."""
    header = data.pread(ENTRY_HEADER_SIZE, pos)
    if len(header) < ENTRY_HEADER_SIZE:
        return None
    magic, size, index, _term, at, *_ = ENTRY_HEADER.unpack(header)
    return index if magic == MAGIC and size >= ENTRY_HEADER_SIZE and at == pos else None


def _scan_start(data: Segments, index: Segments, first_pos: int, begin_pos: int) -> int:
    """Returns the first position of the third last file, or of an earlier one where its index is
    off."""
    for offset in reversed(data.starts[: -_SCANNED_FILES + 1 or None]):
        pos = _begin(data, offset, begin_pos)
        entry_index = _header_index(data, pos)
        if entry_index is None:
            continue
        unit = index.pread(INDEX_UNIT_SIZE, entry_index * INDEX_UNIT_SIZE)
        if len(unit) == INDEX_UNIT_SIZE and INDEX_UNIT.unpack(unit)[1] == pos:
            return pos
    return first_pos


def scan(data: Segments, start: int) -> Iterator[Entry]:
    """Yields every whole entry from `start`, up to the first that is damaged or missing."""
    pos = start
    previous: Entry | None = None
    buffer, buffer_pos = b"", start
    while True:
        if pos + ENTRY_HEADER_SIZE > buffer_pos + len(buffer):
            buffer, buffer_pos = data.pread(_CHUNK, pos), pos
        at = pos - buffer_pos
        if int.from_bytes(buffer[at : at + 4], "big", signed=True) == ENTRY_BLANK_MAGIC:
            pos += data.file_size - pos % data.file_size
            buffer, buffer_pos = b"", pos
            continue
        if len(buffer) - at < ENTRY_HEADER_SIZE:
            return
        size = ENTRY_HEADER.unpack_from(buffer, at)[1]
        if size < ENTRY_HEADER_SIZE or pos % data.file_size + size > data.file_size:
            return
        if at + size > len(buffer):
            buffer, buffer_pos, at = data.pread(max(size, _CHUNK), pos), pos, 0
        try:
            entry = decode_entry(buffer[at : at + size])
        except StoreError:
            return
        if not _follows(entry, pos, previous):
            return
        yield entry
        previous = entry
        pos = entry.end_pos


def _follows(entry: Entry, pos: int, previous: Entry | None) -> bool:
    if entry.magic != MAGIC or entry.pos != pos or not crc_fits(entry):
        return False
    if previous is None:
        return True
    if entry.index != previous.index + 1 or entry.term < previous.term:
        return False
    if entry.chain_crc == 0:
        return True
    return entry.chain_crc == chain_crc(
        previous.chain_crc, entry.index, entry.term, entry.pos, entry.body_crc
    )
