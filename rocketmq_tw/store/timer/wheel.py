"""The wheel: what waits for each stretch of time, in a file of stock's, read page by page.

A slot stands for `precision_ms` and has its place in the file by its time; one round of the file is
14 days at a second's precision. A place is one slot's at a time: what waits there for two of them,
as after the clock was set, is for `TimerFiles` to look after.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from contextlib import closing
from struct import Struct
from typing import NamedTuple

from rocketmq_tw.files.interface import IFile, IFiles
from rocketmq_tw.store.errors import DamagedStoreError

#: Time divided by the precision, first and last position in the timer log, number, and a magic
#: that is always 0.
_SLOT = Struct(">qqqii")
SLOT_SIZE = _SLOT.size
#: Stock's: seven days at a second's precision, twice, whatever the precision is.
SLOTS = 2 * 7 * 24 * 3600
_PAGE_SLOTS = 128
_PAGE_SIZE = _PAGE_SLOTS * SLOT_SIZE
#: Pages that are read at once by a start.
_READ_PAGES = 256
_EMPTY_PAGE = bytes(_PAGE_SIZE)
_EMPTY_PAGES = bytes(_READ_PAGES * _PAGE_SIZE)
_MAX_INT = (1 << 31) - 1


class Slot(NamedTuple):
    """A slot of the wheel. `number` counts its entries, less those that recall one."""

    first: int
    last: int
    number: int


class WheelPlace(NamedTuple):
    """The slot that has a place of the wheel, and when it begins, in ms since 1970."""

    time_ms: int
    slot: Slot


class TimerWheel:
    """Pages that hold nothing of the time to come are not kept in memory; changes are written by
    `take_dirty` and `write`."""

    def __init__(self, files: IFiles, path: str, precision_ms: int, *, slots: int = SLOTS) -> None:
        self.precision_ms = precision_ms
        self.slots = slots
        self._files = files
        self._path = path
        self._file: IFile | None = None
        self._pages: dict[int, bytearray] = {}
        self._dirty: set[int] = set()
        #: Up to which slot pages were looked at for being over, and which were.
        self._over_until = 0
        #: All that is for this slot or later is in memory.
        self._kept_since = 0
        self._over: set[int] = set()

    @property
    def is_there(self) -> bool:
        """Whether the file has slots: an empty one is as good as none."""
        if not self._files.exists(self._path):
            return False
        with closing(self._files.open(self._path)) as file:
            return file.size() > 0

    def load(self, since_ms: int, *, clean: bool = True) -> None:
        """Opens the file, made where it is missing, and keeps what is for `since_ms` or later;
        unless the last stop was `clean` all of that is written again, as a sync may have failed.
        Raises `DamagedStoreError` for one of another size."""
        size = self.slots * SLOT_SIZE
        self._file = file = self._files.open(self._path, create=True)
        found = file.size()
        if found not in (0, size):
            raise DamagedStoreError(
                f"{self._path} has {found} bytes where a timer wheel has {size}: restore it, or"
                " remove it and the start makes it again from the timer log"
            )
        if found == 0:
            file.truncate(size)
            file.fsync()
            self._over_until = since_ms // self.precision_ms
            return
        self._kept_since = 1 << 62
        self.keep_since(since_ms)
        if not clean:
            self._dirty.update(self._pages)

    def keep_since(self, since_ms: int) -> None:
        """Keeps all pages from now on that have something for `since_ms` or later; reads the whole
        file, in any thread while nobody else uses the wheel."""
        assert self._file is not None, "load comes first"
        since = max(since_ms // self.precision_ms, 1)
        if since >= self._kept_since:
            return
        step = _READ_PAGES * _PAGE_SIZE
        for start in range(0, self.slots * SLOT_SIZE, step):
            block = self._file.pread(step, start)
            if block == _EMPTY_PAGES:
                continue
            for at in range(0, len(block), _PAGE_SIZE):
                number = (start + at) // _PAGE_SIZE
                page = block[at : at + _PAGE_SIZE].ljust(_PAGE_SIZE, b"\0")
                if page == _EMPTY_PAGE or number in self._pages:
                    continue
                if any(slot[0] >= since for slot in _SLOT.iter_unpack(page)):
                    self._pages[number] = bytearray(page)
        # Not before: a read that fails is tried again.
        self._kept_since = self._over_until = since

    def get(self, time_ms: int) -> Slot | None:
        """Returns the slot of a time; None where it has no entry."""
        held = self.place(time_ms)
        if held is None or held.time_ms != time_ms // self.precision_ms * self.precision_ms:
            return None
        return held.slot

    def place(self, time_ms: int) -> WheelPlace | None:
        """Returns what has the place of a time's slot, be it the slot of another round; None where
        no entry is there."""
        index = time_ms // self.precision_ms % self.slots
        page = self._page(index // _PAGE_SLOTS)
        if page is None:
            return None
        of, first, last, count, _ = _SLOT.unpack_from(page, index % _PAGE_SLOTS * SLOT_SIZE)
        if not of or last < 0:
            return None
        return WheelPlace(of * self.precision_ms, Slot(first, last, count))

    def put(self, time_ms: int, slot: Slot) -> None:
        """Says what waits for the slot of a time, whose place it has from now on."""
        number = time_ms // self.precision_ms
        index = number % self.slots
        at = index // _PAGE_SLOTS
        page = self._page(at)
        if page is None:
            page = self._pages[at] = bytearray(_PAGE_SIZE)
        count = max(-_MAX_INT, min(slot.number, _MAX_INT))
        _SLOT.pack_into(
            page, index % _PAGE_SLOTS * SLOT_SIZE, number, slot.first, slot.last, count, 0
        )
        self._dirty.add(at)

    def clear(self, time_ms: int) -> None:
        """Empties the slot of a time."""
        self.put(time_ms, Slot(-1, -1, 0))

    def next_time(self, since_ms: int, until_ms: int) -> int | None:
        """Returns the time of the first slot at `since_ms` or later that has or had entries; None
        where there is none before `until_ms`. Empty pages are passed over at once; only where a
        whole round has nothing are all pages gone through."""
        number, until = since_ms // self.precision_ms, -(-until_ms // self.precision_ms)
        next_round = number + self.slots
        found = self._first_in_round(number, min(until, next_round))
        if found is None and next_round < until:
            found = self._first_in_memory(next_round, until)
        return None if found is None else found * self.precision_ms

    def _first_in_round(self, number: int, until: int) -> int | None:
        """Returns the first slot from `number` on with entries, of the round that begins there."""
        round_start, first = number - number % self.slots, number % self.slots // _PAGE_SLOTS
        pages = sorted(self._pages)
        split = bisect_left(pages, first)
        # The page of `number` comes once more, with what lies in front of it: a round later.
        for of_round, ats in ((0, pages[split:]), (self.slots, pages[: split + 1])):
            for at in ats:
                begin = max(number, round_start + of_round + at * _PAGE_SLOTS)
                if begin >= until:
                    return None
                index, page = begin % self.slots, self._pages[at]
                for step in range(min(self._width(index), until - begin)):
                    place = (index % _PAGE_SLOTS + step) * SLOT_SIZE
                    of, _, last, _, _ = _SLOT.unpack_from(page, place)
                    if of == begin + step and last >= 0:
                        return begin + step
        return None

    def _first_in_memory(self, number: int, until: int) -> int | None:
        """Returns the first slot from `number` on with entries, whichever round it is of."""
        first = until
        for page in self._pages.values():
            for of, _, last, _, _ in _SLOT.iter_unpack(page):
                if number <= of < first and last >= 0:
                    first = of
        return first if first < until else None

    def total(self, since_ms: int, until_ms: int) -> int:
        """Returns how many messages wait for the time from `since_ms` until before `until_ms`, of
        what is kept in memory."""
        begin, until = since_ms // self.precision_ms, -(-until_ms // self.precision_ms)
        total, number = 0, begin
        while number < until:
            index = number % self.slots
            width = min(self._width(index), until - number)
            page = self._pages.get(index // _PAGE_SLOTS)
            if page is not None:
                at = index % _PAGE_SLOTS * SLOT_SIZE
                slots = _SLOT.iter_unpack(bytes(page[at : at + width * SLOT_SIZE]))
                total += sum(
                    slot[3]
                    for place, slot in enumerate(slots, number)
                    if slot[0] == place and slot[2] >= 0
                )
            number += width
        return total

    def waiting(self, since_ms: int) -> Iterator[tuple[int, Slot]]:
        """Yields each slot with entries from `since_ms` on with its time, unordered. Changes made
        meanwhile may or may not be seen."""
        since = since_ms // self.precision_ms
        for page in list(self._pages.values()):
            for of, first, last, count, _ in _SLOT.iter_unpack(bytes(page)):
                if of >= since and of and last >= 0:
                    yield of * self.precision_ms, Slot(first, last, count)

    # Writing

    def take_dirty(self) -> dict[int, bytes]:
        """Takes the pages that changed since the last call, for `write`."""
        dirty, self._dirty = self._dirty, set()
        return {page: bytes(self._pages[page]) for page in dirty}

    def give_back(self, pages: Mapping[int, bytes]) -> None:
        """Marks pages as changed again that could not be written."""
        self._dirty.update(pages)

    def write(self, pages: Mapping[int, bytes]) -> None:
        """Writes pages, durably; in any thread."""
        assert self._file is not None, "load comes first"
        for page, data in sorted(pages.items()):
            start = page * _PAGE_SIZE
            self._file.pwrite(data[: self.slots * SLOT_SIZE - start], start)
        if pages:
            self._file.fsync()

    def forget_before(self, time_ms: int) -> None:
        """Keeps the pages no longer that are written and have nothing at `time_ms` or later. To be
        called while no page is on its way to the file."""
        until = time_ms // self.precision_ms
        self._kept_since = max(self._kept_since, until)
        # After a long pause, or where the clock was set: one round has all pages.
        self._over_until = max(self._over_until, until - self.slots)
        while self._over_until < until:
            index = self._over_until % self.slots
            self._over.add(index // _PAGE_SLOTS)
            self._over_until += min(self._width(index), until - self._over_until)
        for at in [page for page in self._over if page not in self._dirty]:
            page = self._pages.get(at)
            if page is None or all(slot[0] < until for slot in _SLOT.iter_unpack(page)):
                self._pages.pop(at, None)
                self._over.discard(at)

    def close(self) -> None:
        """Closes the file; what is dirty is gone."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _width(self, index: int) -> int:
        """Returns how many slots a page has from a place on; the last page may be short."""
        return min(_PAGE_SLOTS - index % _PAGE_SLOTS, self.slots - index)

    def _page(self, at: int) -> bytearray | None:
        page = self._pages.get(at)
        if page is None:
            assert self._file is not None, "load comes first"
            data = self._file.pread(_PAGE_SIZE, at * _PAGE_SIZE).ljust(_PAGE_SIZE, b"\0")
            if data == _EMPTY_PAGE:
                return None
            page = self._pages[at] = bytearray(data)
        return page
