"""Keeps how far half and op messages are settled: consumer offsets of stock's group for them
(docs/formats/transactions.md, "Progress")."""

from __future__ import annotations

from collections.abc import Iterator

from rocketmq_tw.broker.assembly.truncation import LogCut
from rocketmq_tw.broker.tables.offsets.table import OffsetTable
from rocketmq_tw.broker.transactions.book import HalfBook
from rocketmq_tw.broker.transactions.halves import QUEUE, SYSTEM_GROUP, settled_offsets
from rocketmq_tw.message.names import HALF_TOPIC, OP_HALF_TOPIC
from rocketmq_tw.message.record import RecordHead
from rocketmq_tw.store.interface import IMessageStore
from rocketmq_tw.store.still_needed import place_of

#: More than any queue offset.
_MAX_OFFSET = (1 << 63) - 1


class SettledProgress:
    """All half messages in front of the one offset are settled, and all op messages in front of the
    other one name only such."""

    def __init__(self, offsets: OffsetTable, store: IMessageStore) -> None:
        self._offsets = offsets
        self._store = store
        #: Whether the offsets were copied from another master: they may have come before the
        #: messages they refer to. A takeover that has found out which half messages wait ends it.
        self.is_copied = False
        #: This broker has moved the half messages in front of it to another group while it acted
        #: for its master; no op message says so. But for some that nobody took, by the offset that
        #: they were sent with: what waits of them are copies behind all that is settled.
        self.moved_until = 0
        self.not_moved: frozenset[int] = frozenset()
        #: Where op messages were read from, until that is noted.
        self._op_start: int | None = None

    def start(self, topic: str) -> int | None:
        """Returns where to begin to read a topic; None where the offset is behind the queue's
        end."""
        offset = self._offsets.query(SYSTEM_GROUP, topic, QUEUE)
        if offset > self._store.max_queue_offset(topic, QUEUE):
            return None
        return max(offset, self._store.min_queue_offset(topic, QUEUE))

    def places(self) -> Iterator[int]:
        """Yields where in the log the first half message stands that is not settled; nothing where
        only a master knows and has not told it."""
        offset = self._kept_offset(HALF_TOPIC)
        if offset is not None or not self.is_copied:
            yield from place_of(self._store, HALF_TOPIC, QUEUE, offset or 0)

    def was_moved(self, origin: int) -> bool:
        """Returns whether this broker has moved the half message that was sent at this offset of
        the half topic, and all its copies with it."""
        return origin < self.moved_until and origin not in self.not_moved

    def follow(self) -> None:
        """Notes that the offsets are copied from another master from now on."""
        self.is_copied = True

    def taken_over(self, op_start: int) -> None:
        """Takes the offsets for this broker's own; op messages were read from `op_start` on."""
        self.is_copied = False
        self._op_start = op_start

    def note(self, book: HalfBook) -> None:
        """Moves both offsets on to where `book` is."""
        half_offset, op_offset = book.advance()
        if book.end == 0:
            return
        op_start, self._op_start = self._op_start, None
        if op_start is not None:
            # In the file it must not be newer than the other one, which it follows.
            self._commit(OP_HALF_TOPIC, op_start)
            self._offsets.put_first(SYSTEM_GROUP, OP_HALF_TOPIC)
        for topic, offset in ((HALF_TOPIC, half_offset), (OP_HALF_TOPIC, op_offset)):
            if offset is not None and self._kept_offset(topic) != offset:
                self._commit(topic, offset)

    def rewind(self, cut: LogCut) -> Iterator[None]:
        """Goes back, before `cut` takes op messages away, to the first half message that one of
        them names: it waits again. See `DerivedOffsets`."""
        first = _MAX_OFFSET

        def see(head: RecordHead) -> None:
            nonlocal first
            if head.topic == OP_HALF_TOPIC:
                op = self._store.message_at(head.physical_offset)
                if op is not None:
                    first = min([first, *settled_offsets(op)])

        def steps() -> Iterator[None]:
            if first < _MAX_OFFSET:
                self._go_back_to(cut, first)
            yield from ()

        def not_moved(head: RecordHead) -> None:
            if head.topic == HALF_TOPIC:
                self.moved_until = min(self.moved_until, head.queue_offset)

        cut.need_messages_of(HALF_TOPIC)
        cut.observe(see)
        cut.observe(not_moved)
        return steps()

    def _go_back_to(self, cut: LogCut, first: int) -> None:
        """Goes back to a half message, and among the op messages to the first one that may name it
        or one behind it."""
        store = self._store
        self._go_back(HALF_TOPIC, max(first, store.min_queue_offset(HALF_TOPIC, QUEUE)))
        position = cut.position(HALF_TOPIC, QUEUE, first)
        if position is not None:
            behind = store.queue_end_at(OP_HALF_TOPIC, QUEUE, position)
            if behind is None:
                # Those that are in no queue yet come next.
                behind = store.max_queue_offset(OP_HALF_TOPIC, QUEUE)
            self._go_back(OP_HALF_TOPIC, behind)

    def _go_back(self, topic: str, offset: int) -> None:
        """Moves an offset back, if there is one and it is behind `offset`."""
        known = self._kept_offset(topic)
        if known is not None and offset < known:
            self._commit(topic, offset)

    def _kept_offset(self, topic: str) -> int | None:
        return self._offsets.of(SYSTEM_GROUP, topic).get(QUEUE)

    def _commit(self, topic: str, offset: int) -> None:
        self._offsets.commit(SYSTEM_GROUP, topic, QUEUE, offset, "the broker")
