"""Delivers what is due: slot after slot, within a slot each message at its own millisecond.

A slot's entries are read from the timer log in a thread, its messages from the commit log some at
a time. A slot is over once all of it is written to the topics meant and its time is over; only then
`read_ms` moves behind it. So a crash may deliver the last slots again, and loses nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketmq_tw.broker.interfaces import Appended, IMessageStore
from rocketmq_tw.broker.timer.counts import TimedCounts
from rocketmq_tw.broker.timer.rules import TimerRules, takes_timed
from rocketmq_tw.broker.timer.slots import DueSlot, as_delivered
from rocketmq_tw.broker.writing.commit import STORED, Commit
from rocketmq_tw.config.store import MessageStoreConfig
from rocketmq_tw.message import properties as props
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.message.names import TIMER_TOPIC
from rocketmq_tw.message.properties import number, parse_properties
from rocketmq_tw.runtime.threads import InThread
from rocketmq_tw.store.timer.timer_files import TimerFiles
from rocketmq_tw.store.timer.unit import TimerUnit
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError

#: Messages and bytes that are delivered in one turn, and entries that take back.
BATCH_MESSAGES = 256
BATCH_BYTES = 4 * 1024 * 1024
#: Seconds until what failed is tried again.
RETRY_DELAY = 1.0
#: Seconds between two looks at most while something waits: the clock may be set.
LONGEST_SLEEP = 10.0
#: Seconds until it is asked again whether all that was sent before a slot waits in the wheel.
BARRIER_SLEEP = 0.05
#: By so much the clock may be set back, or that of another master be ahead, before time is gone
#: through once more; slots that are looked at in one step then.
AHEAD_MS = 10_000
STEP_SLOTS = 4_096
#: As many entries of a slot that is half delivered are put off when the broker stops.
MOST_PUT_OFF = 10_000

log = Logger()


class TimerDelivery:
    """Runs on the master only: `start` when the broker is one, `pause` when it is none any more."""

    def __init__(
        self,
        config: MessageStoreConfig,
        rules: TimerRules,
        files: TimerFiles,
        store: IMessageStore,
        commit: Commit,
        counts: TimedCounts,
        clock: IReactorTime,
        now_ms: Callable[[], int],
        in_thread: InThread,
        queue_offset: Callable[[], int],
        slot_over: Callable[[], None],
        put_off: Callable[[int], None],
    ) -> None:
        """`queue_offset` tells up to where the timer's topic is in the wheel; `slot_over` is called
        when one is, `put_off` with the place in the commit log of each message that waits for the
        next one instead."""
        self._config = config
        self._rules = rules
        self._files = files
        self._store = store
        self._commit = commit
        self._counts = counts
        self._clock = clock
        self._now_ms = now_ms
        self._in_thread = in_thread
        self._queue_offset = queue_offset
        self._slot_over = slot_over
        self._put_off = put_off
        #: All before it is delivered.
        self.read_ms = 0
        #: What waits, as the slots count it.
        self.waiting = 0
        self.delivered = 0
        self._running = False
        self._slot: DueSlot | None = None
        #: Entries that came while the slot is being read.
        self._meanwhile: list[tuple[int, TimerUnit]] | None = None
        #: Up to where the log must be in the wheel before anything of the slot is delivered, and
        #: the timer's topic; None until the log is dispatched up to there.
        self._barrier = 0
        self._queue_barrier: int | None = None
        self._began = False
        self._unwritten = 0
        self._failed = False
        self._timer: IDelayedCall | None = None
        self._idle: list[Deferred[None]] = []

    def start(self) -> None:
        """Goes on at `read_ms`."""
        self._running = True
        self._look_at(0)

    def pause(self) -> None:
        """Delivers nothing any more, at once."""
        self._running = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def stop(self) -> Deferred[None]:
        """As `pause`; fires once all that was appended is written and no file is read."""
        self.pause()
        return self._when_idle()

    def forget_slot(self) -> None:
        """What was read of a slot is read again; to be called while nothing is under way."""
        self._slot = None

    def go_to(self, read_ms: int) -> None:
        """All before `read_ms` is delivered, by whomever; to be called while nothing is under way.
        What was read of the slot that is next then is kept."""
        self.read_ms = read_ms
        if self._slot is not None and self._slot.slot != read_ms:
            self._slot = None

    def now_at(self) -> int:
        """Before which slot nothing is to be delivered any more, by the clock too."""
        if self._running and self._slot is None and self._meanwhile is None:
            current = self._rules.slot_of(self._now_ms())
            if (
                current > self.read_ms
                and self._files.wheel.next_time(self.read_ms, current) is None
            ):
                self.read_ms = current
        return self.read_ms

    def added(self, position: int, unit: TimerUnit) -> None:
        """Another message waits."""
        self.waiting += unit.weight
        slot = self._rules.slot_of(unit.time_ms)
        if self._slot is None or self._slot.slot != slot:
            if self._running and self._slot is None:
                self._look_at(slot)
            return
        if self._meanwhile is not None:
            self._meanwhile.append((position, unit))
            return
        self._slot.add(position, unit)
        if self._running and not self._unwritten:
            self._look_at(self._rules.due_ms(unit.time_ms) if not unit.deletes else 0)

    def caught_up(self) -> None:
        """All there is waits in the wheel."""
        if self._running and self._slot is not None and not self._unwritten:
            self._look_at(0)

    # When to look

    def _look_at(self, time_ms: int) -> None:
        """Looks at that time, or when it would look before."""
        seconds = min(max((time_ms - self._now_ms()) / 1000, 0), LONGEST_SLEEP)
        if self._timer is not None:
            if self._timer.getTime() <= self._clock.seconds() + seconds:
                return
            self._timer.cancel()
        self._timer = self._clock.callLater(seconds, self._look)

    def _look(self) -> None:
        self._timer = None
        if not self._running or self._meanwhile is not None or self._unwritten:
            return
        try:
            if self._config.timer_stop_dequeue:
                self._sleep(LONGEST_SLEEP)
            elif self._slot is None:
                self._find()
            else:
                self._go_on(self._slot)
        except Exception:
            log.failure("delivering timed messages: trying again later")
            if not self._unwritten:
                self._sleep(RETRY_DELAY)

    def _sleep(self, seconds: float) -> None:
        if self._running and self._timer is None:
            self._timer = self._clock.callLater(seconds, self._look)

    def _find(self) -> None:
        """The next slot that something waits for; opens it where its time has come."""
        wheel, current = self._files.wheel, self._rules.slot_of(self._now_ms())
        found = wheel.next_time(self.read_ms, self.read_ms + wheel.round_ms)
        if found is not None and found <= current:
            self.read_ms = found
            self._open(found)
            return
        self.read_ms = max(self.read_ms, current)
        if found is not None:
            self._look_at(found)

    def _open(self, slot_ms: int) -> None:
        entries = self._files.wheel.get(slot_ms)
        assert entries is not None, "the wheel has just said so"
        slot = self._slot = DueSlot(slot_ms, self._rules)
        self._meanwhile = []
        self._began = False
        self._barrier = self._store.end_offset
        self._queue_barrier = None
        reader = self._files.log.reader()
        read = self._in_thread(partial(slot.read, reader, entries.last))
        read.addCallbacks(self._opened, self._not_opened)

    def _opened(self, _: Any) -> None:
        meanwhile, self._meanwhile = self._meanwhile or [], None
        slot = self._slot
        if slot is not None:
            for position, unit in meanwhile:
                slot.add(position, unit)
        self._report_idle()
        if self._running:
            self._look_at(0)

    def _not_opened(self, failure: Failure) -> None:
        log.failure("the timer log cannot be read: trying again later", failure=failure)
        self._meanwhile = self._slot = None
        self._report_idle()
        self._sleep(RETRY_DELAY)

    # The slot that is open

    def _go_on(self, slot: DueSlot) -> None:
        if not self._began:
            # Whoever took a message back in time must have it taken back.
            if not self._is_all_there() and not self._config.timer_stop_enqueue:
                self._sleep(BARRIER_SLEEP)
                return
            self._began = True
        if slot.deletes:
            self._take_back(slot)
            self._look_at(0)
            return
        now = self._now_ms()
        positions = slot.take_due(now, BATCH_MESSAGES)
        if positions:
            self._deliver(slot, positions)
            if not self._unwritten:
                self._after_writes()
            return
        end = slot.slot + self._rules.precision_ms
        due = slot.next_due
        if due is not None:
            self._look_at(due)
        elif now < end:
            self._look_at(end)
        else:
            self._close(slot)

    def _is_all_there(self) -> bool:
        """Whether the wheel has all that was sent before the slot was opened."""
        if self._queue_barrier is None:
            if self._store.dispatched_offset < self._barrier:
                return False
            self._queue_barrier = self._store.max_queue_offset(TIMER_TOPIC, 0)
        return self._queue_offset() >= self._queue_barrier

    def _close(self, slot: DueSlot) -> None:
        if slot.lost:
            log.error(
                "{count} messages are lost that waited for {time}: the commit log has them no more,"
                " which is kept from {start} on",
                count=slot.lost,
                time=datetime.fromtimestamp(slot.slot / 1000, UTC).isoformat(),
                start=self._store.min_physical_offset,
            )
        self.waiting -= self._files.number(slot.slot)
        self.read_ms = slot.slot + self._rules.precision_ms
        self._slot = None
        self._slot_over()
        self._look_at(0)

    def _take_back(self, slot: DueSlot) -> None:
        positions, slot.deletes = slot.deletes[:BATCH_MESSAGES], slot.deletes[BATCH_MESSAGES:]
        reader = self._files.log.reader()
        for position in positions:
            unit = reader.unit(position)
            message = None if unit is None else self._store.message_at(unit.offset)
            if message is None or message.topic != TIMER_TOPIC:
                continue
            properties = parse_properties(message.properties)
            key = properties.get(props.TIMER_DEL_UNIQKEY)
            if key is not None:
                slot.taken_back.add(key)
                self._counts.add(properties.get(props.REAL_TOPIC, ""), 1)

    def _deliver(self, slot: DueSlot, positions: list[int]) -> None:
        reader = self._files.log.reader(ascending=True)
        size = 0
        for at, position in enumerate(positions):
            if self._failed or size >= BATCH_BYTES:
                for left in positions[at:]:
                    self._put_back(slot, left)
                return
            unit = reader.unit(position)
            if unit is None:
                slot.lost += 1
                continue
            size += unit.size
            message = self._due_message(slot, unit)
            if message is not None:
                self._append(slot, position, unit, message)

    def _put_back(self, slot: DueSlot, position: int) -> None:
        slot.put_back(slot.slot, position)

    def _due_message(self, slot: DueSlot, unit: TimerUnit) -> StoredMessage | None:
        """What is to be appended for an entry; None where there is nothing."""
        waiting = self._store.message_at(unit.offset)
        if waiting is None or waiting.topic != TIMER_TOPIC:
            slot.lost += 1
            return None
        properties = parse_properties(waiting.properties)
        topic, queue_id = properties.get(props.REAL_TOPIC), number(properties.get(props.REAL_QID))
        out = number(properties.get(props.TIMER_OUT_MS))
        if topic is None or queue_id is None or out is None or not takes_timed(topic):
            return None
        if not unit.rolls:
            if out > slot.slot or props.TIMER_DEL_UNIQKEY in properties:
                # Another message took the place of the one that the entry was for.
                return None
            key = f"{topic}+{properties.get(props.UNIQ_KEY)}"
            if slot.taken_back and key in slot.taken_back:
                self._counts.add(topic, -1)
                return None
        self._counts.add(topic, -unit.weight)
        return as_delivered(waiting, properties, unit, self._now_ms())

    def _append(
        self, slot: DueSlot, position: int, unit: TimerUnit, message: StoredMessage
    ) -> None:
        def done(code: ResponseCode, _: Appended) -> None:
            if code in STORED:
                self.delivered += 1
            else:
                self._not_delivered(slot, position, code.name)
            self._unwritten -= 1
            if not self._unwritten:
                self._after_writes()

        try:
            self._commit.append(message, done, wait=False)
            self._unwritten += 1
        except RequestError as error:
            if error.code == ResponseCode.MESSAGE_ILLEGAL:
                # It will never be taken, and others must not wait for ever.
                log.error(
                    "a timed message for {topic} cannot be delivered and stays at {offset} of the"
                    " log: {why}",
                    topic=message.topic,
                    offset=unit.offset,
                    why=error.remark,
                )
            else:
                self._not_delivered(slot, position, error.remark)

    def _not_delivered(self, slot: DueSlot, position: int, why: str) -> None:
        if not self._failed:
            log.warn("a timed message is not delivered, trying again: {why}", why=why)
        self._failed = True
        self._put_back(slot, position)

    def _after_writes(self) -> None:
        failed, self._failed = self._failed, False
        self._report_idle()
        if not self._running:
            return
        if failed:
            self._sleep(RETRY_DELAY)
        else:
            self._look_at(0)

    # The end

    def put_off(self) -> None:
        """Lets what is left of a slot that is delivered in part wait for the next slot instead, so
        that the next start, or another broker, delivers nothing of it again. Nothing is under
        way."""
        slot = self._slot
        if slot is None or len(slot) + len(slot.all_deletes) > MOST_PUT_OFF:
            return
        end = slot.slot + self._rules.precision_ms
        reader = self._files.log.reader(ascending=True)
        units = [reader.unit(position) for position in sorted(slot.positions())]
        taken_back = [reader.unit(position) for position in sorted(slot.all_deletes)]
        left = [unit for unit in units if unit is not None]
        for unit in taken_back if left else []:
            if unit is not None:
                left.append(unit)
        for unit in left:
            time_ms = end if unit.rolls else end + 1
            self._files.add(unit._replace(write_ms=end, time_ms=time_ms))
        self.read_ms = end
        self._slot = None
        self._slot_over()
        for unit in left:
            self._put_off(unit.offset)

    @property
    def is_ahead(self) -> bool:
        """Whether the clock was set back, behind what is delivered."""
        return self.read_ms > self._now_ms() + AHEAD_MS

    def go_back(self) -> Iterator[None]:
        """Goes on at the time it is now, in steps. What was delivered before its time by that is
        taken out of its slots; all of the wheel's time to come is in memory, nothing under way."""
        wheel, current = self._files.wheel, self._rules.slot_of(self._now_ms())
        while self.read_ms > current:
            start = at = max(current, self.read_ms - STEP_SLOTS * self._rules.precision_ms)
            while (found := wheel.next_time(at, self.read_ms)) is not None:
                wheel.clear(found)
                at = found + self._rules.precision_ms
            self.read_ms = start
            yield

    def _when_idle(self) -> Deferred[None]:
        if self._meanwhile is None and not self._unwritten:
            return succeed(None)
        idle: Deferred[None] = Deferred()
        self._idle.append(idle)
        return idle

    def _report_idle(self) -> None:
        if self._meanwhile is None and not self._unwritten:
            idle, self._idle = self._idle, []
            for waiter in idle:
                waiter.callback(None)
