"""The message index: log offsets by `topic#key` (docs/formats/index.md).

A file is a header, a table of hash slots and a list of entries chained backwards from their slot.
Keys are collected and written together: the entries of one go need one system call.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Iterator
from datetime import datetime
from operator import mul
from sys import byteorder
from typing import NamedTuple

from rocketmq_tw.files.interface import IFile, IFiles
from rocketmq_tw.store.segments import Unsynced

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
            hashed, offset, seconds, previous = self._entry(number)
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

    def check(self, first: int) -> None:
        """After a power loss: entries from number `first` on may be garbage, and slots and header
        older or newer than them. Keeps the entries that are sound, and makes the slots theirs."""
        number = first = min(max(first, 1), self.count)
        last = self._entry(first - 1)[1] if first > 1 else 0
        newest: dict[int, int] = {}
        for hashed, offset, seconds, previous in self._entries(first):
            is_blank = hashed == 0 and offset == 0
            if is_blank or offset < last or seconds < 0 or not 0 <= previous < number:
                break
            newest[hashed % self._slots] = number
            last = offset
            number += 1
        table = self._read_slots()
        if (
            number < self.count
            or max(table, default=0) >= number
            or any(table[slot] != value for slot, value in newest.items())
            or (number > 1 and last != self.end_offset)
        ):
            self._end_at(number)

    def cut(self, physical_offset: int) -> None:
        """Drops the entries of messages at and behind a log offset."""
        low, high = 1, self.count
        while low < high:
            middle = (low + high) // 2
            if self._entry(middle)[1] < physical_offset:
                low = middle + 1
            else:
                high = middle
        if low < self.count:
            self._end_at(low)

    def _end_at(self, number: int) -> None:
        """Keeps the entries in front of `number`, with a slot table made from them."""
        self.count = number
        table = array("i", bytes(self._slots * SLOT_SIZE))
        for entry_number, entry in enumerate(self._entries(1), 1):
            table[entry[0] % self._slots] = entry_number
        self.used_slots = len(table) - table.count(0)
        if byteorder == "little":
            table.byteswap()
        self._file.pwrite(table.tobytes(), HEADER_SIZE)
        if number > 1:
            _hash, self.end_offset, seconds, _previous = self._entry(number - 1)
            self.end_timestamp = self.begin_timestamp + seconds * 1000
        else:
            self.begin_timestamp = self.end_timestamp = self.begin_offset = self.end_offset = 0
        self._write_header()

    def _entries(self, first: int) -> Iterator[tuple[int, int, int, int]]:
        for number in range(first, self.count, 65536):
            size = min(self.count - number, 65536) * ENTRY_SIZE
            data = self._file.pread(size, self._entries_at + number * ENTRY_SIZE)
            yield from ENTRY.iter_unpack(data.ljust(size, b"\0"))

    def _entry(self, number: int) -> tuple[int, int, int, int]:
        data = self._file.pread(ENTRY_SIZE, self._entries_at + number * ENTRY_SIZE)
        hashed, offset, seconds, previous = ENTRY.unpack(data.ljust(ENTRY_SIZE, b"\0"))
        return hashed, offset, seconds, previous

    def _read_slots(self) -> array[int]:
        size = self._slots * SLOT_SIZE
        table = array("i", self._file.pread(size, HEADER_SIZE).ljust(size, b"\0"))
        if byteorder == "little":
            table.byteswap()
        return table

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
        self.unsynced = Unsynced()

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

    @property
    def synced_mark(self) -> tuple[int, int]:
        """What `load` must know after a power loss: the last file's begin offset and count."""
        last = self._list[-1] if self._list else None
        return (last.begin_offset, last.count) if last else (-1, 1)

    def load(self, mark: tuple[int, int], *, clean: bool) -> None:
        """Opens the files; one of a wrong size is removed with all behind it, since the log has
        everything to build them again. `mark` is `synced_mark` of the last checkpoint."""
        self._files.make_dirs(self._directory)
        names = [
            name
            for name in self._files.list(self._directory)
            if len(name) == _NAME_DIGITS and name.isascii() and name.isdigit()
        ]
        trusted = True
        for name in names:
            path = f"{self._directory}/{name}"
            file = self._files.open(path)
            trusted = trusted and file.size() == self.file_size
            if not trusted:
                file.close()
                self._files.remove(path)
                self.unsynced.dirs.add(self._directory)
                continue
            index = IndexFile(file, path, self._slots, self._capacity)
            if not clean and (index.begin_offset >= mark[0] or index.count == 1):
                index.check(mark[1] if index.begin_offset == mark[0] else 1)
                self.unsynced.files.add(path)
                # What follows a file that lost its end would hide that from the log's reader.
                trusted = index.is_full
            self._list.append(index)
            if index.count == 1:
                self._remove(self._list.pop())

    def add(self, topic: str, keys: tuple[str, ...], physical_offset: int, timestamp: int) -> None:
        """Collects a message's keys; messages in front of the last indexed one are passed over,
        that one itself is not, since a crash may have come between its keys."""
        if self._list and physical_offset < self._list[-1].end_offset:
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
            self.unsynced.files.add(index.path)
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
        found = list(dict.fromkeys(found))
        if not self._list:
            return found, 0, 0
        return found, self._list[-1].end_timestamp, self._list[-1].end_offset

    def cut(self, physical_offset: int) -> None:
        """The log was truncated there: so is the index."""
        self._pending = [key for key in self._pending if key.physical_offset < physical_offset]
        while self._list and self._list[-1].end_offset >= physical_offset:
            last = self._list[-1]
            if last.begin_offset < physical_offset:
                last.cut(physical_offset)
                self.unsynced.files.add(last.path)
                break
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
        # Durable at once, so that a power loss never takes a file out of the middle.
        file.fsync()
        self._files.sync_dir(self._directory)
        return IndexFile(file, path, self._slots, self._capacity)

    def _remove(self, index: IndexFile) -> None:
        index.close()
        self._files.remove(index.path)
        self.unsynced.files.discard(index.path)
        self.unsynced.dirs.add(self._directory)
