"""Keeps what of the log is still needed: messages that wait for their time, for a decision or for
an acknowledgement. What keeps them registers here, and retention stops in front of the first of
them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from rocketmq_tw.store.interface import IMessageStore

#: Yields log offsets: nothing at or behind the lowest of them may go. Each step is short, and the
#: store may change between two. It is only asked where a file would go otherwise.
Places = Callable[[], Iterator[int]]

#: Offsets that are looked at in one step.
_STEP = 100


class Need(NamedTuple):
    """The lowest log offset of what waits, and in words what that is."""

    offset: int
    what: str


class StillNeeded:
    """Those who keep messages that wait."""

    def __init__(self) -> None:
        self._places: dict[str, Places] = {}

    def register(self, what: str, places: Places) -> None:
        """Asks `places` from now on; `what` says in words what waits there."""
        self._places[what] = places

    def find(self, needs: list[Need]) -> Iterator[None]:
        """Goes through all that is registered, in steps, and adds what is needed to `needs`."""
        count = 0
        for what, places in list(self._places.items()):
            lowest: int | None = None
            for offset in places():
                lowest = offset if lowest is None else min(lowest, offset)
                count += 1
                if count % _STEP == 0:
                    yield
            if lowest is not None:
                needs.append(Need(lowest, what))


def place_of(store: IMessageStore, topic: str, queue_id: int, offset: int) -> Iterator[int]:
    """Yields where in the log the message at a queue's offset stands, or the first one behind it
    that is left; nothing where the queue ends before that."""
    offset = max(offset, store.min_queue_offset(topic, queue_id))
    for unit in store.queue_units(topic, queue_id, offset, 1):
        yield unit.position
