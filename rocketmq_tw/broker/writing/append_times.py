"""Measures how long appends take, from the turn that brought them to their answer, by stock's
measures."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate, pairwise, repeat
from math import ceil
from sys import maxsize

#: Seconds that one set of counts covers.
MINUTE_SECONDS = 60

#: The ranges of `putMessageDistributeTime`, and the most whole milliseconds that are in each.
_RANGES = {
    "<=0ms": 0,
    "0~10ms": 9,
    "10~50ms": 49,
    "50~100ms": 99,
    "100~200ms": 199,
    "200~500ms": 499,
    "500ms~1s": 999,
    "1~2s": 1_999,
    "2~3s": 2_999,
    "3~4s": 3_999,
    "4~5s": 4_999,
    "5~10s": 9_999,
    "10s~": maxsize,
}
_RANGE_ENDS = tuple(_RANGES.values())
#: Finer bounds for percentiles: (milliseconds of a step, number of steps).
_STEPS = ((1, 20), (2, 15), (5, 10), (10, 10), (50, 6), (100, 5), (1_000, 9))
_BOUNDS = tuple(accumulate(step for size, times in _STEPS for step in repeat(size, times)))


class _Minute:
    """The appends of one minute, by the milliseconds that they took."""

    def __init__(self) -> None:
        self.by_range = [0] * len(_RANGES)
        self.by_bound = [0] * (len(_BOUNDS) + 1)

    def percentile(self, share: float) -> float:
        """Returns the milliseconds in which that share of the appends was done, as if they were
        spread evenly between the bounds; the last bound for what took longer."""
        rank = ceil(sum(self.by_bound) * share)
        for (low, high), count in zip(pairwise((0, *_BOUNDS)), self.by_bound, strict=False):
            if rank <= count:
                return low + (high - low) * rank / count if count else float(low)
            rank -= count
        return float(_BOUNDS[-1])


class AppendTimes:
    """Counts appends and how long they took; `begin_minute` is to be called every minute."""

    def __init__(self) -> None:
        #: Milliseconds of the slowest since the start, and how many were not stored.
        self.longest_ms = 0
        self.failed = 0
        self._now = _Minute()
        self._last: _Minute | None = None

    def count(self, appends: int, seconds: float) -> None:
        """Counts `appends` that were answered together, `seconds` after they came."""
        milliseconds = int(seconds * 1000)
        if milliseconds <= 0:
            # As nearly always.
            self._now.by_range[0] += appends
            self._now.by_bound[0] += appends
            return
        self._now.by_range[bisect_left(_RANGE_ENDS, milliseconds)] += appends
        self._now.by_bound[bisect_left(_BOUNDS, milliseconds)] += appends
        self.longest_ms = max(self.longest_ms, milliseconds)

    def begin_minute(self) -> None:
        """Begins to count anew; what was counted is shown from now on."""
        self._last, self._now = self._now, _Minute()

    def distribution(self) -> str:
        """Returns the appends by milliseconds, as putMessageDistributeTime of stock's runtime info
        has them: of the last whole minute, or of the first one so far."""
        counts = self._shown.by_range
        return "".join(f"[{name}]:{count} " for name, count in zip(_RANGES, counts, strict=True))

    def percentile(self, share: float) -> str:
        """Returns the milliseconds in which a share (0.99 is 99 percent) of the appends was done,
        in the minute that `distribution` is about."""
        return f"{self._shown.percentile(share):.2f}"

    @property
    def _shown(self) -> _Minute:
        return self._now if self._last is None else self._last
