"""What became of half messages that are settled, as far as the index knows."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks

from rocketmq_tw.broker.transactions.halves import Half
from rocketmq_tw.message.model import TRANSACTION_COMMIT, StoredMessage, transaction_value
from rocketmq_tw.message.names import (
    HALF_TOPIC,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRANS_CHECK_MAX_TIME_TOPIC,
)
from rocketmq_tw.message.properties import DELAY, TIMER_PROPERTIES
from rocketmq_tw.message.record import decode_record
from rocketmq_tw.store.interface import IMessageStore

#: Messages with the same unique id that are looked at, at most.
MOST = 64
_FOREVER = (1 << 63) - 1

Found = Generator[Deferred[Any], Any, bool]


class History:
    """Looks for the messages that half messages became. Without an index it finds none."""

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
                self._store.search_by_key(topic, unique_id, MOST, 0, _FOREVER, found)
            )
        records = map(self._store.record_at, found)
        messages = [decode_record(record) for record in records if record is not None]
        return [m for m in messages if m.topic == topic and Half(m).unique_id == unique_id]


def _is_same(one: Half, other: Half) -> bool:
    """Returns whether both are copies of one half message; stock's copies name no origin."""
    if one.message.topic != HALF_TOPIC and not one.names_origin:
        return True
    return one.origin == other.origin
