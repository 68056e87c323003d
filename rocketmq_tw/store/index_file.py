"""One file of the message index: a header, hash slots, and entries chained back from their slot.

Format: docs/formats/index.md. A slot has the number of its newest entry. Keys spread over all
slots, so writing each slot where it changes would cost a system call or two a message. They are
kept by pages, read when first asked for, and written back together when a checkpoint asks: until
then the entries on disk tell the same (`IndexFile.check`).
"""

from __future__ import annotations

import struct
from array import array
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from sys import byteorder

from rocketmq_tw.files.atomic import write_again
from rocketmq_tw.files.interface import IFile
from rocketmq_tw.interpreter import IS_PYPY

_SLOT_SIZE = 4
_SLOT = struct.Struct("i")
#: Slots of a page; 4 KiB as files have them.
PAGE_SLOTS = 1024

#: Makes an iterator do its work.
_exhaust = deque[None](maxlen=0).extend


class SlotTable:
    """`count` slots of a file from byte `start` on; 0 is an empty slot."""

    def __init__(self, file: IFile, start: int, count: int) -> None:
        self.count = count
        self._file = file
        self._start = start
        #: All slots, of which those of the pages in `_read_pages` are as in the file or newer. One
        #: piece of memory, since keys find it cold: of a page only what is used is there.
        self._table: memoryview[int] | None = None
        self._memory: mmap | None = None
        self._read_pages: set[int] = set()
        self._changed: set[int] = set()

    def exchange(self, slots: Sequence[int], first: int) -> list[int]:
        """Gives the slots the numbers from `first` on, one after the other; returns the number
        that each had, 0 for one that is not below the new one. The file has them after `write`."""
        touched = {slot // PAGE_SLOTS for slot in slots}
        table = self._single(touched)
        self._changed |= touched
        end = first + len(slots)
        if not IS_PYPY and len(set(slots)) == len(slots):
            former = list(map(table.__getitem__, slots))
            _exhaust(map(table.__setitem__, slots, range(first, end)))
        else:
            former = []
            for number, slot in enumerate(slots, first):
                former.append(table[slot])
                table[slot] = number
        if min(former) < 0 or max(former) >= first:
            return [old if 0 < old < new else 0 for new, old in enumerate(former, first)]
        return former

    def take_back(self, slots: Sequence[int], former: Sequence[int]) -> None:
        """Undoes an `exchange`."""
        table = self._single(set())
        for slot, number in zip(reversed(slots), reversed(former), strict=True):
            table[slot] = number

    def peek(self, slot: int) -> int:
        """Reads one slot without keeping its page: for files that take no more entries."""
        if slot // PAGE_SLOTS in self._read_pages:
            return self._single(set())[slot]
        return self._read_slots(slot, 1)[0]

    def write(self) -> bool:
        """Writes the changed pages, neighbours with one call; whether there were any."""
        changed = sorted(self._changed)
        table = self._in_memory(set()) if changed else memoryview(b"")
        run: list[bytes] = []
        for index, page in enumerate(changed):
            run.append(_on_disk(array("i", table[_slots_of(page)].tobytes())))
            if index + 1 == len(changed) or changed[index + 1] != page + 1:
                first = page + 1 - len(run)
                self._file.pwritev(run, self._start + first * PAGE_SLOTS * _SLOT_SIZE)
                run = []
        self._changed.clear()
        return bool(changed)

    def release(self) -> None:
        """Frees the memory; `write` comes before."""
        if self._table is not None and self._memory is not None:
            # At once: a collector that does not count references knows nothing of its size.
            self._table.release()
            self._memory.close()
        self._table = self._memory = None
        self._read_pages.clear()
        self._changed.clear()

    def read_all(self) -> array[int]:
        """Reads all slots from the file."""
        return self._read_slots(0, self.count)

    def change(self, before: array[int], after: array[int], unsynced: Collection[int]) -> None:
        """Sets all slots to `after` where the file has `before`; it has them after `write`, which
        also writes the pages that are `unsynced`."""
        for page in range(-(-self.count // PAGE_SLOTS)):
            at = page * PAGE_SLOTS
            slots = after[at : at + PAGE_SLOTS]
            if slots != before[at : at + PAGE_SLOTS] or page in unsynced:
                self._in_memory(set())[_slots_of(page)] = memoryview(slots)
                self._read_pages.add(page)
                self._changed.add(page)

    def replace(self, table: array[int], at_once: int) -> Iterator[None]:
        """Writes all slots, a step for each `at_once` of them."""
        for first in range(0, self.count, at_once):
            some = table[first : first + at_once]
            self._file.pwrite(_on_disk(some), self._start + first * _SLOT_SIZE)
            yield
        self.release()

    def _single(self, pages: set[int]) -> memoryview[int] | _SlotsInMemory:
        """Returns what single slots are read and set by, with those of `pages` read."""
        table = self._in_memory(pages)
        return _SlotsInMemory(self._memory) if IS_PYPY and self._memory is not None else table

    def _in_memory(self, pages: set[int]) -> memoryview[int]:
        """Returns all slots, with those of `pages` read."""
        if self._table is None:
            size = self.count * _SLOT_SIZE
            self._memory = mmap(-1, size, MAP_PRIVATE | MAP_ANONYMOUS)
            with memoryview(self._memory) as octets:
                self._table = octets.cast("i")
        for page in pages - self._read_pages:
            first = page * PAGE_SLOTS
            slots = self._read_slots(first, min(PAGE_SLOTS, self.count - first))
            self._table[_slots_of(page)] = memoryview(slots)
            self._read_pages.add(page)
        return self._table

    def _read_slots(self, first: int, count: int) -> array[int]:
        size = count * _SLOT_SIZE
        data = self._file.pread(size, self._start + first * _SLOT_SIZE)
        slots = array("i", data.ljust(size, b"\0"))
        if byteorder == "little":
            slots.byteswap()
        return slots


class _SlotsInMemory:
    """Reads and sets a slot in a tenth of the time that an item of a `memoryview` takes PyPy."""

    __slots__ = ("_memory",)

    def __init__(self, memory: mmap) -> None:
        self._memory = memory

    def __getitem__(self, slot: int) -> int:
        number: int = _SLOT.unpack_from(self._memory, slot * _SLOT_SIZE)[0]
        return number

    def __setitem__(self, slot: int, number: int) -> None:
        _SLOT.pack_into(self._memory, slot * _SLOT_SIZE, number)


def _slots_of(page: int) -> slice:
    return slice(page * PAGE_SLOTS, (page + 1) * PAGE_SLOTS)


def _on_disk(slots: array[int]) -> bytes:
    """Returns the bytes of `slots` on the disk: big-endian."""
    if byteorder == "big":
        return slots.tobytes()
    swapped = array("i", slots)
    swapped.byteswap()
    return swapped.tobytes()


INDEX_HEADER = struct.Struct(">qqqqii")
INDEX_ENTRY = struct.Struct(">iqii")
INDEX_HEADER_SIZE = 40
ENTRY_SIZE = 20
_MAX_INT = 0x7FFFFFFF
#: Entries that one read of a search takes, and those between two steps of it.
_BLOCK, _STEP = 256, 500
#: Entries that one step of a cut reads, and slots that it writes at once.
STEP_ENTRIES = 8192


def index_file_size(slots: int, capacity: int) -> int:
    """Returns the size in bytes of a file with so many slots and entries."""
    return INDEX_HEADER_SIZE + slots * _SLOT_SIZE + capacity * ENTRY_SIZE


#: A key on its way into a file: its hash, its message's log offset and store time.
IndexKey = tuple[int, int, int]


class IndexFile:
    """One index file (docs/formats/index.md). `count` is one more than its entries: number 0 means
    none."""

    def __init__(self, file: IFile, path: str, slots: int, capacity: int) -> None:
        self.path = path
        self.begin_timestamp: int
        self.end_timestamp: int
        self.begin_offset: int
        self.end_offset: int
        self.used_slots: int
        self.count: int
        self._file = file
        self._slots = SlotTable(file, INDEX_HEADER_SIZE, slots)
        self._capacity = capacity
        self._entries_at = INDEX_HEADER_SIZE + slots * _SLOT_SIZE
        header = file.pread(INDEX_HEADER_SIZE, 0).ljust(INDEX_HEADER_SIZE, b"\0")
        self._header = INDEX_HEADER.unpack(header)
        self.count = max(int(self.count), 1)

    @property
    def _header(self) -> tuple[int, ...]:
        return (
            self.begin_timestamp,
            self.end_timestamp,
            self.begin_offset,
            self.end_offset,
            self.used_slots,
            self.count,
        )

    @_header.setter
    def _header(self, fields: tuple[int, ...]) -> None:
        (
            self.begin_timestamp,
            self.end_timestamp,
            self.begin_offset,
            self.end_offset,
            self.used_slots,
            self.count,
        ) = fields

    @property
    def is_full(self) -> bool:
        """Whether no entry fits; stock counts number 0 as one."""
        return self.count >= self._capacity

    def put(self, keys: list[IndexKey]) -> int:
        """Adds as many as fit; returns their number. Their slots reach the file with
        `write_slots`."""
        taken = keys[: self._capacity - self.count]
        if not taken:
            return 0
        first = self.count
        former = self._header
        if first <= 1:
            _, self.begin_offset, self.begin_timestamp = taken[0]
        table = self._slots
        slots = [hashed % table.count for hashed, _, _ in taken]
        previous = table.exchange(slots, first)
        seconds = {moment: self._seconds(moment) for moment in {moment for _, _, moment in taken}}
        pack = INDEX_ENTRY.pack
        entries = [
            pack(hashed, offset, seconds[moment], former_number)
            for (hashed, offset, moment), former_number in zip(taken, previous, strict=True)
        ]
        try:
            self._file.pwrite(b"".join(entries), self._entries_at + first * ENTRY_SIZE)
            self.count = first + len(taken)
            self.used_slots += previous.count(0)
            _, self.end_offset, self.end_timestamp = taken[-1]
            self._write_header()
        except OSError:
            table.take_back(slots, previous)
            self._header = former
            raise
        return len(taken)

    def _seconds(self, timestamp: int) -> int:
        """Returns the seconds from the file's first message to that time, as an entry keeps
        them."""
        return min(max((timestamp - self.begin_timestamp) // 1000, 0), _MAX_INT)

    def write_slots(self) -> bool:
        """Brings the file's slots up to its entries; whether they were behind."""
        return self._slots.write()

    def release(self) -> bool:
        """Frees the memory that was kept to add entries, since the file gets no more. Returns
        whether its slots were behind, see `write_slots`."""
        written = self._slots.write()
        self._slots.release()
        return written

    def find(
        self, wanted: int, limit: int, begin: int, end: int, found: list[int]
    ) -> Iterator[None]:
        """Adds the offsets of entries with this hash and a store time between the two, newest
        first, until `found` has `limit`. Entries keep whole seconds. A step for each `_STEP` of
        them, between which the file may change."""
        number = self._slots.peek(wanted % self._slots.count)
        first, block, looked_at = 0, b"", 0
        while 0 < number < self.count and len(found) < limit:
            looked_at += 1
            if looked_at % _STEP == 0:
                yield
                block = b""
                continue
            if number < first or not block:
                # A chain of many entries mostly stays near; one read serves what lies in front.
                first = max(number + 1 - _BLOCK, 1)
                size = (number + 1 - first) * ENTRY_SIZE
                block = self._file.pread(size, self._entries_at + first * ENTRY_SIZE)
                block = block.ljust(size, b"\0")
            place = (number - first) * ENTRY_SIZE
            hashed, offset, seconds, previous = INDEX_ENTRY.unpack_from(block, place)
            moment = self.begin_timestamp + seconds * 1000
            if seconds < 0 or moment + 999 < begin:
                return
            if hashed == wanted and moment <= end:
                found.append(offset)
            # Entries only point back; anything else would be a loop in a damaged file.
            number = previous if 0 < previous < number else 0

    def overlaps(self, begin: int, end: int) -> bool:
        """Returns whether entries of that time may be here."""
        return begin <= self.end_timestamp and end >= self.begin_timestamp

    def check(self, first: int) -> None:
        """Repairs the file after a crash, when entries from number `first` on may be garbage, and
        slots and header older or newer than them. Keeps the sound entries and makes slots that fit
        them; `write_slots` writes these."""
        number = first = min(max(first, 1), self.count)
        self._write_again(first)
        last = self._entry(first - 1)[1] if first > 1 else 0
        before = self._slots.read_all()
        table, slots = before[:], len(before)
        unsynced = set[int]()
        for hashed, offset, seconds, previous in self._entries(first, self.count):
            is_blank = hashed == 0 and offset == 0
            if is_blank or offset < last or seconds < 0 or not 0 <= previous < number:
                break
            table[hashed % slots] = number
            unsynced.add(hashed % slots // PAGE_SLOTS)
            last = offset
            number += 1
        if (
            number < self.count
            or max(table, default=0) >= number
            or (number > 1 and last != self.end_offset)
        ):
            for _ in self._end_at(number):
                pass
        else:
            # The entries are sound; not all of their slots were written back.
            self._slots.change(before, table, unsynced)
            self._clear_behind()

    def _write_again(self, first: int) -> None:
        """Writes header and entries from number `first` on as they are read, see
        `files.atomic.write_again`."""
        self._write_header()
        begin = self._entries_at + first * ENTRY_SIZE
        end = self._entries_at + min(self.count, self._capacity) * ENTRY_SIZE
        write_again(self._file, begin, end)

    def cut(self, physical_offset: int) -> Iterator[None]:
        """Drops the entries of messages at and behind a log offset, in steps between which the
        others are found; nothing may be put in meanwhile."""
        low, high = 1, self.count
        while low < high:
            middle = (low + high) // 2
            if self._entry(middle)[1] < physical_offset:
                low = middle + 1
            else:
                high = middle
        if low < self.count:
            yield from self._end_at(low)

    def _end_at(self, number: int) -> Iterator[None]:
        """Keeps the entries in front of `number`, with a slot table made from them."""
        slots = self._slots.count
        table = array("i", bytes(slots * _SLOT_SIZE))
        used = 0
        for first in range(1, number, STEP_ENTRIES):
            entries = self._entries(first, min(first + STEP_ENTRIES, number))
            for entry_number, (hashed, _, _, _) in enumerate(entries, first):
                slot = hashed % slots
                used += not table[slot]
                table[slot] = entry_number
            yield
        yield from self._slots.replace(table, STEP_ENTRIES)
        self.count, self.used_slots = number, used
        if number > 1:
            _hash, self.end_offset, seconds, _previous = self._entry(number - 1)
            self.end_timestamp = self.begin_timestamp + seconds * 1000
        else:
            self.begin_timestamp = self.end_timestamp = self.begin_offset = self.end_offset = 0
        self._write_header()
        self._clear_behind()

    def _clear_behind(self) -> None:
        """Makes zeros, durably, of what stands behind the last entry: a power loss that takes the
        next entries and leaves the header must not show former ones in their place."""
        self._file.fsync()
        end = self._entries_at + self.count * ENTRY_SIZE
        self._file.truncate(end)
        self._file.truncate(self._entries_at + self._capacity * ENTRY_SIZE)
        self._file.fsync()

    def _entries(self, first: int, end: int) -> Iterator[tuple[int, int, int, int]]:
        for number in range(first, end, 65536):
            size = min(end - number, 65536) * ENTRY_SIZE
            data = self._file.pread(size, self._entries_at + number * ENTRY_SIZE)
            yield from INDEX_ENTRY.iter_unpack(data.ljust(size, b"\0"))

    def _entry(self, number: int) -> tuple[int, int, int, int]:
        data = self._file.pread(ENTRY_SIZE, self._entries_at + number * ENTRY_SIZE)
        hashed, offset, seconds, previous = INDEX_ENTRY.unpack(data.ljust(ENTRY_SIZE, b"\0"))
        return hashed, offset, seconds, previous

    def fsync(self) -> None:
        """Makes durable what is written, and the size."""
        self._file.fsync()

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def _write_header(self) -> None:
        self._file.pwrite(INDEX_HEADER.pack(*self._header), 0)
