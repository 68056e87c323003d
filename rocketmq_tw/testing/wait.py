"""Waits for a condition; a test never sleeps for a time that it hopes is long enough."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(
    condition: Callable[[], T],
    what: str,
    *,
    limit: float = 30,
    interval: float = 0.02,
) -> T:
    """The first truthy value of `condition()`, asked every `interval` seconds.

    Raises `TimeoutError` with `what` and the last value after `limit` seconds.
    """
    deadline = time.monotonic() + limit
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {limit:g} s for {what}; last seen: {value!r}")
        time.sleep(interval)


def wait_past(timestamp_ms: int) -> None:
    """Waits until the wall clock is past `timestamp_ms`."""
    wait_until(lambda: time.time() * 1000 > timestamp_ms + 1, "the clock", interval=0.001)
