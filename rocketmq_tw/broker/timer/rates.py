"""How many a second."""

from __future__ import annotations

from collections.abc import Callable


class Rate:
    """Of something that is counted, between the last two calls of `measure`."""

    def __init__(self, elapsed_ms: Callable[[], int]) -> None:
        self._elapsed_ms = elapsed_ms
        self._last = (elapsed_ms(), 0)
        self.value = 0.0

    def measure(self, count: int) -> None:
        now = self._elapsed_ms()
        at, before = self._last
        if now > at:
            self.value = (count - before) * 1000 / (now - at)
            self._last = (now, count)
