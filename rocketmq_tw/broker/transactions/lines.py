"""When which half message is due to be asked about: lines in the order of their times.

All that wait equally long stand in one line, so that only its first one is looked at; who asked for
a time of its own stands in the line of that time.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable

#: Lines of those that wait as configured, before the first check and between two, and of those
#: that the store refused.
FIRST_CHECK, NEXT_CHECK, RETRY = -1, -2, -3
#: Further lines of their own; other times are rounded up to a power of two.
MAX_LINES = 1024
#: Stored messages may be so far ahead of the clock.
MAX_AHEAD_MS = 2_000
#: Settled ones that are passed over in one look.
MAX_STEPS = 20_000


def due_at(base_ms: int, wait_ms: int, now_ms: int) -> int:
    """When the time of what waits from `base_ms` on is over. A base further in the future than
    clocks differ says that the clock was set back: then it is over now."""
    return now_ms if base_ms > now_ms + MAX_AHEAD_MS else base_ms + wait_ms


class _Line:
    """Offsets and the times from which they wait."""

    __slots__ = ("bases", "head", "offsets")

    def __init__(self) -> None:
        self.offsets = array("q")
        self.bases = array("q")
        self.head = 0

    def drop_first(self) -> None:
        self.head += 1
        if self.head > 4096 and self.head * 2 > len(self.offsets):
            del self.offsets[: self.head], self.bases[: self.head]
            self.head = 0


class WaitingLines:
    """`waits_ms` says how long a line waits: FIRST_CHECK, NEXT_CHECK, RETRY, or what seconds (0 and
    more) come to."""

    def __init__(self, waits_ms: Callable[[int], int]) -> None:
        self._waits_ms = waits_ms
        self._lines: dict[tuple[int, bool], _Line] = {}

    def add(self, offset: int, base_ms: int, line: int, *, late: bool = False) -> None:
        """`offset` waits from `base_ms` on. `late`: that was long before those who came last."""
        key = (line, late)
        if key not in self._lines:
            if line >= 0 and len(self._lines) >= MAX_LINES:
                key = (1 << line.bit_length(), late)
            self._lines.setdefault(key, _Line())
        found = self._lines[key]
        found.offsets.append(offset)
        found.bases.append(base_ms)

    def take_due(
        self, now_ms: int, most: int, is_pending: Callable[[int], bool]
    ) -> tuple[list[int], int | None]:
        """Up to `most` that are due and still wait, in the order of their queue, and when to look
        again, None for never. They are in no line any more."""
        due: list[int] = []
        next_look: int | None = None
        steps = MAX_STEPS
        for key, line in list(self._lines.items()):
            wait = self._waits_ms(key[0])
            while line.head < len(line.offsets):
                offset = line.offsets[line.head]
                at = due_at(line.bases[line.head], wait, now_ms)
                if at > now_ms and is_pending(offset):
                    next_look = at if next_look is None else min(next_look, at)
                    break
                if steps <= 0 or (at <= now_ms and len(due) >= most):
                    next_look = now_ms
                    break
                steps -= 1
                line.drop_first()
                if is_pending(offset):
                    due.append(offset)
            else:
                del self._lines[key]
        return sorted(set(due)), next_look
