"""Delivers delayed messages from the queues of the schedule topic to the topics they are for.

Nothing polls: a level sleeps until its first message is due, or, when it has none, until one
arrives. A message is delivered by putting it into the broker's sink; the level's offset moves
behind it once that is written, and reaches the file only after what it stands for is durable. So a
crash may deliver again what was delivered since the file was written, and loses nothing. A message
that is refused is tried again beside those behind it, since another broker may refuse one of many;
the offset stays in front of it. Stock's `ScheduleMessageService`; the offsets are
`config/delayOffset.json` (docs/formats/config-files.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from rocketmq_tw.broker.delay.levels import DelayLevels, due_message, queue_of
from rocketmq_tw.broker.delay.offsets import DelayOffsets
from rocketmq_tw.broker.writing.sink import Attempt, IMessageSink, attempt
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.message.names import HALF_TOPIC, SCHEDULE_TOPIC
from rocketmq_tw.message.record import decode_records
from rocketmq_tw.runtime.alarm import LONGEST_SLEEP, Alarm
from rocketmq_tw.runtime.clock import is_ahead
from rocketmq_tw.runtime.retries import RETRY_USUAL
from rocketmq_tw.runtime.scope import Scope
from rocketmq_tw.runtime.waiters import Waiters
from rocketmq_tw.store.interface import Arrived, IMessageStore

#: Messages and bytes of one level that are delivered in one turn.
BATCH_MESSAGES = 256
BATCH_BYTES = 4 * 1024 * 1024
#: Batches of one level that are under way at most, while they have less than `BATCH_BYTES`: an
#: answer of another broker takes long where it is busy.
MOST_BATCHES = 4
#: Messages of one level that were refused, and by how many others may be ahead of the first of
#: them: where there are more, nothing new is delivered.
MOST_REFUSED, MOST_AHEAD = 16, 1_000

log = Logger()


class _Batch:
    """What was put in one turn; all in front of `begin` was put before."""

    __slots__ = ("begin", "size", "tries_again", "unfinished")

    def __init__(self, begin: int) -> None:
        self.begin = begin
        #: Bytes of the queue that it was read from.
        self.size = 0
        #: Whether it has some that were refused before: nothing is begun before they have ended.
        self.tries_again = False
        #: Puts that are not written yet, and one more while the queue is being read.
        self.unfinished = 1


class _Level:
    """One level: the next message to deliver, and when its queue is looked at."""

    __slots__ = ("alarm", "batches", "delay_ms", "level", "offset", "refused", "retry_at")

    def __init__(
        self, level: int, delay_ms: int, offset: int, clock: IReactorTime, wake: Callable[..., None]
    ) -> None:
        self.level = level
        self.delay_ms = delay_ms
        self.offset = offset
        self.alarm = Alarm(clock, partial(wake, self), LONGEST_SLEEP)
        #: Those that are under way.
        self.batches: list[_Batch] = []
        #: Messages in front of `offset` that were refused, and when they are tried again, by the
        #: clock.
        self.refused: set[int] = set()
        self.retry_at = 0.0

    @property
    def progress(self) -> int:
        """The first message that is not delivered, as far as is known."""
        return min([self.first_refused, *(batch.begin for batch in self.batches)])

    @property
    def first_refused(self) -> int:
        """The first message that was refused and is not under way, else the next to deliver."""
        return min(self.refused, default=self.offset)

    @property
    def has_room(self) -> bool:
        """Whether another batch may be begun."""
        size = sum(batch.size for batch in self.batches)
        if any(batch.tries_again for batch in self.batches):
            return False
        # What is under way may be refused.
        is_far = bool(self.batches) and self.offset - self.progress >= MOST_AHEAD
        return not is_far and len(self.batches) < MOST_BATCHES and size < BATCH_BYTES

    @property
    def is_held_up(self) -> bool:
        """Whether nothing new may be delivered before what was refused is."""
        is_far = self.offset - self.first_refused >= MOST_AHEAD
        return is_far or len(self.refused) >= MOST_REFUSED


class DelayDelivery:
    """Delivers while `scope` lasts, from `offsets` on and moving these; `now_ms` is the time of day
    in ms."""

    def __init__(
        self,
        store: IMessageStore,
        sink: IMessageSink,
        levels: DelayLevels,
        offsets: DelayOffsets,
        clock: IReactorTime,
        now_ms: Callable[[], int],
        scope: Scope,
    ) -> None:
        self._store = store
        self._sink = sink
        self._offsets = offsets
        self._clock = clock
        self._now_ms = now_ms
        self._scope = scope
        self._levels = {
            queue_of(level): _Level(
                level, levels.delay_ms(level), offsets.get(level), clock, self._wake
            )
            for level in levels.in_use(store)
        }
        self._idle = Waiters[None]()
        for each in self._levels.values():
            each.alarm.set(0)
        scope.on_end(self._pause)
        scope.on_end(store.on_arrival(self._arrived, SCHEDULE_TOPIC))

    def _pause(self) -> None:
        for level in self._levels.values():
            level.alarm.cancel()

    def finished(self) -> Deferred[None]:
        """Fires once all that was put is written and the offsets say so; for when the scope is
        over."""
        return succeed(None) if self._is_idle else self._idle.wait()

    def _arrived(self, runs: Sequence[Arrived]) -> None:
        """Wakes levels that had no message, in time for the one that they have now.

        For the schedule topic the code of `Arrived` is the time when the message is due, in ms.
        """
        for run in runs:
            level = self._levels.get(run.queue_id)
            if level is not None and not level.alarm.is_set and not level.batches:
                level.alarm.set((run.tags_codes[0] - self._now_ms()) / 1000)

    def _wake(self, level: _Level) -> None:
        if not level.has_room:
            # The end of a batch wakes it.
            return
        batch = _Batch(level.first_refused)
        level.batches.append(batch)
        sleep: float | None = RETRY_USUAL
        # Those that are tried again now may be refused again.
        is_held_up = level.is_held_up
        try:
            self._put_refused(level, batch)
            sleep = None if is_held_up else self._put_due(level, batch)
        except Exception:
            log.failure(
                "delivering delay level {number} failed; trying again later", number=level.level
            )
        if batch.unfinished > 1 and not self._scope.is_over:
            self._sleep(level, sleep)
        self._finish_one(level, batch, sleep)

    def _put_refused(self, level: _Level, batch: _Batch) -> None:
        if not level.refused or self._clock.seconds() < level.retry_at:
            return
        batch.tries_again = True
        for offset in sorted(level.refused):
            read = self._store.read_queue(
                SCHEDULE_TOPIC, queue_of(level.level), offset, 1, BATCH_BYTES
            )
            level.refused.discard(offset)
            for waiting in decode_records(read.data):
                if waiting.queue_offset == offset:
                    self._deliver(level, batch, waiting)

    def _put_due(self, level: _Level, batch: _Batch) -> float | None:
        """Puts what is due; returns the seconds until the next look, None where nothing waits."""
        read = self._store.read_queue(
            SCHEDULE_TOPIC, queue_of(level.level), level.offset, BATCH_MESSAGES, BATCH_BYTES
        )
        batch.size += len(read.data)
        for waiting in decode_records(read.data):
            seconds = self._seconds_until_due(level, waiting)
            if seconds is not None:
                return seconds
            self._deliver(level, batch, waiting)
            if waiting.queue_offset in level.refused:
                # At once, so the sink takes nothing now.
                level.refused.discard(waiting.queue_offset)
                return RETRY_USUAL
            level.offset = waiting.queue_offset + 1
        # What the read passed over is no more in the log, or never was there.
        if read.data or read.next_offset != level.offset:
            level.offset = read.next_offset
            return 0
        return None

    def _seconds_until_due(self, level: _Level, waiting: StoredMessage) -> float | None:
        """Returns None where it is due now, and where it was stored in a time to come: the clock
        was set back."""
        now = self._now_ms()
        wait_ms = waiting.store_timestamp + level.delay_ms - now
        if wait_ms <= 0 or is_ahead(waiting.store_timestamp, now):
            return None
        return wait_ms / 1000

    def _deliver(self, level: _Level, batch: _Batch, waiting: StoredMessage) -> None:
        message = due_message(waiting)
        if message is None or message.topic == HALF_TOPIC:
            self._pass_over(level, waiting, "it names no topic to go to")
            return

        def ended(result: Attempt) -> None:
            if result.is_hopeless:
                self._pass_over(level, waiting, result.why)
            elif not result.is_stored:
                self._refused(level, waiting.queue_offset, result.why)
            self._finish_one(level, batch, 0)

        batch.unfinished += 1
        attempt(self._sink.put(message)).addCallback(ended)

    def _finish_one(self, level: _Level, batch: _Batch, sleep: float | None) -> None:
        """Ends one delivery. Once all that were begun with it have ended, the level sleeps for
        `sleep` seconds; None: until a message arrives."""
        batch.unfinished -= 1
        if batch.unfinished:
            return
        level.batches.remove(batch)
        self._offsets.set(level.level, level.progress)
        if not self._scope.is_over:
            self._sleep(level, sleep)
        elif self._is_idle:
            self._idle.fire(None)

    def _sleep(self, level: _Level, seconds: float | None) -> None:
        if level.refused:
            retry = level.retry_at - self._clock.seconds()
            seconds = retry if seconds is None else min(seconds, retry)
        if seconds is not None:
            level.alarm.set(seconds)

    def _pass_over(self, level: _Level, waiting: StoredMessage, why: str) -> None:
        """Skips a message; the log line tells where it can still be read (mqadmin
        queryMsgByOffset)."""
        log.error(
            "message {offset} of delay level {number} cannot be delivered and stays in {topic},"
            " at {position} of the log: {why}",
            offset=waiting.queue_offset,
            number=level.level,
            topic=waiting.topic,
            position=waiting.physical_offset,
            why=why,
        )

    def _refused(self, level: _Level, offset: int, why: str) -> None:
        log.warn(
            "message {offset} of delay level {number} not delivered, trying again: {why}",
            offset=offset,
            number=level.level,
            why=why,
        )
        level.refused.add(offset)
        level.retry_at = self._clock.seconds() + RETRY_USUAL

    @property
    def _is_idle(self) -> bool:
        return not any(level.batches for level in self._levels.values())
