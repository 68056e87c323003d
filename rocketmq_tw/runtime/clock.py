"""The time of day, for modules that import no Twisted as well."""

import time


def wall_clock_ms() -> int:
    """Milliseconds since 1970; an administrator may set it back."""
    return time.time_ns() // 1_000_000
