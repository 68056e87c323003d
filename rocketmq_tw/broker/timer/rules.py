"""Computes when a message is due, and for which slot it waits: stock's arithmetic
(docs/formats/timers.md, "What becomes of a message")."""

from __future__ import annotations

from rocketmq_tw.config.store import MessageStoreConfig
from rocketmq_tw.message.names import NOT_FOR_CLIENTS, TIMER_TOPIC, revive_topic
from rocketmq_tw.store.timer.wheel import SLOTS

#: Slots of half a round that stock keeps free.
_FREE_SLOTS = 60
_WINDOW = SLOTS // 2 - _FREE_SLOTS
_NOT_FOR_TIMED = NOT_FOR_CLIENTS | {TIMER_TOPIC}
_CHECK_POINTS = revive_topic("")


def is_revive_topic(topic: str) -> bool:
    """Returns whether a topic has the check points of pops, whose time pop looks after itself."""
    return topic.startswith(_CHECK_POINTS)


def takes_timed(topic: str) -> bool:
    """Returns whether timed messages may be for a topic: the timer's own one would have them again
    and again, others are not for clients, and check points are taken out by pop itself."""
    return topic not in _NOT_FOR_TIMED and not is_revive_topic(topic)


class TimerRules:
    """Slots of `timerPrecisionMs`, and a window of `timerRollWindowSlot` of them. A message whose
    time is beyond the window waits for a part of it first, and then again (a roll), long before the
    commit log loses it."""

    def __init__(self, config: MessageStoreConfig) -> None:
        self.precision_ms = config.timer_slot_ms
        slots = config.timer_roll_window_slot
        window = slots if 2 <= slots <= _WINDOW else _WINDOW
        kept_ms = config.file_reserved_time * 3_600_000 * 3 // 4
        self._window = min(window, kept_ms // self.precision_ms)

    @property
    def furthest_ms(self) -> int:
        """How many ms back a slot still counts that was not delivered in time."""
        return _WINDOW * self.precision_ms

    def slot_of(self, time_ms: int) -> int:
        """Returns when the slot of a time begins."""
        return time_ms // self.precision_ms * self.precision_ms

    def out_ms(self, deliver_ms: int) -> int:
        """Returns TIMER_OUT_MS: the slot whose end is the first one at or behind a time."""
        return self.slot_of(deliver_ms - 1)

    def target(self, out_ms: int, write_ms: int) -> tuple[int, bool]:
        """Returns the slot that a message waits for which begins to wait at `write_ms`, and whether
        it rolls then."""
        window_ms = self._window * self.precision_ms
        beyond_ms = out_ms - write_ms - window_ms
        if beyond_ms < 0:
            return out_ms, False
        if beyond_ms < self._window // 3 * self.precision_ms:
            return write_ms + self._window // 2 * self.precision_ms, True
        return write_ms + window_ms, True

    def due_ms(self, time_ms: int) -> int:
        """Returns when an entry is due that waits for `time_ms`: a slot's start stands for its end,
        as stock means it."""
        return time_ms + (1 if time_ms % self.precision_ms else self.precision_ms)

    def exact_time(self, deliver_ms: int | None, slot: int) -> int:
        """Returns what an entry of `slot` has to wait for so that it is due at `deliver_ms`."""
        last = slot + self.precision_ms - 1
        return last if deliver_ms is None else max(slot + 1, min(deliver_ms - 1, last))
