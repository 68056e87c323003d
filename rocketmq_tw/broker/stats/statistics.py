"""Counts of the whole broker, and their rates over 10 seconds, a minute and ten."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from datetime import datetime

#: Seconds over which stock shows rates.
WINDOWS = (10, 60, 600)
SAMPLE_SECONDS = 10


class SampledCount:
    """A count and its growth; sampled every `SAMPLE_SECONDS`."""

    def __init__(self) -> None:
        self.total = 0
        self._samples: deque[int] = deque([0], maxlen=WINDOWS[-1] // SAMPLE_SECONDS + 1)

    def sample(self) -> None:
        """Notes the present total; to be called every `SAMPLE_SECONDS`."""
        self._samples.append(self.total)

    def per_second(self, window: int) -> float:
        """Returns the mean growth per second over the last `window` seconds, or since the start."""
        steps = min(window // SAMPLE_SECONDS, len(self._samples) - 1)
        if steps == 0:
            return 0.0
        return (self._samples[-1] - self._samples[-1 - steps]) / (steps * SAMPLE_SECONDS)

    def __str__(self) -> str:
        return " ".join(f"{self.per_second(window):.2f}" for window in WINDOWS)


class Day:
    """The totals at the last two midnights."""

    def __init__(self) -> None:
        self.yesterday = 0
        self.today = 0

    def note_midnight(self, total: int) -> None:
        """Notes the total at midnight."""
        self.yesterday, self.today = self.today, total


class Statistics:
    """Counts of the whole broker; times are milliseconds of `now_ms`."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self.boot_timestamp = now_ms()
        self.sent = SampledCount()
        #: Bytes of all that was sent, and the most that one dispatch brought into the queues.
        self.sent_bytes = 0
        self.most_dispatched = 0
        self.pulled = SampledCount()
        #: Reads that found something and those that did not.
        self.found = SampledCount()
        self.missed = SampledCount()
        #: Seconds of the slowest read.
        self.longest_read = 0.0
        self.sent_by_day = Day()
        self.pulled_by_day = Day()
        self._date = self._today()

    def count_sent(self, messages: int, size: int) -> None:
        """Counts messages that became readable together, and their bytes."""
        self.sent.total += messages
        self.sent_bytes += size
        if size > self.most_dispatched:
            self.most_dispatched = size

    def count_pulled(self, messages: int, seconds: float) -> None:
        """Counts a read: the messages that it returned and the seconds that it took."""
        if messages:
            self.pulled.total += messages
            self.found.total += 1
        else:
            self.missed.total += 1
        if seconds > self.longest_read:
            self.longest_read = seconds

    def average_size(self) -> float:
        """Returns the mean bytes of a message; 0 without any."""
        return self.sent_bytes / max(self.sent.total, 1)

    def reads(self) -> str:
        """Returns the reads per second over each window, as text."""
        return " ".join(
            f"{self.found.per_second(window) + self.missed.per_second(window):.2f}"
            for window in WINDOWS
        )

    def sample(self) -> None:
        """Remembers the counts; to be called every `SAMPLE_SECONDS`."""
        self.sent.sample()
        self.pulled.sample()
        self.found.sample()
        self.missed.sample()
        date = self._today()
        if date != self._date:
            self._date = date
            self.sent_by_day.note_midnight(self.sent.total)
            self.pulled_by_day.note_midnight(self.pulled.total)

    def uptime(self) -> str:
        """Returns the time since the start as text in stock's form."""
        seconds = max(0, self._now_ms() - self.boot_timestamp) // 1000
        days, rest = divmod(seconds, 86_400)
        hours, rest = divmod(rest, 3_600)
        minutes, seconds = divmod(rest, 60)
        return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"

    def _today(self) -> int:
        return datetime.fromtimestamp(self._now_ms() / 1000).toordinal()
