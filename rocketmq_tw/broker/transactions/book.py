"""Keeps which half messages wait for a decision: a byte for each, from the first pending one on.

Rules: docs/formats/transactions.md, "Progress" and "What is promised".
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable
from enum import IntEnum

#: Bit of a state that is settled in memory, while the op message is not in the log yet.
_UNWRITTEN = 0x80
_first_open = re.compile(rb"[\x00\x80-\xff]").search


class State(IntEnum):
    """What became of a half message. SETTLED: not PENDING; the rest is not known."""

    PENDING = 0
    COMMITTED = 1
    ROLLED_BACK = 2
    #: A copy at the queue's end stands for it.
    MOVED = 3
    GIVEN_UP = 4
    SETTLED = 5


class HalfBook:
    """Half messages by queue offset. All in front of `start` are settled; those at `end` and behind
    are pending."""

    def __init__(self, start: int) -> None:
        self.start = start
        self._states = bytearray()
        #: For pending half messages that were put back: offset of the first copy → of the last.
        self._copies: dict[int, int] = {}
        self._ops = OpWindow()

    @property
    def end(self) -> int:
        """The offset behind the last half message in the book."""
        return self.start + len(self._states)

    @property
    def pending(self) -> int:
        """How many half messages are pending."""
        return self._states.count(State.PENDING)

    def state(self, offset: int) -> State:
        """Returns the state of the half message at an offset of the half topic."""
        if offset < self.start:
            return State.SETTLED
        if offset >= self.end:
            return State.PENDING
        return State(self._states[offset - self.start] & ~_UNWRITTEN)

    def is_pending(self, offset: int) -> bool:
        """Returns whether the half message at an offset waits for a decision."""
        at = offset - self.start
        return at >= 0 and (at >= len(self._states) or self._states[at] == State.PENDING)

    def next_pending(self, offset: int) -> int:
        """Returns the first pending one at or behind `offset`; `end` where there is none."""
        found = self._states.find(State.PENDING, max(offset - self.start, 0))
        return self.end if found < 0 else self.start + found

    def learn(self, end: int) -> None:
        """Makes the book reach up to `end`, where the queue ends now."""
        if end > self.end:
            self._states += bytes(end - self.end)

    def settle(self, offset: int, state: State, *, written: bool = False) -> None:
        """Makes a half message settled. `written`: the log says so; else `confirm` or `reopen` must
        follow."""
        at = offset - self.start
        if at < 0:
            return
        if at >= len(self._states):
            self.learn(offset + 1)
        self._states[at] = state if written else state | _UNWRITTEN

    def confirm(self, offsets: Iterable[int]) -> None:
        """Notes that the log says by now what `settle` was told of these half messages."""
        states, start, end = self._states, self.start, self.end
        for offset in offsets:
            if start <= offset < end:
                states[offset - start] &= ~_UNWRITTEN

    def is_unwritten(self, offset: int) -> bool:
        """Returns whether `settle` was told what the log does not say yet."""
        return (
            self.start <= offset < self.end
            and self._states[offset - self.start] & _UNWRITTEN == _UNWRITTEN
        )

    def reopen(self, offset: int) -> bool:
        """Makes a half message pending again, since the log did not take what would have settled
        it; returns False, and does nothing, where the log has it."""
        if not self.is_unwritten(offset):
            return False
        self._states[offset - self.start] = State.PENDING
        return True

    # Copies

    def current(self, origin: int, offset: int) -> int:
        """Returns the offset of the last copy of the half message at `offset`."""
        return self._copies.get(origin, offset)

    def copy_waits(self, origin: int) -> bool:
        """Returns whether a copy of `origin` was put back and is pending."""
        copy = self._copies.get(origin)
        return copy is not None and self.is_pending(copy)

    def moved(self, origin: int, offset: int) -> None:
        """Makes the copy at `offset` the last one of `origin`."""
        self._copies[origin] = offset

    def forget_copies(self, origin: int) -> None:
        """Forgets the copies of `origin`, none of which is pending any more."""
        self._copies.pop(origin, None)

    # Progress

    def op_written(self, op_offset: int, last_settled: int) -> None:
        """Notes the op message at `op_offset` of its queue, which names half messages up to
        `last_settled`."""
        self._ops.add(op_offset, last_settled)

    def advance(self) -> tuple[int, int | None]:
        """Moves `start` on to the first half message that is not settled. Returns it, and the first
        op message that names one at or behind it; None where that did not change."""
        found = _first_open(self._states)
        gone = len(self._states) if found is None else found.start()
        if gone:
            del self._states[:gone]
            self.start += gone
        return self.start, self._ops.first_needed(self.start)


class OpWindow:
    """Op messages that name half messages at or behind the book's start."""

    def __init__(self) -> None:
        self._offsets = array("q")
        self._lasts = array("q")
        self._head = 0
        self._next: int | None = None

    def add(self, op_offset: int, last_settled: int) -> None:
        """Adds the op message at its queue's end, the last half message that it names with it."""
        self._offsets.append(op_offset)
        self._lasts.append(last_settled)

    def first_needed(self, start: int) -> int | None:
        """Returns the offset of the first op message that names a half message at or behind
        `start`, or else the end of those known; None where there never was one."""
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
