"""Which client of an ordered consumer group may consume which queue (requests 41 and 42)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TypeVar

Q = TypeVar("Q", bound=Hashable)

#: A lock that its owner has not renewed for so long is free.
LOCK_EXPIRES_MS = 60_000
#: What a client that renewed its lock just before the broker ended takes it to last by itself.
LOCK_OUTLIVES_MS = 30_000
#: Locks of all groups together; beyond them a queue is as if another client held it.
MAX_LOCKS = 200_000
#: Locks that are looked at in one step of the scan for expired ones.
_STEP = 1000


class RebalanceLock:
    """The locks of all groups; a queue is any hashable value, here the wire's message queue."""

    def __init__(self, now_ms: Callable[[], int], expires_ms: int = LOCK_EXPIRES_MS) -> None:
        self._now_ms = now_ms
        self._expires_ms = expires_ms
        self._groups: dict[str, dict[Hashable, tuple[str, int]]] = {}
        self._count = 0
        #: Whether locks were taken or freed since this was last False; a renewal is neither.
        self.changed = False

    def held(self) -> list[tuple[str, list[tuple[Hashable, str]]]]:
        """Group, with each locked queue and its client; may be called in any thread."""
        return [
            (group, [(queue, owner[0]) for queue, owner in list(queues.items())])
            for group, queues in list(self._groups.items())
        ]

    def take_over(self, group: str, queue: Hashable, client_id: str) -> None:
        """Takes a lock that was granted before the broker started: its client may still go on for
        `LOCK_OUTLIVES_MS`, and renews it by then if it is there."""
        if self._count >= MAX_LOCKS:
            return
        held = self._groups.setdefault(group, {})
        self._count += queue not in held
        held[queue] = (client_id, self._now_ms() + LOCK_OUTLIVES_MS - self._expires_ms)

    def lock(self, group: str, queues: Iterable[Q], client_id: str) -> list[Q]:
        """Takes or renews what is free or the client's own; returns those, in order."""
        now = self._now_ms()
        held = self._groups.setdefault(group, {})
        locked = []
        for queue in queues:
            owner = held.get(queue)
            if owner is None:
                if self._count >= MAX_LOCKS:
                    continue
                self._count += 1
                self.changed = True
            elif owner[0] != client_id:
                if now - owner[1] <= self._expires_ms:
                    continue
                self.changed = True
            held[queue] = (client_id, now)
            locked.append(queue)
        if not held:
            del self._groups[group]
        return locked

    def unlock(self, group: str, queues: Iterable[Hashable], client_id: str) -> None:
        """Frees those of `queues` that the client holds."""
        held = self._groups.get(group)
        if held is None:
            return
        for queue in queues:
            owner = held.get(queue)
            if owner is not None and owner[0] == client_id:
                del held[queue]
                self._count -= 1
                self.changed = True
        if not held:
            del self._groups[group]

    def owner(self, group: str, queue: Hashable) -> str | None:
        """The client that holds the queue; None where it is free."""
        owner = self._groups.get(group, {}).get(queue)
        if owner is None or self._now_ms() - owner[1] > self._expires_ms:
            return None
        return owner[0]

    def holds_any(self, group: str) -> bool:
        """Whether some member of the group holds a lock: the group consumes orderly."""
        now = self._now_ms()
        held = self._groups.get(group, {})
        return any(now - since <= self._expires_ms for _, since in held.values())

    def forget_expired(self) -> Iterator[None]:
        """Drops locks that nobody renews any more, so that the table does not only grow; a step for
        some of them, between which the locks may change."""
        now = self._now_ms()
        for group in list(self._groups):
            queues = list(self._groups.get(group, ()))
            for first in range(0, len(queues), _STEP):
                held = self._groups.get(group)
                if held is None:
                    break
                for queue in queues[first : first + _STEP]:
                    owner = held.get(queue)
                    if owner is not None and now - owner[1] > self._expires_ms:
                        del held[queue]
                        self._count -= 1
                        self.changed = True
                if not held:
                    del self._groups[group]
                yield
