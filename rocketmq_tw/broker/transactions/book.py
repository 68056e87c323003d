"""Which half messages wait for a decision: a byte for each, from the first one that does on."""

from __future__ import annotations

import re
from array import array
from enum import IntEnum

#: Settled in memory while what says so is not in the log yet.
_UNWRITTEN = 0x80
_first_open = re.compile(rb"[\x00\x80-\xff]").search


class State(IntEnum):
    """What became of a half message. SETTLED: one of the others, but not known which."""

    PENDING = 0
    COMMITTED = 1
    ROLLED_BACK = 2
    #: A copy at the queue's end stands for it.
    MOVED = 3
    GIVEN_UP = 4
    SETTLED = 5


class HalfBook:
    """Half messages by queue offset. All in front of `start` are settled; what the book has not
    heard of yet is pending."""

    def __init__(self, start: int) -> None:
        self.start = start
        self._states = bytearray()
        #: Origin -> the copy that stands for it, of those that were put back and are pending.
        self._copies: dict[int, int] = {}
        self._ops = OpWindow()

    @property
    def end(self) -> int:
        """Behind the last half message that it has heard of."""
        return self.start + len(self._states)

    @property
    def pending(self) -> int:
        """How many wait."""
        return self._states.count(State.PENDING)

    def state(self, offset: int) -> State:
        if offset < self.start:
            return State.SETTLED
        if offset >= self.end:
            return State.PENDING
        return State(self._states[offset - self.start] & ~_UNWRITTEN)

    def is_pending(self, offset: int) -> bool:
        at = offset - self.start
        return at >= 0 and (at >= len(self._states) or self._states[at] == State.PENDING)

    def next_pending(self, offset: int) -> int:
        """The first that waits at or behind `offset`; `end` where none does."""
        found = self._states.find(State.PENDING, max(offset - self.start, 0))
        return self.end if found < 0 else self.start + found

    def learn(self, end: int) -> None:
        """The queue ends at `end` now."""
        if end > self.end:
            self._states += bytes(end - self.end)

    def settle(self, offset: int, state: State, *, written: bool = False) -> None:
        """It waits no more; `written`: the log says so already, else `confirm` must follow."""
        if offset < self.start:
            return
        self.learn(offset + 1)
        self._states[offset - self.start] = state | (0 if written else _UNWRITTEN)

    def confirm(self, offset: int) -> None:
        """The log says by now what `settle` was told."""
        if self.start <= offset < self.end:
            self._states[offset - self.start] &= ~_UNWRITTEN

    def is_unwritten(self, offset: int) -> bool:
        """Whether `settle` was told what the log does not say yet."""
        return (
            self.start <= offset < self.end
            and self._states[offset - self.start] & _UNWRITTEN == _UNWRITTEN
        )

    def reopen(self, offset: int) -> bool:
        """It waits again, since the log could not take what would have settled it; False where the
        log has it."""
        if not self.is_unwritten(offset):
            return False
        self._states[offset - self.start] = State.PENDING
        return True

    # Copies

    def current(self, origin: int, offset: int) -> int:
        """The copy that stands for a half message at `offset`."""
        return self._copies.get(origin, offset)

    def copy_waits(self, origin: int) -> bool:
        """Whether one of `origin` was put back and waits."""
        copy = self._copies.get(origin)
        return copy is not None and self.is_pending(copy)

    def moved(self, origin: int, offset: int) -> None:
        """The copy at `offset` stands for all others of `origin`."""
        self._copies[origin] = offset

    def forget_copies(self, origin: int) -> None:
        """None of `origin` waits any more."""
        self._copies.pop(origin, None)

    # Progress

    def op_written(self, op_offset: int, last_settled: int) -> None:
        """An op message stands at `op_offset`; the last half message it settles."""
        self._ops.add(op_offset, last_settled)

    def advance(self) -> tuple[int, int | None]:
        """Moves `start` on; returns the two consumer offsets: the first half message that is not
        settled, and the first op message that is needed to know so, None for what it was."""
        found = _first_open(self._states)
        gone = len(self._states) if found is None else found.start()
        if gone:
            del self._states[:gone]
            self.start += gone
        return self.start, self._ops.first_needed(self.start)


class OpWindow:
    """The op messages that name half messages which are not passed yet."""

    def __init__(self) -> None:
        self._offsets = array("q")
        self._lasts = array("q")
        self._head = 0
        self._next: int | None = None

    def add(self, op_offset: int, last_settled: int) -> None:
        """One at the op queue's end; the last half message that it names."""
        self._offsets.append(op_offset)
        self._lasts.append(last_settled)

    def first_needed(self, start: int) -> int | None:
        """The first one that names a half message at or behind `start`, or the queue's end as far
        as it is known; None where there never was one."""
        head, lasts = self._head, self._lasts
        while head < len(lasts) and lasts[head] < start:
            head += 1
        if head > self._head:
            self._next = self._offsets[head - 1] + 1
        self._head = head
        if head == len(lasts):
            self._offsets, self._lasts, self._head = array("q"), array("q"), 0
            return self._next
        if head > 4096 and head * 2 > len(lasts):
            del self._offsets[:head], self._lasts[:head]
            self._head = 0
        return self._offsets[self._head]
