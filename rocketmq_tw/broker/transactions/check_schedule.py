"""Orders half messages by when each is due to be asked about, as docs/formats/transactions.md says
under "When producers are asked".

All half messages with the same interval stand in one line, so that only the first of each line is
looked at. A half message that names an interval of its own stands in the line of that.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable

#: Intervals that are configured: before the first check, between two checks, and before another try
#: where the store refused. Others are seconds, 0 and more, that half messages name.
FIRST_CHECK, NEXT_CHECK, RETRY_CHECK = -1, -2, -3
#: Lines at most; the intervals of further ones are rounded up to a power of two.
_MAX_LINES = 1024
#: Milliseconds by which stored messages may be ahead of the clock.
MAX_AHEAD_MS = 2_000
#: Settled half messages that one call of `take_due` drops at most.
MAX_STEPS = 20_000


def due_at(base_ms: int, wait_ms: int, now_ms: int) -> int:
    """Returns when an interval of `wait_ms` from `base_ms` on is over. A base further in the future
    than clocks differ means that the clock was set back: then it is over now."""
    return now_ms if base_ms > now_ms + MAX_AHEAD_MS else base_ms + wait_ms


class _Line:
    """Queue offsets of half messages, and the times (ms since 1970) from which they wait."""

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


class CheckSchedule:
    """Knows when half messages are due. `waits_ms` tells the ms of an interval."""

    def __init__(self, waits_ms: Callable[[int], int]) -> None:
        self._waits_ms = waits_ms
        self._lines: dict[tuple[int, bool], _Line] = {}

    def add(self, offset: int, base_ms: int, interval: int, *, late: bool = False) -> None:
        """Makes the half message at `offset` due an interval behind `base_ms`. `late`: that base is
        long before those that were added last, so it would hold up their line."""
        key = (interval, late)
        line = self._lines.get(key)
        if line is None:
            if interval >= 0 and len(self._lines) >= _MAX_LINES:
                key = (1 << interval.bit_length(), late)
            line = self._lines.setdefault(key, _Line())
        line.offsets.append(offset)
        line.bases.append(base_ms)

    def take_due(
        self, now_ms: int, most: int, next_pending: Callable[[int], int]
    ) -> tuple[list[int], int | None]:
        """Takes at most `most` offsets that are due and still pending: `next_pending` tells the
        first such one at an offset or behind it. Returns them in the order of the queue, with the
        time in ms when to look again, None for never."""
        due: list[int] = []
        next_look: int | None = None
        steps = MAX_STEPS
        for key, line in list(self._lines.items()):
            wait = self._waits_ms(key[0])
            # Nearly all are settled, many one after the other.
            settled = range(0)
            while line.head < len(line.offsets):
                offset = line.offsets[line.head]
                if offset not in settled:
                    settled = range(offset, next_pending(offset))
                is_pending = offset not in settled
                if is_pending:
                    at = due_at(line.bases[line.head], wait, now_ms)
                    if at > now_ms:
                        next_look = at if next_look is None else min(next_look, at)
                        break
                if steps <= 0 or (is_pending and len(due) >= most):
                    next_look = now_ms
                    break
                steps -= 1
                line.drop_first()
                if is_pending:
                    due.append(offset)
            else:
                del self._lines[key]
        return sorted(set(due)), next_look
