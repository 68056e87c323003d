"""Notes which consumer offsets were changed on a slave that acts for its master, since a master's
were followed last.

Rules: docs/acting.md, "What may come twice, and why".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping


class OwnChanges:
    """Queues by "topic@group", each with whether the group was put back in it: by a reset, or by a
    commit below its last one."""

    def __init__(self) -> None:
        self._queues: dict[str, dict[int, bool]] = {}
        #: Whether changes are noted now, as on a slave that acts.
        self.are_noted = False

    def __bool__(self) -> bool:
        return bool(self._queues)

    def note(self, key: str, queue_id: int, *, put_back: bool) -> None:
        """Notes a change."""
        queues = self._queues.setdefault(key, {})
        queues[queue_id] = put_back or queues.get(queue_id, False)

    def load(self, put_back: Mapping[str, Iterable[int]]) -> None:
        """Takes what a file has."""
        self._queues = {key: dict.fromkeys(queues, True) for key, queues in put_back.items()}

    def has(self, key: str, queue_id: int) -> bool:
        """Returns whether the offset in a queue was changed."""
        return queue_id in self._queues.get(key, ())

    def forget(self, key: str, queue_id: int) -> None:
        """Forgets the change in a queue: a master's offset counts there now."""
        queues = self._queues.get(key)
        if queues is not None:
            queues.pop(queue_id, None)
            if not queues:
                del self._queues[key]

    def forget_pair(self, key: str) -> None:
        """Forgets the changes of a pair that is removed."""
        self._queues.pop(key, None)

    def clear(self) -> None:
        """Forgets all changes."""
        self._queues = {}

    def put_back(self) -> dict[str, list[int]]:
        """Returns the queues in which groups were put back. May be called in any thread."""
        found: dict[str, list[int]] = {}
        for key, queues in list(self._queues.items()):
            ids = [queue_id for queue_id, is_back in list(queues.items()) if is_back]
            if ids:
                found[key] = ids
        return found
