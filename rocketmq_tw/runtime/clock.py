"""The time of day, for modules that import no Twisted as well."""

import time

#: Milliseconds by which the clock of another broker, as of a master that is lost, may be ahead of
#: this one's, or this one may be set back.
CLOCK_SKEW_MS = 10_000


def is_ahead(time_ms: int, now_ms: int) -> bool:
    """Returns whether something that has happened was dated later than now by more than clocks
    differ: its clock was wrong, or this one was set back."""
    return time_ms > now_ms + CLOCK_SKEW_MS


def wall_clock_ms() -> int:
    """Milliseconds since 1970; an administrator may set it back."""
    return time.time_ns() // 1_000_000
