"""Items in the order of a number, such as the time at which they are due, most of which are over
before it is their turn."""

from __future__ import annotations

from collections.abc import Callable, Sized
from heapq import heappop, heappush
from itertools import count
from typing import Generic, TypeVar

T = TypeVar("T")

#: So many entries are kept without a look for those that are not wanted any more.
LEAST_KEPT = 1000


def most_kept(wanted: Sized) -> int:
    """Returns how large a collection may become before it is gone through again, when only
    `wanted` is left of it: so each entry costs no more than two looks."""
    return max(LEAST_KEPT, 2 * len(wanted))


#: Entries that one push looks at while all are gone through again.
_LOOKS = 4


class LazyHeap(Generic[T]):
    """A heap that nothing need be removed from: it forgets what `is_wanted` denies when that comes
    to the front, and all of it whenever it has become twice as large as what was wanted: a few
    entries with each `push`. `len` tells how many entries are kept, wanted or not."""

    def __init__(self, is_wanted: Callable[[T], bool]) -> None:
        self._is_wanted = is_wanted
        #: The number, another one in the order in which items were added, the item.
        self._entries: list[tuple[int, int, T]] = []
        #: Those that are to be looked at again, in a heap of their own.
        self._old: list[tuple[int, int, T]] = []
        self._numbers = count()
        self._most = LEAST_KEPT

    def __len__(self) -> int:
        return len(self._entries) + len(self._old)

    @property
    def front(self) -> int | None:
        """The number of the item in front, which may be one that is not wanted; None without
        any."""
        heap = self._heap_in_front()
        return heap[0][0] if heap else None

    def first(self) -> int | None:
        """Returns the number of the first item that is wanted; None without any."""
        while (heap := self._heap_in_front()) and not self._is_wanted(heap[0][2]):
            heappop(heap)
        return self.front

    def push(self, number: int, item: T) -> None:
        """Adds an item."""
        heappush(self._entries, (number, next(self._numbers), item))
        if self._old:
            self._look_again()
        elif len(self._entries) > self._most:
            self._old, self._entries = self._entries, []
            self._look_again()

    def take(self, last: int) -> T | None:
        """Takes the item in front where its number is not above `last`, or it is not wanted any
        more: the caller asks which. None where it is neither, or there is none."""
        heap = self._heap_in_front()
        if not heap:
            return None
        number, _, item = heap[0]
        if number > last and self._is_wanted(item):
            return None
        heappop(heap)
        return item

    def _heap_in_front(self) -> list[tuple[int, int, T]]:
        old, entries = self._old, self._entries
        return old if old and (not entries or old[0] < entries[0]) else entries

    def _look_again(self) -> None:
        for _ in range(min(_LOOKS, len(self._old))):
            # Without its last one a heap is still one.
            entry = self._old.pop()
            if self._is_wanted(entry[2]):
                heappush(self._entries, entry)
        if not self._old:
            self._most = most_kept(self._entries)
