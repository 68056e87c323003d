"""Delivers what is due: slot after slot, within a slot each message at its own millisecond.

A slot's entries are read from the timer log in a thread, its messages from the commit log some at a
time. A slot is over once all of it is stored in the topics meant and its time is over; only then
`TimerBooks.read_ms` moves behind it. So a crash may deliver the last slots again, and loses
nothing. Rules: docs/formats/timers.md, "What becomes of a message" and "The order of things".
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketmq_tw.broker.assembly.host import Host
from rocketmq_tw.broker.timer.books import TimerBooks
from rocketmq_tw.broker.timer.slots import DueSlot, SlotMessages, topic_for
from rocketmq_tw.broker.writing.sink import Attempt, IMessageSink, attempt
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.message.names import TIMER_TOPIC
from rocketmq_tw.runtime.alarm import LONGEST_SLEEP, Alarm
from rocketmq_tw.runtime.retries import RETRY_USUAL
from rocketmq_tw.runtime.scope import Scope
from rocketmq_tw.runtime.waiters import Waiters
from rocketmq_tw.store.errors import DamagedStoreError
from rocketmq_tw.store.interface import IMessageStore
from rocketmq_tw.store.timer.unit import TimerUnit

#: Messages and bytes that are delivered in one turn, and recalls that are read in one.
_BATCH_MESSAGES = 256
_BATCH_BYTES = 4 * 1024 * 1024
#: Seconds until it looks again whether all that was sent before a slot was opened is in the wheel.
BARRIER_SLEEP = 0.05

#: Later than any slot.
_FOREVER_MS = 1 << 62

log = Logger()


class TimerDelivery:
    """Delivers from the slot at `read_ms` of `books` on, while `scope` lasts. `make_again` is to
    make the timer's files again; it is called between two slots."""

    def __init__(
        self,
        host: Host,
        store: IMessageStore,
        sink: IMessageSink,
        books: TimerBooks,
        scope: Scope,
        make_again: Callable[[], object],
    ) -> None:
        self._host = host
        self._logger = host.named(log)
        self._store = store
        self._sink = sink
        self._books = books
        self._scope = scope
        self._make_again = make_again
        #: Whether a slot was found that lacks entries.
        self._is_damaged = False
        self._messages = SlotMessages(store, books.files, books.counts)
        #: Whether the entries of the open slot are being read.
        self._is_reading = False
        #: Deliveries of which it is not known yet whether they are stored.
        self._unwritten = 0
        self._failed = False
        self._alarm = Alarm(host.reactor, self._wake, LONGEST_SLEEP)
        self._idle = Waiters[None]()
        scope.on_end(self._alarm.cancel)
        scope.on_end(books.added.add(self._added))

    def start(self) -> None:
        """Begins to deliver."""
        self._wake_at(0)

    def when_idle(self) -> Deferred[None]:
        """Fires once all that was put into the sink is stored, or refused, and no file is read."""
        return succeed(None) if self._is_idle else self._idle.wait()

    def caught_up(self) -> None:
        """Looks again at the open slot, since the wheel has all messages there are."""
        if self._books.slot is not None and not self._unwritten:
            self._wake_at(0)

    def found_damage(self) -> None:
        """Has the files made again before the next slot is opened."""
        self._is_damaged = True
        self._wake_at(0)

    @property
    def _is_idle(self) -> bool:
        return not self._is_reading and not self._unwritten

    def _added(self, unit: TimerUnit) -> None:
        slot, rules = self._books.slot, self._books.rules
        time_ms = rules.slot_of(unit.time_ms)
        if slot is None:
            self._wake_at(time_ms)
        elif slot.slot == time_ms and slot.is_read and not self._unwritten:
            self._wake_at(0 if unit.deletes else rules.due_ms(unit.time_ms))

    # When to look

    def _wake_at(self, time_ms: int) -> None:
        """Wakes at a time in ms since 1970, or before that."""
        self._wake_in((time_ms - self._host.now_ms()) / 1000)

    def _wake_in(self, seconds: float) -> None:
        if not self._scope.is_over:
            self._alarm.set_no_later(seconds)

    def _wake(self) -> None:
        if not self._is_idle:
            return
        try:
            if self._is_damaged and self._books.slot is None:
                self._make_again()
            elif self._host.store_config.timer_stop_dequeue:
                self._wake_in(LONGEST_SLEEP)
            elif self._books.slot is None:
                self._find_slot()
            else:
                self._go_on(self._books.slot)
        except Exception:
            self._logger.failure("delivering timed messages failed; trying again later")
            if not self._unwritten:
                self._wake_in(RETRY_USUAL)

    def _find_slot(self) -> None:
        """Opens the next slot that something waits for, where its time has come."""
        books, wheel = self._books, self._books.files.wheel
        current = books.rules.slot_of(self._host.now_ms())
        # Also further ahead than messages are sent for: the clock may have been set back.
        found = wheel.next_time(books.read_ms, _FOREVER_MS)
        if found is not None and found <= current:
            self._open(found)
            return
        books.read_ms = max(books.read_ms, current)
        if found is not None:
            self._wake_at(found)

    def _open(self, slot_ms: int) -> None:
        entries = self._books.files.wheel.get(slot_ms)
        assert entries is not None, "the wheel has just said so"
        slot = self._books.open_slot(slot_ms)
        self._is_reading = True
        reader = self._books.files.log.reader()
        read = self._host.in_thread(partial(slot.read, reader, entries.last))
        read.addCallbacks(self._opened, self._not_opened, (slot,), errbackArgs=(slot,))

    def _opened(self, _: Any, slot: DueSlot) -> None:
        self._is_reading = False
        slot.read_ended()
        self._report_idle()
        self._wake_at(0)

    def _not_opened(self, failure: Failure, slot: DueSlot) -> None:
        self._is_reading = False
        self._books.slot = None
        self._report_idle()
        if failure.check(DamagedStoreError):
            self._lacks_entries(slot, failure.getErrorMessage())
        else:
            self._logger.failure(
                "the timer log cannot be read: trying again later", failure=failure
            )
            self._wake_in(RETRY_USUAL)

    def _lacks_entries(self, slot: DueSlot, why: str) -> None:
        """Leaves a slot, all of which is delivered once the files are made again."""
        self._logger.warn(
            "not all can be found that waits for {time}: {why}", time=_utc(slot.slot), why=why
        )
        self._books.slot = None
        self.found_damage()

    # The open slot

    def _go_on(self, slot: DueSlot) -> None:
        if not slot.is_begun:
            # What was recalled in time must not be delivered.
            if not self._is_all_there(slot) and not self._host.store_config.timer_stop_enqueue:
                self._wake_in(BARRIER_SLEEP)
                return
            slot.is_begun = True
        if slot.recalls:
            lost = self._messages.recall(slot, _BATCH_MESSAGES)
            if lost is not None:
                self._lacks_entries(slot, f"the timer log has no entry at {lost} any more")
            self._wake_at(0)
            return
        now = self._host.now_ms()
        positions = slot.take_due(now, _BATCH_MESSAGES)
        if positions:
            self._deliver(slot, positions)
            if not self._unwritten:
                self._after_writes()
            return
        end, due = slot.slot + self._books.rules.precision_ms, slot.next_due
        if due is not None:
            self._wake_at(due)
        elif now < end:
            self._wake_at(end)
        else:
            self._close(slot)

    def _is_all_there(self, slot: DueSlot) -> bool:
        """Returns whether the wheel has all that was sent before the slot was opened."""
        if slot.queue_barrier is None:
            if self._store.dispatched_offset < slot.log_barrier:
                return False
            slot.queue_barrier = self._store.max_queue_offset(TIMER_TOPIC, 0)
        return self._books.queue_offset >= slot.queue_barrier

    def _close(self, slot: DueSlot) -> None:
        if slot.lost:
            self._logger.error(
                "{count} messages are lost that waited for {time}: the commit log has them no more,"
                " which is kept from {start} on",
                count=slot.lost,
                time=_utc(slot.slot),
                start=self._store.min_physical_offset,
            )
        self._books.close_slot(slot)
        self._wake_at(0)

    def _deliver(self, slot: DueSlot, positions: list[int]) -> None:
        reader = self._books.files.log.reader(ascending=True)
        size = 0
        for at, position in enumerate(positions):
            if self._failed or size >= _BATCH_BYTES:
                for left in positions[at:]:
                    slot.put_back(slot.slot, left)
                return
            try:
                found = reader.unit(position)
                unit = found and slot.as_due(found)
                message = unit and self._messages.due(slot, unit, self._host.now_ms())
            except (OSError, MemoryError) as error:
                # The entry waits on, with the entries behind it.
                self._not_delivered(slot, position, repr(error))
                continue
            except Exception:
                self._logger.failure(
                    "the timer log cannot be read at {position}", position=position
                )
                slot.lost += 1
                continue
            if unit is None:
                self._lacks_entries(slot, f"the timer log has no entry at {position} any more")
                return
            size += unit.size
            if message is not None:
                self._put(slot, position, unit, message)

    def _put(self, slot: DueSlot, position: int, unit: TimerUnit, message: StoredMessage) -> None:
        def ended(result: Attempt) -> None:
            if result.is_stored:
                self._books.count_delivered(topic_for(unit, message))
            elif result.is_hopeless:
                self._logger.error(
                    "a timed message for {topic} cannot be delivered and stays at {offset} of the"
                    " log: {why}",
                    topic=message.topic,
                    offset=unit.offset,
                    why=result.why,
                )
            else:
                self._not_delivered(slot, position, result.why)

        put = attempt(self._sink.put(message)).addCallback(ended)
        if not put.called:
            # One that is refused at once is looked after with the batch, by `_go_on`.
            self._unwritten += 1
            put.addBoth(self._written)

    def _written(self, _: object) -> None:
        self._unwritten -= 1
        if not self._unwritten:
            self._after_writes()

    def _not_delivered(self, slot: DueSlot, position: int, why: str) -> None:
        if not self._failed:
            self._logger.warn(
                "the timed message at {position} of the timer log is not delivered, trying again:"
                " {why}",
                position=position,
                why=why,
            )
        self._failed = True
        slot.put_back(slot.slot, position)

    def _after_writes(self) -> None:
        failed, self._failed = self._failed, False
        self._report_idle()
        self._wake_in(RETRY_USUAL if failed else 0)

    def _report_idle(self) -> None:
        if self._is_idle:
            self._idle.fire(None)


def _utc(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat()
