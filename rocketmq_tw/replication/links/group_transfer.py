"""Sends that wait until enough replicas have them: pure book-keeping.

A send needs `replicas` copies with the master's own, or all that are in sync. Offsets and deadlines
only grow, so each number of replicas has one queue, answered from its front.
"""

from collections import defaultdict, deque
from collections.abc import Callable
from typing import Generic, TypeVar

#: In place of a number of replicas: every one that is in sync.
EVERY_REPLICA = -1

T = TypeVar("T")


class GroupTransfer(Generic[T]):
    """The sends that wait for replicas. `T` is what the caller gets back for each, such as a
    Deferred."""

    def __init__(self) -> None:
        self._waiting: dict[int, deque[tuple[int, int, T]]] = defaultdict(deque)

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def wait(self, end_offset: int, replicas: int, deadline_ms: int, waiter: T) -> None:
        """Lets `waiter` wait until `replicas` replicas (`EVERY_REPLICA`: all in sync) have the log
        up to `end_offset`, by `deadline_ms` at the latest."""
        self._waiting[replicas].append((end_offset, deadline_ms, waiter))

    def acknowledged(self, reached: Callable[[int], int]) -> list[T]:
        """Takes and returns the waiters that are satisfied, in order; `reached` tells up to where a
        number of replicas has the log, -1: nowhere."""
        done = []
        for replicas, queue in self._waiting.items():
            if not queue:
                continue
            offset = reached(replicas)
            while queue and queue[0][0] <= offset:
                done.append(queue.popleft()[2])
        return done

    def expired(self, now_ms: int) -> list[T]:
        """Takes and returns the waiters whose deadline has passed."""
        late = []
        for queue in self._waiting.values():
            while queue and queue[0][1] <= now_ms:
                late.append(queue.popleft()[2])
        return late

    def drain(self) -> list[T]:
        """Takes and returns everyone: the master stops or steps down."""
        everyone = [entry[2] for queue in self._waiting.values() for entry in queue]
        self._waiting.clear()
        return everyone
