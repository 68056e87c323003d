"""When a broker is warm: its CPU time a message no longer falls.

A JVM compiles what runs often while it runs: stock's broker needs 110 µs of CPU a message in its
first ten seconds of sends, and less than half of that minutes later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

#: Windows of load that have to agree, and by how much.
STEADY_WINDOWS = 3
STEADY_SHARE = 0.03


def is_steady(cpu_us: Sequence[float]) -> bool:
    """Whether the last windows, each with its CPU time a message, lie within `STEADY_SHARE`."""
    last = cpu_us[-STEADY_WINDOWS:]
    return len(last) == STEADY_WINDOWS and max(last) <= min(last) * (1 + STEADY_SHARE)


@dataclass
class Warming:
    """The windows of load in front of a case's figures, for one subject."""

    case: str
    subject: str
    #: The figures of each window, in order.
    windows: list[dict[str, float]] = field(default_factory=list)
    #: Seconds of load, in all windows together.
    seconds: float = 0.0

    @property
    def cpu_us(self) -> list[float]:
        """CPU time a message in µs, by window; windows without one are left out."""
        return [window["cpu_us"] for window in self.windows if "cpu_us" in window]

    @property
    def is_steady(self) -> bool:
        """Whether the subject is warm."""
        return is_steady(self.cpu_us)

    def add(self, figures: dict[str, float], seconds: float) -> None:
        """Takes in one more window."""
        self.windows.append(figures)
        self.seconds += seconds
