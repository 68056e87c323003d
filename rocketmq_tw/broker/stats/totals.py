"""Totals since the broker's start for monitoring, which the windows of `traffic.py` forget.

These begin again at 0 with a key that was idle for a day. What they had
counted by then is settled here, so that the sum of both grows only, as a counter has to. Nothing is
done here while messages are counted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol

from rocketmq_tw.metrics.instruments import MAX_SERIES


class Window(Protocol):
    """A count of one key's messages and bytes from some time on."""

    messages: int
    size: int


class Total(NamedTuple):
    """A number of messages, and their bytes."""

    messages: int = 0
    size: int = 0

    def plus(self, messages: int, size: int) -> Total:
        """Returns the sum."""
        return Total(self.messages + messages, self.size + size)


class Totals:
    """Keeps, by key, what windows had counted that are gone; keys beyond `MAX_SERIES`, which
    clients choose, share one series. A series once begun stays."""

    def __init__(self) -> None:
        self._settled: dict[str, Total] = {}
        self._others = Total()

    def begin(self, key: str) -> None:
        """Gives a key that is counted from now on a series, if there is room. A key goes from one
        series to another only here, with nothing counted: else one of them would fall."""
        if len(self._settled) < MAX_SERIES:
            self._settled.setdefault(key, Total())

    def settle(self, key: str, messages: int, size: int) -> None:
        """Takes over what a window has counted that is forgotten now."""
        if key in self._settled:
            self._settled[key] = self._settled[key].plus(messages, size)
        else:
            self.count_other(messages, size)

    def count_other(self, messages: int, size: int) -> None:
        """Counts what no window counts."""
        self._others = self._others.plus(messages, size)

    def keys(self) -> Iterable[str]:
        """Returns the keys that have a series."""
        return list(self._settled)

    def remove(self, key: str, *, is_counted: bool) -> None:
        """Ends the series of what was removed. With `is_counted` it is there again and counted
        anew: its series begins at 0."""
        if is_counted:
            self._settled[key] = Total()
        else:
            del self._settled[key]

    def with_counted(self, counted: Mapping[str, Window]) -> Iterator[tuple[str | None, Total]]:
        """Yields each key with its total; `counted` has what is not settled yet. Last comes None,
        for what has no series, where there is any. More may be counted in between."""
        settled, others, left = self._settled.copy(), self._others, dict(counted)
        for key, total in settled.items():
            more = left.pop(key, None)
            yield key, total if more is None else total.plus(more.messages, more.size)
        for more in left.values():
            others = others.plus(more.messages, more.size)
        if others.messages:
            yield None, others
