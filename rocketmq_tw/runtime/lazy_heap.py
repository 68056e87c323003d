"""Items in the order of a number, such as the time at which they are due, most of which are over
before it is their turn."""

from __future__ import annotations

from collections.abc import Callable, Sized
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Generic, TypeVar

T = TypeVar("T")

#: So many entries are kept without a look for those that are not wanted any more.
LEAST_KEPT = 1000


def most_kept(wanted: Sized) -> int:
    """Returns how large a collection may become before it is gone through again, when only
    `wanted` is left of it: so each entry costs no more than two looks."""
    return max(LEAST_KEPT, 2 * len(wanted))


class LazyHeap(Generic[T]):
    """A heap that nothing need be removed from: it forgets what `is_wanted` denies when that comes
    to the front, and all of it whenever it has become twice as large as what was wanted. `len`
    tells how many entries are kept, wanted or not."""

    def __init__(self, is_wanted: Callable[[T], bool]) -> None:
        self._is_wanted = is_wanted
        #: The number, another one in the order in which items were added, the item.
        self._entries: list[tuple[int, int, T]] = []
        self._numbers = count()
        self._most = LEAST_KEPT

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def front(self) -> int | None:
        """The number of the item in front, which may be one that is not wanted; None without
        any."""
        return self._entries[0][0] if self._entries else None

    def first(self) -> int | None:
        """Returns the number of the first item that is wanted; None without any."""
        while self._entries and not self._is_wanted(self._entries[0][2]):
            heappop(self._entries)
        return self.front

    def push(self, number: int, item: T) -> None:
        """Adds an item."""
        heappush(self._entries, (number, next(self._numbers), item))
        if len(self._entries) > self._most:
            self._entries = [entry for entry in self._entries if self._is_wanted(entry[2])]
            heapify(self._entries)
            self._most = most_kept(self._entries)

    def take(self, last: int) -> T | None:
        """Takes the item in front where its number is not above `last`, or it is not wanted any
        more: the caller asks which. None where it is neither, or there is none."""
        if not self._entries:
            return None
        number, _, item = self._entries[0]
        if number > last and self._is_wanted(item):
            return None
        heappop(self._entries)
        return item
