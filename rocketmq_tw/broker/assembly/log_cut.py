"""The end of the log that is about to be cut off, gone through once for all who have to do with it.

Queues do not tell: those of a broker that a controller leads lack what is not confirmed, and after
a kill also what is not confirmed again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rocketmq_tw.broker.interfaces import IMessageStore
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.message.record import RecordHead

#: Records that are looked at in one step.
SLICE = 500

#: Told of a record that goes; what it returns is gone through before the next one.
See = Callable[[RecordHead], Iterator[None] | None]


class LogCut:
    """What is cut off where the log of `store` ends at `end` from now on. Whoever wants to know
    more than queues' ends says so before `look`."""

    def __init__(self, store: IMessageStore, end: int) -> None:
        self.end = end
        self._store = store
        self._told: list[See] = []
        #: Topic -> queue -> where messages stand that stay and are not in the queue yet.
        self._waiting: dict[str, dict[int, dict[int, int]]] = {}
        #: Topic and queue -> the first message that goes, and how many do.
        self._gone: dict[tuple[str, int], int] = {}
        self._counts: dict[tuple[str, int], int] = {}

    def tell(self, see: See) -> None:
        """Calls `see` with each record that goes, of all topics, in the order of the log."""
        self._told.append(see)

    def keep(self, topic: str) -> None:
        """`position` and `message` will be asked for messages of `topic`."""
        self._waiting.setdefault(topic, {})

    def look(self) -> Iterator[None]:
        """Goes through the log, in steps."""
        store, end = self._store, self.end
        for count, head in enumerate(store.records(min(end, store.dispatched_offset)), 1):
            if head.physical_offset >= end:
                self._goes(head)
                for see in self._told:
                    yield from see(head) or ()
            elif head.topic in self._waiting:
                waiting = self._waiting[head.topic].setdefault(head.queue_id, {})
                waiting[head.queue_offset] = head.physical_offset
            if count % SLICE == 0:
                yield

    def _goes(self, head: RecordHead) -> None:
        for topic, queue_id, offset in self._store.places_of(head):
            self._gone.setdefault((topic, queue_id), offset)
            self._counts[topic, queue_id] = self._counts.get((topic, queue_id), 0) + 1

    def first_gone(self, topic: str, queue_id: int) -> int | None:
        """The offset at which a queue ends once the log is cut; None where it loses nothing."""
        return self._gone.get((topic, queue_id))

    def end_of(self, topic: str, queue_id: int) -> int:
        """Where a queue ends once the log is cut; of a topic that is kept."""
        first = self.first_gone(topic, queue_id)
        if first is not None:
            return first
        known = self._store.max_queue_offset(topic, queue_id)
        return max(known, max(self._waiting[topic].get(queue_id, ()), default=-1) + 1)

    def count_gone(self, topic: str, queue_id: int) -> int:
        """How many messages a queue loses."""
        return self._counts.get((topic, queue_id), 0)

    def position(self, topic: str, queue_id: int, offset: int) -> int | None:
        """Where a message stands that stays; None where the log has none at that offset."""
        position = self._waiting[topic].get(queue_id, {}).get(offset)
        if position is None:
            for unit in self._store.queue_units(topic, queue_id, offset, 1):
                position = unit.position
        return None if position is None or position >= self.end else position

    def message(self, topic: str, queue_id: int, offset: int) -> StoredMessage | None:
        """The message at an offset that stays; None where the log has none."""
        position = self.position(topic, queue_id, offset)
        return None if position is None else self._store.message_at(position)
