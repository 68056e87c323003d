"""The messages of one topic around a place where the log is about to be cut.

Queues alone do not tell: after a kill they lack what is not confirmed again.
"""

from __future__ import annotations

from collections.abc import Iterator

from rocketmq_tw.broker.interfaces import IMessageStore
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.message.record import RecordHead

#: Records that are looked at in one step.
SLICE = 500


class LogEnd:
    """Of the queues of `topic`, if the log were cut at `position`; `look` comes first."""

    def __init__(self, store: IMessageStore, topic: str, position: int) -> None:
        self._store = store
        self._topic = topic
        self._position = position
        #: Queue -> where messages stand that are in the log and not in the queue yet.
        self._waiting: dict[int, dict[int, int]] = {}
        #: Queue -> its first message behind the cut.
        self._behind: dict[int, int] = {}
        self._counts: dict[int, int] = {}

    def look(self) -> Iterator[RecordHead | None]:
        """The records of all topics behind the cut, to be gone through once; and None after every
        few, for a step."""
        store, position = self._store, self._position
        for count, head in enumerate(store.records(min(position, store.dispatched_offset)), 1):
            is_behind = head.physical_offset >= position
            if head.topic == self._topic:
                if is_behind:
                    self._behind.setdefault(head.queue_id, head.queue_offset)
                    self._counts[head.queue_id] = self._counts.get(head.queue_id, 0) + 1
                else:
                    waiting = self._waiting.setdefault(head.queue_id, {})
                    waiting[head.queue_offset] = head.physical_offset
            if is_behind:
                yield head
            if count % SLICE == 0:
                yield None

    def end_of(self, queue_id: int) -> int:
        """Where a queue ends once the log is cut."""
        if queue_id in self._behind:
            return self._behind[queue_id]
        known = self._store.max_queue_offset(self._topic, queue_id)
        return max(known, max(self._waiting.get(queue_id, ()), default=-1) + 1)

    def count_behind(self, queue_id: int) -> int:
        """How many messages of a queue stand behind the cut."""
        return self._counts.get(queue_id, 0)

    def message(self, queue_id: int, offset: int) -> StoredMessage | None:
        """The message at an offset in front of the cut; None where the log has none."""
        position = self._waiting.get(queue_id, {}).get(offset)
        if position is None:
            units = self._store.queue_units(self._topic, queue_id, offset, 1)
            if not units:
                return None
            position = units[0].position
        return self._store.message_at(position)
