"""The hash slots of an index file: the number of the newest entry of each.

Keys spread over all slots, so writing each slot where it changes would cost a system call or two
a message. They are kept by pages, read when first asked for, and written back together when a
checkpoint asks: until then the entries on disk tell the same (`IndexFile.check`).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import repeat
from operator import itemgetter
from sys import byteorder

from rocketmq_tw.files.interface import IFile

SLOT_SIZE = 4
#: Slots of a page; 4 KiB as files have them.
PAGE_SLOTS = 1024

_page_of = itemgetter(0)


class SlotTable:
    """`count` slots of a file from byte `start` on; 0 is an empty slot."""

    def __init__(self, file: IFile, start: int, count: int) -> None:
        self.count = count
        self._file = file
        self._start = start
        #: Page number -> its slots.
        self._pages: dict[int, array[int]] = {}
        self._changed: set[int] = set()

    def exchange(self, slots: Sequence[int], first: int) -> list[int]:
        """Gives the slots the numbers from `first` on, one after the other; returns the number
        that each had, 0 for one that is not below the new one. The file has them after `write`."""
        pages = self._pages
        places = list(map(divmod, slots, repeat(PAGE_SLOTS)))
        touched = set(map(_page_of, places))
        for page in touched - pages.keys():
            pages[page] = self._read(page)
        self._changed |= touched
        former = []
        for number, (page, place) in enumerate(places, first):
            table = pages[page]
            former.append(table[place])
            table[place] = number
        if min(former) < 0 or max(former) >= first:
            return [old if 0 < old < new else 0 for new, old in enumerate(former, first)]
        return former

    def take_back(self, slots: Sequence[int], former: Sequence[int]) -> None:
        """Undoes an `exchange`."""
        for slot, number in zip(reversed(slots), reversed(former), strict=True):
            self._pages[slot // PAGE_SLOTS][slot % PAGE_SLOTS] = number

    def peek(self, slot: int) -> int:
        """The number of one slot, read without keeping its page: for files that take no more
        entries."""
        page = self._pages.get(slot // PAGE_SLOTS)
        if page is None:
            return self._read_slots(slot, 1)[0]
        return page[slot % PAGE_SLOTS]

    def write(self) -> bool:
        """Writes the changed pages, neighbours with one call; whether there were any."""
        changed = sorted(self._changed)
        run: list[bytes] = []
        for index, page in enumerate(changed):
            run.append(_on_disk(self._pages[page]))
            if index + 1 == len(changed) or changed[index + 1] != page + 1:
                first = page + 1 - len(run)
                self._file.pwritev(run, self._start + first * PAGE_SLOTS * SLOT_SIZE)
                run = []
        self._changed.clear()
        return bool(changed)

    def release(self) -> None:
        """Frees the memory; `write` comes before."""
        self._pages.clear()
        self._changed.clear()

    def read_all(self) -> array[int]:
        """All slots as the file has them."""
        return self._read_slots(0, self.count)

    def change(self, before: array[int], after: array[int]) -> None:
        """Sets all slots to `after` where the file has `before`; it has them after `write`."""
        for page in range(-(-self.count // PAGE_SLOTS)):
            first = page * PAGE_SLOTS
            slots = after[first : first + PAGE_SLOTS]
            if slots != before[first : first + PAGE_SLOTS]:
                self._pages[page] = slots
                self._changed.add(page)

    def replace(self, table: array[int], at_once: int) -> Iterator[None]:
        """Writes all slots, a step for each `at_once` of them."""
        for first in range(0, self.count, at_once):
            some = table[first : first + at_once]
            self._file.pwrite(_on_disk(some), self._start + first * SLOT_SIZE)
            yield
        self.release()

    def _read(self, page: int) -> array[int]:
        first = page * PAGE_SLOTS
        return self._read_slots(first, min(PAGE_SLOTS, self.count - first))

    def _read_slots(self, first: int, count: int) -> array[int]:
        size = count * SLOT_SIZE
        data = self._file.pread(size, self._start + first * SLOT_SIZE)
        slots = array("i", data.ljust(size, b"\0"))
        if byteorder == "little":
            slots.byteswap()
        return slots


def _on_disk(slots: array[int]) -> bytes:
    """Big-endian."""
    if byteorder == "big":
        return slots.tobytes()
    swapped = array("i", slots)
    swapped.byteswap()
    return swapped.tobytes()
