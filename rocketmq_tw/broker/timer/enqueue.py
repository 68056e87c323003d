"""Lets the messages of the timer's topic wait in the wheel, in their order."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from twisted.logger import Logger

from rocketmq_tw.broker.interfaces import IMessageStore
from rocketmq_tw.broker.timer.counts import TimedCounts
from rocketmq_tw.broker.timer.rules import TimerRules, deliver_ms, takes_timed
from rocketmq_tw.message import properties as props
from rocketmq_tw.message.names import TIMER_TOPIC
from rocketmq_tw.message.properties import number, parse_properties
from rocketmq_tw.message.record import RecordHead, parse_head
from rocketmq_tw.message.tags import java_hash_code
from rocketmq_tw.store.timer.timer_files import TimerFiles
from rocketmq_tw.store.timer.unit import DEFAULT, DELETE, NOWHERE, ROLL, TimerUnit

#: Read at once.
BATCH_MESSAGES = 256
BATCH_BYTES = 1 << 20

log = Logger()


class TimerQueue:
    """How far the timer's topic is in the wheel. What a slot is missing whose messages are all
    delivered comes into the first one that is not; then `told` stays in front of it until that slot
    is over (`slot_over`)."""

    def __init__(
        self,
        store: IMessageStore,
        files: TimerFiles,
        rules: TimerRules,
        counts: TimedCounts,
        read_ms: Callable[[], int],
        added: Callable[[int, TimerUnit], None],
    ) -> None:
        """`read_ms` tells before which slot all is delivered; `added` is called with each entry and
        its position."""
        self._store = store
        self._files = files
        self._rules = rules
        self._counts = counts
        self._read_ms = read_ms
        self._added = added
        #: The next message to look at.
        self.offset = 0
        #: What comes before it was in the wheel of whoever told `read_ms`: it was delivered if its
        #: slot is before that.
        self.known_until = 0
        #: A slave's: no further than its master. None: as far as there are messages.
        self.limit: int | None = None
        #: Places in the commit log, from `offset` on, of messages that wait already.
        self.waiting: set[int] = set()
        self._late_from: int | None = None
        self.enqueued = 0

    @property
    def told(self) -> int:
        """All messages before it wait in the slot of their time, or are delivered."""
        return self.offset if self._late_from is None else min(self.offset, self._late_from)

    @property
    def end(self) -> int:
        """Up to which message it may go now."""
        end = self._store.max_queue_offset(TIMER_TOPIC, 0)
        return end if self.limit is None else min(end, self.limit)

    @property
    def is_behind(self) -> bool:
        return self.offset < self.end

    def slot_over(self) -> None:
        """What came late is delivered."""
        self._late_from = None

    def late_from(self, offset: int) -> None:
        """The message at `offset` of the timer's topic waits for another slot than its own."""
        if self._late_from is None or offset < self._late_from:
            self._late_from = offset

    def steps(self) -> Iterator[None]:
        """Goes on as far as there are messages; a step for some of them."""
        while self.is_behind:
            before = self.offset
            self._take_some()
            if self.offset == before:
                return
            yield

    def _take_some(self) -> None:
        self.offset = max(self.offset, self._store.min_queue_offset(TIMER_TOPIC, 0))
        read = self._store.read_queue(TIMER_TOPIC, 0, self.offset, BATCH_MESSAGES, BATCH_BYTES)
        end, at = self.end, 0
        while at < len(read.data):
            head = parse_head(read.data, at, check_body=False)
            if head is None or head.queue_offset >= end:
                return
            self._take(head)
            self.offset = max(self.offset, head.queue_offset + 1)
            at += head.size
        # What the read passed over is no more in the log, or never was there.
        self.offset = max(self.offset, min(read.next_offset, end))

    def _take(self, head: RecordHead) -> None:
        if head.physical_offset in self.waiting:
            self.waiting.discard(head.physical_offset)
            return
        properties = parse_properties(head.properties)
        topic = properties.get(props.REAL_TOPIC)
        out = number(properties.get(props.TIMER_OUT_MS))
        if topic is None or out is None:
            log.error(
                "message {offset} of {topic} says for which time or topic it waits no more and is"
                " passed over, at {position} of the log",
                offset=head.queue_offset,
                topic=TIMER_TOPIC,
                position=head.physical_offset,
            )
            return
        if not takes_timed(topic):
            return
        unit = self._unit(head, properties, topic, out)
        if unit is not None:
            position = self._files.add(unit)
            self.enqueued += 1
            self._counts.add(topic, unit.weight)
            self._added(position, unit)

    def _unit(
        self, head: RecordHead, properties: dict[str, str], topic: str, out: int
    ) -> TimerUnit | None:
        """The entry that lets it wait; None where its time is over and nothing is left to do."""
        rules, read_ms = self._rules, self._read_ms()
        deletes = props.TIMER_DEL_UNIQKEY in properties
        if out < read_ms and head.queue_offset < self.known_until:
            return None
        write = rules.slot_of(head.store_timestamp)
        slot, rolls = rules.target(out, write)
        late = False
        if slot < read_ms:
            if deletes and not rolls:
                return None
            write = read_ms
            slot, rolls = rules.target(out, write)
            late = slot < write
            if late:
                slot = write
                self.late_from(head.queue_offset)
        if rolls:
            time_ms = slot
        elif late:
            time_ms = slot + 1
        else:
            time_ms = rules.exact_time(deliver_ms(properties, head.store_timestamp), slot)
        return TimerUnit(
            NOWHERE,
            DEFAULT | (ROLL if rolls else 0) | (DELETE if deletes else 0),
            write,
            time_ms,
            head.physical_offset,
            head.size,
            java_hash_code(topic),
        )
