"""Tells what became of half messages that are settled, as far as index and op messages know."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks

from rocketmq_tw.broker.transactions.halves import QUEUE, Half, settled_offsets
from rocketmq_tw.message.model import TRANSACTION_COMMIT, StoredMessage, transaction_value
from rocketmq_tw.message.names import (
    HALF_TOPIC,
    OP_HALF_TOPIC,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRANS_CHECK_MAX_TIME_TOPIC,
)
from rocketmq_tw.message.properties import DELAY, TIMER_PROPERTIES
from rocketmq_tw.message.record import decode_record, decode_records
from rocketmq_tw.store.interface import IMessageStore
from rocketmq_tw.store.queue_batches import batches

#: Messages with the same unique id that are looked at, at most.
_MOST_HALVES = 64
#: Op messages that are looked at for one half message, at most.
MOST_OPS = 10_000
_FOREVER = (1 << 63) - 1

Found = Generator[Deferred[Any], Any, bool]


class History:
    """Looks for the messages that half messages became, without an index for none of them, and for
    the op messages that name them."""

    def __init__(
        self, store: IMessageStore, in_slices: Callable[[Iterator[None]], Deferred[Any]]
    ) -> None:
        self._store = store
        self._in_slices = in_slices

    @inlineCallbacks
    def was_committed(self, half: Half) -> Found:
        """Fires with whether the real message is in the log."""
        topics = [half.real_topic]
        if DELAY in half.properties:
            topics.append(SCHEDULE_TOPIC)
        if not half.properties.keys().isdisjoint(TIMER_PROPERTIES):
            topics.append(TIMER_TOPIC)
        for topic in topics:
            messages = yield self._with_id(topic, half.unique_id)
            if any(self._is_committed_copy(message, half) for message in messages):
                return True
        return False

    @inlineCallbacks
    def was_given_up(self, half: Half) -> Found:
        """Fires with whether it was given up, for want of a decision."""
        messages = yield self._with_id(TRANS_CHECK_MAX_TIME_TOPIC, half.unique_id)
        return any(_is_same(Half(message), half) for message in messages)

    @inlineCallbacks
    def was_settled(self, half: Half) -> Found:
        """Fires with whether one of the first `MOST_OPS` op messages behind it names it: one that
        an acting master moved to another group has none."""
        found: list[int] = []
        yield self._in_slices(self._search_ops(half, found))
        return bool(found)

    def _search_ops(self, half: Half, found: list[int]) -> Iterator[None]:
        store, position = self._store, half.message.physical_offset
        offset = store.queue_end_at(OP_HALF_TOPIC, QUEUE, position)
        if offset is None:
            return
        for read in batches(store, OP_HALF_TOPIC, QUEUE, offset, offset + MOST_OPS):
            for op in decode_records(read.data):
                if half.offset in settled_offsets(op):
                    found.append(op.queue_offset)
            if found:
                return
            yield

    def _is_committed_copy(self, message: StoredMessage, half: Half) -> bool:
        if transaction_value(message.sys_flag) != TRANSACTION_COMMIT:
            return False
        record = self._store.record_at(message.prepared_transaction_offset)
        if record is None:
            return False
        prepared = Half(decode_record(record))
        return prepared.message.topic == HALF_TOPIC and _is_same(prepared, half)

    @inlineCallbacks
    def _with_id(
        self, topic: str, unique_id: str
    ) -> Generator[Deferred[Any], Any, list[StoredMessage]]:
        found: list[int] = []
        if unique_id:
            yield self._in_slices(
                self._store.search_by_key(topic, unique_id, _MOST_HALVES, 0, _FOREVER, found)
            )
        records = map(self._store.record_at, found)
        messages = [decode_record(record) for record in records if record is not None]
        return [m for m in messages if m.topic == topic and Half(m).unique_id == unique_id]


def _is_same(one: Half, other: Half) -> bool:
    """Returns whether both are copies of one half message; stock's copies name no origin."""
    if one.message.topic != HALF_TOPIC and not one.names_origin:
        return True
    return one.origin == other.origin
