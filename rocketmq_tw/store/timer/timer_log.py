"""The timer log: entries one after the other, each leading to the one before in its slot.

What is appended stays in memory until `write`, which comes behind a sync of the commit log: so no
entry outlives the message that it stands for, and none is ahead of what was delivered before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from rocketmq_tw.store.errors import DamagedStoreError
from rocketmq_tw.store.handles import HandlePool, Unsynced
from rocketmq_tw.store.segments import Segments, ShortFiles
from rocketmq_tw.store.timer.unit import (
    NOWHERE,
    OFFSET_AT,
    TIMER_UNIT_SIZE,
    VOID,
    TimerUnit,
    blank,
    decode_unit,
    units_in_file,
)
from rocketmq_tw.store.timer.wheel import SLOTS

#: Read at once where entries may be apart, and where all of them are wanted.
_NEAR = 4096
_BLOCK = 512 * TIMER_UNIT_SIZE


class _Tail(NamedTuple):
    """The bytes that are not written yet, and the position where they begin."""

    start: int
    data: bytearray


class TimerLog:
    """Positions count over all files; a slot has entries of `precision_ms`. One thread appends and
    cuts; others may read entries and `write` meanwhile."""

    def __init__(
        self,
        pool: HandlePool,
        directory: str,
        file_size: int,
        precision_ms: int,
        *,
        slots: int = SLOTS,
    ) -> None:
        self._precision_ms = precision_ms
        self._slots = slots
        self._segments = Segments(pool, directory, file_size, Unsynced())
        self._per_file = units_in_file(file_size)
        self._tail = _Tail(0, bytearray())

    @property
    def file_size(self) -> int:
        return self._segments.file_size

    @property
    def start(self) -> int:
        """The position of the oldest file; without files, of the first entry to come."""
        return self._segments.starts[0] if self._segments.starts else self._tail.start

    @property
    def end(self) -> int:
        """The position behind the last entry, unwritten ones included."""
        return self._tail.start + len(self._tail.data)

    @property
    def unwritten(self) -> int:
        """Bytes that wait for `write`."""
        return len(self._tail.data)

    @property
    def written(self) -> int:
        """The position up to which the files have the log."""
        return self._tail.start

    @property
    def files_end(self) -> int:
        """The position behind the last file, full or not."""
        return self._segments.end

    @property
    def file_starts(self) -> list[int]:
        """Where each file starts, the oldest first."""
        return list(self._segments.starts)

    def is_place(self, position: int) -> bool:
        """Returns whether an entry may stand at a position of the files there are, or right behind
        them."""
        segments = self._segments
        if not segments.starts:
            return position == 0
        used = position % segments.file_size
        is_unit = used % TIMER_UNIT_SIZE == 0 or used >= self._per_file * TIMER_UNIT_SIZE
        return is_unit and segments.starts[0] <= position <= segments.end

    def load(self, *, clean: bool) -> None:
        """Finds the files; `end_at` must follow. `clean`: nothing interrupted the last one who
        wrote. Raises `StoreError`."""
        # A crash may have come while a file's end was cut off.
        short = ShortFiles.REFUSE if clean else ShortFiles.EXTEND
        self._segments.load("mappedFileSizeTimerLog", short=short)
        self._tail = _Tail(self._segments.end, bytearray())

    def write_again(self, since: int) -> None:
        """Makes durable what the files have from `since` on, also where a sync of the last process
        failed."""
        self._segments.write_again(since)

    def scan(self, position: int) -> Iterator[tuple[int, TimerUnit]]:
        """Yields the entries in the files from `position` on, with their positions, up to the first
        place without one."""
        segments = self._segments
        while segments.has(segments.start_of(position)):
            start = segments.start_of(position)
            room = start + self._per_file * TIMER_UNIT_SIZE - position
            if room <= 0:
                position = start + segments.file_size
                continue
            data = segments.pread(min(_BLOCK, room), position)
            for at in range(0, len(data) - TIMER_UNIT_SIZE + 1, TIMER_UNIT_SIZE):
                unit = decode_unit(data, at)
                if unit is None:
                    return
                yield position + at, unit
            position += len(data) // TIMER_UNIT_SIZE * TIMER_UNIT_SIZE
            if len(data) < TIMER_UNIT_SIZE:
                return

    def end_at(self, position: int, *, cut: bool) -> None:
        """Ends the log at `position`; what files have behind it is removed, durably, with `cut` or
        where something stands right there, which is no entry."""
        if position < self._segments.end and (
            cut or any(self._segments.pread(TIMER_UNIT_SIZE, position))
        ):
            self._segments.cut(position, durable=True)
        self._tail = _Tail(position, bytearray())

    def append(self, unit: TimerUnit) -> int:
        """Adds an entry; returns its position."""
        tail = self._tail.data
        end = self._tail.start + len(tail)
        used = end % self._segments.file_size
        if used >= self._per_file * TIMER_UNIT_SIZE:
            rest = self._segments.file_size - used
            tail += blank(rest)
            end += rest
        tail += unit.encode()
        return end

    def reader(self, *, ascending: bool = False) -> TimerLogReader:
        """Reads what the log has now, in any thread; mostly from its end to its start, or the other
        way where it is `ascending`."""
        return TimerLogReader(self, self._segments, self._tail, ascending)

    def place_of(self, time_ms: int) -> int:
        """Returns the place on the wheel of a time, in slots."""
        return time_ms // self._precision_ms % self._slots

    def before(self, position: int) -> int:
        """Returns the position of the entry in front of `position`; `NOWHERE` at the log's
        start."""
        size = self._segments.file_size
        used = position % size
        if used == 0:
            used = size
        base = (position - 1) // size * size if position else 0
        at = base + (min(used // TIMER_UNIT_SIZE, self._per_file) - 1) * TIMER_UNIT_SIZE
        return at if at >= self.start and position > 0 else NOWHERE

    def cut(self, position: int) -> None:
        """Drops all entries at and behind `position`, durably if they were written; nothing may be
        written meanwhile."""
        tail = self._tail
        if position >= tail.start:
            self._tail = _Tail(tail.start, tail.data[: position - tail.start])
        else:
            self._segments.cut(position, durable=True)
            self._tail = _Tail(position, bytearray())

    def void(self, positions: Iterable[int]) -> None:
        """Takes the messages out of entries, durably if these were written; nothing may be written
        meanwhile."""
        written = False
        for position in positions:
            at = position + OFFSET_AT
            if position >= self._tail.start:
                tail, at = self._tail.data, at - self._tail.start
                tail[at : at + len(VOID)] = VOID
            else:
                self._segments.write([VOID], at)
                written = True
        if written:
            self._segments.sync()

    # Writing

    def take_unwritten(self) -> tuple[int, bytes]:
        """Returns what `write` has to write: the position, and the bytes."""
        return self._tail.start, bytes(self._tail.data)

    def write(self, position: int, data: bytes) -> None:
        """Writes what `take_unwritten` gave, durably; in any thread."""
        segments = self._segments
        at = 0
        while at < len(data):
            where = position + at
            room = segments.file_size - where % segments.file_size
            # Durable one by one: a power loss among several could leave a gap.
            segments.write([data[at : at + room]], where, durable_name=True)
            at += room
        segments.sync()

    def forget_written(self, position: int, data: bytes) -> None:
        """Drops from memory what `take_unwritten` gave, since it is in the files."""
        rest = self._tail.data[len(data) :]
        self._tail = _Tail(position + len(data), rest)

    def remove_first(self) -> None:
        """Removes the oldest file, once the removals before it are durable: it syncs where
        `has_unsynced_removals`."""
        self._segments.remove_first()

    @property
    def has_unsynced_removals(self) -> bool:
        """Whether a power loss may bring removed files back."""
        return self._segments.removed_may_return

    def sync_removals(self) -> None:
        """Makes durable that files are removed; blocks, in any thread. Raises `OSError`."""
        self._segments.sync_removals()

    def last_unit_of(self, start: int) -> TimerUnit | None:
        """Returns the last entry of the whole file that starts there."""
        at = start + (self._per_file - 1) * TIMER_UNIT_SIZE
        return decode_unit(self._segments.pread(TIMER_UNIT_SIZE, at))

    def close(self) -> None:
        """Closes the files; what is not written is gone."""
        self._segments.close()


class TimerLogReader:
    """Reads the log as it is when this is made; its files stay as long as it is used."""

    def __init__(self, log: TimerLog, segments: Segments, tail: _Tail, ascending: bool) -> None:
        self._log = log
        self._segments = segments
        self._tail = tail
        self._ascending = ascending
        self._block = b""
        self._block_at = 0

    def unit(self, position: int) -> TimerUnit | None:
        """Returns the entry at a position; None where there is none."""
        tail = self._tail
        if position >= tail.start:
            at = position - tail.start
            return decode_unit(bytes(tail.data[at : at + TIMER_UNIT_SIZE]))
        at = position - self._block_at
        if not 0 <= at <= len(self._block) - TIMER_UNIT_SIZE:
            # Those that are read one after the other are often next to each other.
            start = self._segments.start_of(position)
            end = position + TIMER_UNIT_SIZE
            self._block_at = position if self._ascending else max(start, end - _NEAR)
            size = _NEAR if self._ascending else end - self._block_at
            self._block = self._segments.pread(size, self._block_at)
            at = position - self._block_at
        return decode_unit(self._block, at)

    def chain(self, last: int) -> Iterator[tuple[int, TimerUnit]]:
        """Yields the entries of a slot with their positions, from its last to its first, and with
        them those of later rounds that wait at its place of the wheel. Raises `DamagedStoreError`
        where one leads to what is no entry of that place."""
        place_of = self._log.place_of
        place, behind, position = None, last + 1, last
        while position != NOWHERE:
            unit = self.unit(position) if 0 <= position < behind else None
            if 0 <= position < self._start:
                # It was removed with its message, which is gone.
                return
            found = None if unit is None else place_of(unit.time_ms)
            if unit is None or place not in (None, found):
                raise DamagedStoreError(
                    f"the timer log has no entry at {position} of the slot that leads there"
                )
            yield position, unit
            place, behind, position = found, position, unit.previous

    @property
    def _start(self) -> int:
        starts = self._segments.starts
        return starts[0] if starts else self._tail.start
