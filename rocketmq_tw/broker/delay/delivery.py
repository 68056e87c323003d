"""Delivers what is due: from the queues of the schedule topic into the topics meant.

Nothing polls: a level sleeps until its first message is due, or, when it has none, until one
arrives. A message is delivered by appending it to its real topic; the level's offset moves behind
it once that is written, and reaches the file only after what it stands for is durable. So a crash
may deliver again what was delivered since the file was written, and loses nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any

from twisted.internet.defer import Deferred, DeferredLock, inlineCallbacks, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from rocketmq_tw.broker.delay.levels import DelayLevels, due_message, queue_of
from rocketmq_tw.broker.delay.offsets import DelayOffsets
from rocketmq_tw.broker.interfaces import (
    Appended,
    Arrived,
    IMessageStore,
)
from rocketmq_tw.broker.tables.write_behind import write_progress
from rocketmq_tw.broker.writing.commit import STORED, Commit
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.message.names import HALF_TOPIC, SCHEDULE_TOPIC
from rocketmq_tw.message.record import decode_records
from rocketmq_tw.runtime.threads import InThread
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError

#: Messages and bytes of one level that are delivered in one turn.
BATCH_MESSAGES = 256
BATCH_BYTES = 4 * 1024 * 1024
#: Seconds until a delivery that failed is tried again.
RETRY_DELAY = 1.0
#: Seconds that a level sleeps at most, so that a clock that is set does not hold messages back.
LONGEST_SLEEP = 10.0

log = Logger()


class _Level:
    """One level: where it is, and what it waits for."""

    __slots__ = ("delay_ms", "failed_at", "level", "offset", "timer", "unwritten")

    def __init__(self, level: int, delay_ms: int) -> None:
        self.level = level
        self.delay_ms = delay_ms
        self.offset = 0
        self.timer: IDelayedCall | None = None
        #: Deliveries that are appended and not written yet.
        self.unwritten = 0
        #: The first message whose delivery failed.
        self.failed_at: int | None = None


class DelayDelivery:
    """Runs on the master only: `start` when the broker becomes one, `stop` when it is none any
    more."""

    def __init__(
        self,
        store: IMessageStore,
        levels: DelayLevels,
        offsets: DelayOffsets,
        commit: Commit,
        clock: IReactorTime,
        now_ms: Callable[[], int],
        in_thread: InThread,
    ) -> None:
        self._store = store
        self._offsets = offsets
        self._commit = commit
        self._clock = clock
        self._now_ms = now_ms
        self._in_thread = in_thread
        self._levels = {
            queue_of(level): _Level(level, levels.delay_ms(level))
            for level in range(1, levels.max_level + 1)
        }
        self._running = False
        self._idle: list[Deferred[None]] = []
        self._writing = DeferredLock()

    def start(self) -> None:
        """Goes on where the offsets are; the store is loaded by now."""
        self._running = True
        for level in self._levels.values():
            level.offset = self._offsets.get(level.level)
            self._sleep(level, 0)

    def pause(self) -> None:
        """Delivers nothing any more, at once."""
        self._running = False
        for level in self._levels.values():
            if level.timer is not None:
                level.timer.cancel()
                level.timer = None

    @inlineCallbacks
    def stop(self) -> Generator[Deferred[Any], Any, None]:
        """Delivers nothing any more; fires once the offsets of all deliveries are in the file."""
        self.pause()
        yield self._when_idle()
        yield self.persist()

    def arrived(self, runs: Sequence[Arrived]) -> None:
        """The store's arrival callback: a level without messages has one now.

        For the schedule topic the code is the time when the message is due, in ms.
        """
        if not self._running:
            return
        for run in runs:
            if run.topic == SCHEDULE_TOPIC:
                level = self._levels.get(run.queue_id)
                if level is not None and level.timer is None and not level.unwritten:
                    self._sleep(level, (run.tags_codes[0] - self._now_ms()) / 1000)

    def persist(self) -> Deferred[None]:
        """Writes the offsets, after what they stand for is durable."""
        return self._writing.run(self._persist)

    @inlineCallbacks
    def _persist(self) -> Generator[Deferred[Any], Any, None]:
        try:
            yield write_progress(self._offsets, self._commit, self._in_thread)
        except Exception:
            log.failure("the offsets of delayed messages are not saved; trying again later")

    def _sleep(self, level: _Level, seconds: float) -> None:
        level.timer = self._clock.callLater(min(max(seconds, 0), LONGEST_SLEEP), self._wake, level)

    def _wake(self, level: _Level) -> None:
        level.timer = None
        try:
            self._deliver_due(level)
        except Exception:
            log.failure("delay level {number}: trying again later", number=level.level)
            if not level.unwritten:
                self._sleep(level, RETRY_DELAY)

    def _deliver_due(self, level: _Level) -> None:
        """Delivers what is due; then waits for the writes, for the next message's time, or for a
        message."""
        read = self._store.read_queue(
            SCHEDULE_TOPIC, queue_of(level.level), level.offset, BATCH_MESSAGES, BATCH_BYTES
        )
        sleep: float | None = None
        for waiting in decode_records(read.data):
            sleep = self._seconds_until_due(level, waiting)
            if sleep is not None:
                break
            self._deliver(level, waiting)
            if level.failed_at is not None:
                break
            level.offset = waiting.queue_offset + 1
        else:
            # What the read passed over is no more in the log, or never was there.
            if read.data or read.next_offset != level.offset:
                level.offset = read.next_offset
                sleep = 0
        if level.unwritten:
            return
        self._go_on(level, sleep)

    def _go_on(self, level: _Level, sleep: float | None) -> None:
        """All deliveries are written, or failed."""
        if level.failed_at is not None:
            level.offset, level.failed_at = level.failed_at, None
            sleep = RETRY_DELAY
        self._offsets.set(level.level, level.offset)
        if not self._running:
            self._report_idle()
        elif sleep is not None:
            self._sleep(level, sleep)

    def _seconds_until_due(self, level: _Level, waiting: StoredMessage) -> float | None:
        """None where it is due now. A time further away than the level's delay says that the
        clock was set back: then it is due too."""
        wait_ms = waiting.store_timestamp + level.delay_ms - self._now_ms()
        if 0 < wait_ms <= level.delay_ms:
            return wait_ms / 1000
        return None

    def _deliver(self, level: _Level, waiting: StoredMessage) -> None:
        message = due_message(waiting)
        if message is None or message.topic == HALF_TOPIC:
            self._passed_over(level, waiting, "it names no topic to go to")
            return

        def done(code: ResponseCode, appended: Appended) -> None:
            if code not in STORED:
                self._failed(level, waiting.queue_offset, code.name)
            level.unwritten -= 1
            if not level.unwritten:
                self._go_on(level, 0)

        try:
            self._commit.append(message, done, wait=False)
            level.unwritten += 1
        except RequestError as error:
            if error.code == ResponseCode.MESSAGE_ILLEGAL:
                # It will never be taken, and those behind it must not wait for ever.
                self._passed_over(level, waiting, error.remark)
            else:
                self._failed(level, waiting.queue_offset, error.remark)

    def _passed_over(self, level: _Level, waiting: StoredMessage, why: str) -> None:
        """The line tells where the message can still be read (mqadmin queryMsgByOffset)."""
        log.error(
            "message {offset} of delay level {number} cannot be delivered and stays in {topic},"
            " at {position} of the log: {why}",
            offset=waiting.queue_offset,
            number=level.level,
            topic=waiting.topic,
            position=waiting.physical_offset,
            why=why,
        )

    def _failed(self, level: _Level, offset: int, why: str) -> None:
        log.warn(
            "message {offset} of delay level {number} not delivered, trying again: {why}",
            offset=offset,
            number=level.level,
            why=why,
        )
        if level.failed_at is None or offset < level.failed_at:
            level.failed_at = offset

    def _when_idle(self) -> Deferred[None]:
        if not any(level.unwritten for level in self._levels.values()):
            return succeed(None)
        idle: Deferred[None] = Deferred()
        self._idle.append(idle)
        return idle

    def _report_idle(self) -> None:
        if not any(level.unwritten for level in self._levels.values()):
            idle, self._idle = self._idle, []
            for waiter in idle:
                waiter.callback(None)
