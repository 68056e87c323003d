"""Finds where in the commit log the first timed message stands that still waits, for retention.

Rules: docs/formats/timers.md, "The order of things".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rocketmq_tw.broker.timer.books import TimerBooks
from rocketmq_tw.message.names import TIMER_TOPIC
from rocketmq_tw.store.interface import IMessageStore
from rocketmq_tw.store.still_needed import place_of
from rocketmq_tw.store.timer.unit import NOWHERE

#: Slots that are looked at in one step.
_STEP = 1_000


class _First(NamedTuple):
    """The first entry of the timer log that waits: its slot's time, its position, and the time from
    which on slots were looked at."""

    time_ms: int
    position: int
    since_ms: int


class TimedPlaces:
    """Finds it in `books`. Entries stand in the timer log in the order of their messages, so that
    the first entry that waits leads to it; that one is remembered until it is delivered, since all
    that come later stand behind it."""

    def __init__(self, store: IMessageStore, books: TimerBooks) -> None:
        self._store = store
        self._books = books
        self._first: _First | None = None

    def of_topic(self, offset: int) -> Iterator[int]:
        """Yields where the message at an offset of the timer's topic stands."""
        return place_of(self._store, TIMER_TOPIC, 0, offset)

    def all(self) -> Iterator[int]:
        """Yields places that may not go, some of them as steps of a longer look; the lowest is the
        one that is meant."""
        # First: what goes into the wheel meanwhile is here or there.
        yield from self.of_topic(self._books.entered_until)
        if not self._is_known():
            end = self._store.end_offset
            for _ in self._find():
                yield end
        if self._first is not None:
            yield self._message_of(self._first.position)

    def _is_known(self) -> bool:
        first, books = self._first, self._books
        if first is None or not first.since_ms <= books.read_ms <= first.time_ms:
            return False
        slot = books.files.wheel.get(first.time_ms)
        return slot is not None and slot.first == first.position

    def _find(self) -> Iterator[None]:
        since_ms, found = self._books.read_ms, None
        for count, (time_ms, slot) in enumerate(self._books.files.wheel.waiting(since_ms), 1):
            if found is None or slot.first < found.position:
                found = _First(time_ms, slot.first, since_ms)
            if count % _STEP == 0:
                yield
        self._first = found

    def _message_of(self, position: int) -> int:
        """Returns where the message of an entry stands; of one that has lost its message, where the
        one before it does; 0 where none is known."""
        log = self._books.files.log
        reader = log.reader()
        position = max(position, log.start)
        while position != NOWHERE:
            unit = reader.unit(position)
            if unit is None:
                return 0
            if not unit.is_void:
                return unit.offset
            position = log.before(position)
        return 0
