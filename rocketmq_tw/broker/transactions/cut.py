"""What the end of the log, before it is cut, says to be settled is settled no more."""

from __future__ import annotations

from collections.abc import Iterator

from rocketmq_tw.broker.assembly.truncation import LogCut
from rocketmq_tw.broker.tables.offsets.table import OffsetTable
from rocketmq_tw.broker.transactions.halves import QUEUE, SYSTEM_GROUP, settled_offsets
from rocketmq_tw.message.names import HALF_TOPIC, OP_HALF_TOPIC
from rocketmq_tw.message.record import RecordHead
from rocketmq_tw.store.interface import IMessageStore


class SettledBehind:
    """Finds out about what `cut` takes away."""

    def __init__(self, store: IMessageStore, cut: LogCut) -> None:
        self._store = store
        self._cut = cut
        #: The first half message that an op message names there.
        self._first: int | None = None
        cut.need_messages_of(HALF_TOPIC)
        cut.observe(self._see)

    def _see(self, head: RecordHead) -> None:
        if head.topic != OP_HALF_TOPIC:
            return
        op = self._store.message_at(head.physical_offset)
        named = [] if op is None else settled_offsets(op)
        if named:
            first = min(named)
            self._first = first if self._first is None else min(self._first, first)

    def take_back(self, offsets: OffsetTable) -> Iterator[None]:
        """Takes stock's group back to the first half message that waits again, and among the op
        messages to the first that may name it or one behind it."""
        yield from ()
        store, first = self._store, self._first
        if first is None:
            return
        _back_to(offsets, HALF_TOPIC, max(first, store.min_queue_offset(HALF_TOPIC, QUEUE)))
        position = self._cut.position(HALF_TOPIC, QUEUE, first)
        if position is not None:
            behind = store.queue_end_at(OP_HALF_TOPIC, QUEUE, position)
            if behind is None:
                # Those that are in no queue yet come next.
                behind = store.max_queue_offset(OP_HALF_TOPIC, QUEUE)
            _back_to(offsets, OP_HALF_TOPIC, behind)


def _back_to(offsets: OffsetTable, topic: str, offset: int) -> None:
    known = offsets.of(SYSTEM_GROUP, topic).get(QUEUE)
    if known is not None and offset < known:
        offsets.commit(SYSTEM_GROUP, topic, QUEUE, offset, "the broker")
