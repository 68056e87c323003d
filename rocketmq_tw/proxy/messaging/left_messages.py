"""Messages that come back although the receipt handles of their clients are not over: brokers take
an acknowledgement with such a handle, which comes to nothing."""

from __future__ import annotations

from collections.abc import Hashable
from math import inf
from typing import Generic, Protocol, TypeVar

from rocketmq_tw.runtime.lazy_heap import LazyHeap


class Left(Protocol):
    """A message that was left by its client."""

    @property
    def delivery(self) -> Hashable:
        """Where it is, and when it was popped."""

    @property
    def handle_ends(self) -> int:
        """When the client's receipt handle is over, in ms."""


L = TypeVar("L", bound=Left)

#: Messages that are forgotten at a time, more than are taken in.
_MOST_AT_ONCE = 100


class LeftMessages(Generic[L]):
    """Remembers messages as long as the handles of their clients."""

    def __init__(self) -> None:
        self._messages: dict[Hashable, L] = {}
        self._ends = LazyHeap[L](self._is_kept)

    def __len__(self) -> int:
        return len(self._messages)

    def add(self, message: L, now: int, most: float = inf) -> None:
        """Takes in a message, where its client's handle is not over, and fewer than `most` are
        remembered."""
        self.forget_over(now)
        if len(self) < most and message.handle_ends > now and not self._is_kept(message):
            self._messages[message.delivery] = message
            self._ends.push(message.handle_ends, message)

    def get(self, delivery: Hashable, now: int) -> L | None:
        """Returns the message of a delivery; None where it was not left."""
        self.forget_over(now)
        message = self._messages.get(delivery)
        return message if message is not None and message.handle_ends > now else None

    def discard(self, message: L) -> None:
        """Forgets a message."""
        if self._is_kept(message):
            del self._messages[message.delivery]

    def _is_kept(self, message: L) -> bool:
        return self._messages.get(message.delivery) is message

    def forget_over(self, now: int) -> None:
        """Forgets some of the messages whose handles are over."""
        for _ in range(_MOST_AT_ONCE):
            message = self._ends.take(now)
            if message is None:
                break
            self.discard(message)
