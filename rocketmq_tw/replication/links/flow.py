"""How many bytes a link has moved in the last second, and how many it may."""


class FlowMeter:
    """Counts the bytes of a link second by second; `limit` bytes a second at most, None: any."""

    def __init__(self, limit: int | None = None) -> None:
        self._limit = limit
        self._second = 0
        self._current = 0
        self._last = 0

    def add(self, count: int, now_ms: int) -> None:
        """Takes note of `count` bytes moved now."""
        self._roll(now_ms)
        self._current += count

    def allowance(self, now_ms: int) -> int | None:
        """Bytes that may still be moved in this second; None where there is no limit."""
        if self._limit is None:
            return None
        self._roll(now_ms)
        return max(self._limit - self._current, 0)

    def bytes_per_second(self, now_ms: int) -> int:
        """What the last whole second moved."""
        self._roll(now_ms)
        return self._last

    def _roll(self, now_ms: int) -> None:
        second = now_ms // 1000
        if second != self._second:
            self._last = self._current if second == self._second + 1 else 0
            self._current = 0
            self._second = second
