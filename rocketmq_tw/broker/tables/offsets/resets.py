"""Resets of consumer offsets that wait until a pull takes them up. Kept in memory only, as in
stock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


class PendingResets:
    """`topic@group` → queue id → the offset that the group was set to; -1: it has none there."""

    def __init__(self) -> None:
        self._offsets: dict[str, dict[int, int]] = {}

    def set(self, key: str, queue_id: int, offset: int) -> None:
        """Has a reset wait, instead of an earlier one of the queue."""
        self._offsets.setdefault(key, {})[queue_id] = offset

    def find(self, key: str, queue_id: int) -> int | None:
        """Returns the offset of the reset that waits; None where none does."""
        queues = self._offsets.get(key)
        return None if queues is None else queues.get(queue_id)

    def take(self, key: str, queue_id: int) -> int | None:
        """Ends a reset that waits and returns its offset; None where none waits."""
        queues = self._offsets.get(key)
        if queues is None:
            return None
        offset = queues.pop(queue_id, None)
        if not queues:
            del self._offsets[key]
        return offset

    def forget(self, keys: Iterable[str]) -> None:
        """Forgets the resets of these pairs."""
        for key in self._offsets.keys() & keys:
            del self._offsets[key]

    def clear(self) -> None:
        """Forgets all."""
        self._offsets = {}

    def all(self) -> Mapping[str, dict[int, int]]:
        """Returns the live table."""
        return self._offsets
