"""The message index: log offsets by `topic#key` (docs/formats/index.md).

A file is a header, a table of hash slots and a list of entries chained backwards from their slot.
Keys are collected and written together: the entries of one go need one system call.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable
from datetime import datetime
from operator import mul
from sys import byteorder
from typing import NamedTuple

from rocketmq_tw.files.interface import IFile, IFiles

HEADER = struct.Struct(">qqqqii")
ENTRY = struct.Struct(">iqii")
_SLOT = struct.Struct(">i")
HEADER_SIZE = 40
SLOT_SIZE = 4
ENTRY_SIZE = 20
_NAME_DIGITS = 17
#: Keys collected before they are written.
_BATCH = 256
_MAX_INT = 0x7FFFFFFF
_UTF_16 = "utf-16-le" if byteorder == "little" else "utf-16-be"
_MAX_POWERS = 1024
_POWERS = [pow(31, n, 1 << 32) for n in range(_MAX_POWERS)][::-1]


def key_hash(text: str) -> int:
    """Java's `String.hashCode` without its sign, as stock's index takes it."""
    units: bytes | array[int]
    if text.isascii():
        units = text.encode()
    else:
        units = array("H", text.encode(_UTF_16, "surrogatepass"))
    length = len(units)
    if length > _MAX_POWERS:
        value = 0
        for unit in units:
            value = value * 31 + unit & 0xFFFFFFFF
    else:
        value = sum(map(mul, units, _POWERS[_MAX_POWERS - length :])) & 0xFFFFFFFF
    if value & 0x80000000:
        value = 0x100000000 - value
        # The absolute value of the smallest int does not exist in Java; stock takes 0.
        return 0 if value == 0x80000000 else value
    return value


def index_name(now_ms: int) -> str:
    """A file's name: its creation in local time, yyyyMMddHHmmssSSS."""
    moment = datetime.fromtimestamp(now_ms / 1000)
    return moment.strftime("%Y%m%d%H%M%S") + f"{now_ms % 1000:03d}"


class _Key(NamedTuple):
    hash: int
    physical_offset: int
    timestamp: int


class IndexFile:
    """One file. `count` is one more than its entries: number 0 means none."""

    def __init__(self, file: IFile, path: str, slots: int, capacity: int) -> None:
        self.path = path
        self.begin_timestamp: int
        self.end_timestamp: int
        self.begin_offset: int
        self.end_offset: int
        self.used_slots: int
        self.count: int
        self._file = file
        self._slots = slots
        self._capacity = capacity
        self._entries_at = HEADER_SIZE + slots * SLOT_SIZE
        header = file.pread(HEADER_SIZE, 0).ljust(HEADER_SIZE, b"\0")
        (
            self.begin_timestamp,
            self.end_timestamp,
            self.begin_offset,
            self.end_offset,
            self.used_slots,
            self.count,
        ) = HEADER.unpack(header)
        self.count = max(int(self.count), 1)

    @property
    def is_full(self) -> bool:
        """Whether no entry fits; stock counts number 0 as one."""
        return self.count >= self._capacity

    def put(self, keys: list[_Key]) -> int:
        """Adds as many as fit; returns their number."""
        taken = keys[: self._capacity - self.count]
        if not taken:
            return 0
        file = self._file
        slots: dict[int, int] = {}
        entries = bytearray()
        first = number = self.count
        if number <= 1:
            self.begin_offset = taken[0].physical_offset
            self.begin_timestamp = taken[0].timestamp
        for key in taken:
            slot = key.hash % self._slots
            previous = slots.get(slot)
            if previous is None:
                previous = self._slot(slot)
                if previous == 0:
                    self.used_slots += 1
            seconds = (key.timestamp - self.begin_timestamp) // 1000
            seconds = min(max(seconds, 0), _MAX_INT)
            entries += ENTRY.pack(key.hash, key.physical_offset, seconds, previous)
            slots[slot] = number
            number += 1
        file.pwrite(entries, self._entries_at + first * ENTRY_SIZE)
        for slot, value in slots.items():
            file.pwrite(_SLOT.pack(value), HEADER_SIZE + slot * SLOT_SIZE)
        self.count = number
        self.end_offset = taken[-1].physical_offset
        self.end_timestamp = taken[-1].timestamp
        self._write_header()
        return len(taken)

    def find(self, wanted: int, limit: int, begin: int, end: int, found: list[int]) -> None:
        """Adds the offsets of entries with this hash and a store time between the two, newest
        first, until `found` has `limit`. Entries keep whole seconds."""
        number = self._slot(wanted % self._slots)
        while number and len(found) < limit:
            data = self._file.pread(ENTRY_SIZE, self._entries_at + number * ENTRY_SIZE)
            if len(data) < ENTRY_SIZE:
                return
            hashed, offset, seconds, previous = ENTRY.unpack(data)
            moment = self.begin_timestamp + seconds * 1000
            if seconds < 0 or moment + 999 < begin:
                return
            if hashed == wanted and moment <= end:
                found.append(offset)
            # Entries only point back; anything else would be a loop in a damaged file.
            number = previous if 0 < previous < number else 0

    def overlaps(self, begin: int, end: int) -> bool:
        """Whether entries of that time may be here."""
        return begin <= self.end_timestamp and end >= self.begin_timestamp

    def entries_are_sound(self) -> bool:
        """Whether every entry is one: what a power loss left of unsynced ones is not."""
        number = 1
        last = 0
        while number < self.count:
            step = min(self.count - number, 65536)
            data = self._file.pread(step * ENTRY_SIZE, self._entries_at + number * ENTRY_SIZE)
            if len(data) < step * ENTRY_SIZE:
                return False
            for _hash, offset, seconds, previous in ENTRY.iter_unpack(data):
                if offset < last or seconds < 0 or not 0 <= previous < number:
                    return False
                last = offset
                number += 1
        return last == self.end_offset or self.count == 1

    def fsync(self) -> None:
        """Makes it durable."""
        self._file.fsync()

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def _slot(self, slot: int) -> int:
        data = self._file.pread(SLOT_SIZE, HEADER_SIZE + slot * SLOT_SIZE)
        value: int = _SLOT.unpack(data)[0] if len(data) == SLOT_SIZE else 0
        return value if 0 < value < self.count else 0

    def _write_header(self) -> None:
        header = HEADER.pack(
            self.begin_timestamp,
            self.end_timestamp,
            self.begin_offset,
            self.end_offset,
            self.used_slots,
            self.count,
        )
        self._file.pwrite(header, 0)


class MessageIndex:
    """All index files of a store, oldest first."""

    def __init__(
        self,
        files: IFiles,
        directory: str,
        slots: int,
        capacity: int,
        clock: Callable[[], int],
    ) -> None:
        self._files = files
        self._directory = directory
        self._slots = slots
        self._capacity = capacity
        self._clock = clock
        self._list: list[IndexFile] = []
        self._pending: list[_Key] = []
        self.dirty: set[str] = set()

    @property
    def file_size(self) -> int:
        """What each file has."""
        return HEADER_SIZE + self._slots * SLOT_SIZE + self._capacity * ENTRY_SIZE

    @property
    def end_offset(self) -> int:
        """Log offset of the last message with a key that is indexed; -1 without one."""
        return self._list[-1].end_offset if self._list else -1

    @property
    def end_timestamp(self) -> int:
        """Store time of that message; 0 without one."""
        return self._list[-1].end_timestamp if self._list else 0

    def load(self, log_end: int, *, clean: bool) -> None:
        """Opens the files; one that cannot be trusted is removed with all behind it, since the
        log has everything to build them again."""
        self._files.make_dirs(self._directory)
        names = [
            name
            for name in self._files.list(self._directory)
            if len(name) == _NAME_DIGITS and name.isascii() and name.isdigit()
        ]
        trusted = True
        for position, name in enumerate(names):
            path = f"{self._directory}/{name}"
            file = self._files.open(path)
            index = IndexFile(file, path, self._slots, self._capacity)
            last = position == len(names) - 1
            trusted = (
                trusted
                and file.size() == self.file_size
                and index.end_offset < log_end
                and (clean or not last or index.entries_are_sound())
            )
            if trusted:
                self._list.append(index)
            else:
                index.close()
                self._files.remove(path)

    def add(self, topic: str, keys: tuple[str, ...], physical_offset: int, timestamp: int) -> None:
        """Collects a message's keys; a message that is indexed already is passed over."""
        if self._list and physical_offset <= self._list[-1].end_offset:
            return
        for key in keys:
            self._pending.append(_Key(key_hash(f"{topic}#{key}"), physical_offset, timestamp))
        if len(self._pending) >= _BATCH:
            self.write_pending()

    def write_pending(self) -> None:
        """Writes what is collected."""
        while self._pending:
            if not self._list or self._list[-1].is_full:
                self._list.append(self._create())
            index = self._list[-1]
            taken = index.put(self._pending)
            self.dirty.add(index.path)
            del self._pending[:taken]

    def query(
        self, topic: str, key: str, limit: int, begin: int, end: int
    ) -> tuple[list[int], int, int]:
        """Offsets of messages that may have the key (hashes collide), newest file first; and the
        last indexed message's store time and offset."""
        self.write_pending()
        wanted = key_hash(f"{topic}#{key}")
        found: list[int] = []
        for index in reversed(self._list):
            if index.overlaps(begin, end):
                index.find(wanted, limit, begin, end, found)
            if len(found) >= limit or index.begin_timestamp < begin:
                break
        if not self._list:
            return found, 0, 0
        return found, self._list[-1].end_timestamp, self._list[-1].end_offset

    def cut(self, physical_offset: int) -> None:
        """The log was truncated: files that go further are removed; dispatch builds them again."""
        self._pending = [key for key in self._pending if key.physical_offset < physical_offset]
        while self._list and self._list[-1].end_offset >= physical_offset:
            self._remove(self._list.pop())

    def remove_before(self, min_physical: int) -> int:
        """Removes files whose messages are all gone from the log, but never the last."""
        removed = 0
        while len(self._list) > 1 and self._list[0].end_offset < min_physical:
            self._remove(self._list.pop(0))
            removed += 1
        return removed

    def close(self) -> None:
        """Writes what is collected and closes."""
        self.write_pending()
        for index in self._list:
            index.close()
        self._list = []

    def _create(self) -> IndexFile:
        moment = self._clock()
        path = f"{self._directory}/{index_name(moment)}"
        while self._files.exists(path):
            moment += 1
            path = f"{self._directory}/{index_name(moment)}"
        file = self._files.open(path, create=True)
        file.truncate(self.file_size)
        return IndexFile(file, path, self._slots, self._capacity)

    def _remove(self, index: IndexFile) -> None:
        index.close()
        self.dirty.discard(index.path)
        self._files.remove(index.path)
