"""Keeps what the books of all consume queues say beside their files: units in memory, and
totals."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Protocol

#: Units of all queues together that are kept in memory.
UNWRITTEN_LIMIT = 1024
#: Queues that are written in one step; the disk may have to read a page for each first.
_STEP = 50


class UnitsInMemory(Protocol):
    """A queue, as far as its units are in memory only."""

    #: Why it could not be written the last time; empty where it could.
    failure: str

    def try_to_write_out(self) -> None:
        """Writes the units; notes in `failure` what keeps them."""

    def write_out(self) -> None:
        """Writes the units; raises `OSError` where that fails."""


class Unwritten:
    """The queues whose last units are in memory only, the first that has some first. A crash loses
    them, so recovery has to build what is behind a checkpoint from the log, as it does anyway."""

    def __init__(self, limit: int = UNWRITTEN_LIMIT) -> None:
        #: How many units there are.
        self.units = 0
        #: Why queues could not be written when that was tried last.
        self.failures: dict[UnitsInMemory, str] = {}
        self._limit = limit
        self._queues: OrderedDict[UnitsInMemory, None] = OrderedDict()

    def add(self, queue: UnitsInMemory, units: int) -> None:
        """Counts so many more of a queue."""
        self._queues[queue] = None
        self.units += units

    def discard(self, queue: UnitsInMemory, units: int, *, are_last: bool) -> None:
        """Counts so many less of a queue, and none any more where they `are_last`."""
        if are_last:
            del self._queues[queue]
            self.failures.pop(queue, None)
        self.units -= units

    def write_most(self) -> None:
        """Writes those that have waited longest until the others are few enough; a queue that
        cannot be written is passed over."""
        if self.units > self._limit:
            for queue in list(self._queues):
                if not queue.failure:
                    queue.try_to_write_out()
                if self.units <= self._limit:
                    break

    def write_in_steps(self) -> Iterator[None]:
        """Writes those that have units now, `_STEP` of them in each step; a queue that cannot be
        written is passed over."""
        for number, queue in enumerate(list(self._queues), 1):
            if queue in self._queues:
                queue.try_to_write_out()
            if number % _STEP == 0:
                yield

    def write_all(self) -> None:
        """Writes all that can be written; raises `OSError` where some cannot and stay in memory."""
        problem: OSError | None = None
        for queue in list(self._queues):
            try:
                queue.write_out()
            except OSError as error:
                problem = problem or error
                self.failures[queue] = str(error)
        if problem is not None:
            raise problem


class QueueTotals:
    """Of all queues of a table, kept up to date by each of them: a checkpoint that went through
    thousands would hold up everyone else."""

    def __init__(self) -> None:
        #: The sum of all max offsets.
        self.units = 0
        #: Queues that have a file: one that never got a message has none.
        self.with_files = 0
