"""From the timer's topic into the wheel: each message gets an entry in the slot of its time
(docs/formats/timers.md).
"""

from __future__ import annotations

from collections.abc import Iterator

from twisted.logger import Logger

from rocketmq_tw.broker.timer.books import TimerBooks
from rocketmq_tw.broker.timer.rolled import RolledMessages
from rocketmq_tw.broker.timer.rules import takes_timed
from rocketmq_tw.message import properties as props
from rocketmq_tw.message.names import TIMER_TOPIC
from rocketmq_tw.message.properties import number, parse_properties
from rocketmq_tw.message.record import RecordHead, parse_head
from rocketmq_tw.message.tags import java_hash_code
from rocketmq_tw.store.interface import IMessageStore
from rocketmq_tw.store.queue_batches import next_batch
from rocketmq_tw.store.timer.unit import DEFAULT, DELETE, NOWHERE, ROLL, TimerUnit

log = Logger()


class TimerIntake:
    """Moves messages of the timer's topic into the wheel, in their order, from where `books` are.

    `entered`: the places in the commit log, from there on, of messages that have an entry already,
    with the slots of these.
    """

    def __init__(self, store: IMessageStore, books: TimerBooks, entered: dict[int, int]) -> None:
        self._store = store
        self._books = books
        self._entered = entered
        self._rolled = RolledMessages(store)

    @property
    def is_behind(self) -> bool:
        """Whether there are messages that may go into the wheel."""
        return self._books.queue_offset < self._books.queue_end

    def steps(self) -> Iterator[None]:
        """Goes on as far as there are messages, some in each step."""
        books = self._books
        while self.is_behind:
            before = books.queue_offset
            if not self._take_some():
                yield from self._rolled.find(books.queue_offset)
            elif books.queue_offset == before:
                return
            yield
        self._rolled = RolledMessages(self._store)

    def _take_some(self) -> bool:
        """Returns False where it ended at a message that may have rolled."""
        books = self._books
        read = next_batch(self._store, TIMER_TOPIC, 0, books.queue_offset)
        if read is None:
            return True
        end, at = books.queue_end, 0
        while at < len(read.data):
            head = parse_head(read.data, at, check_body=False)
            if head is None or head.queue_offset >= end:
                return True
            if not self._take(head):
                return False
            books.queue_offset = max(books.queue_offset, head.queue_offset + 1)
            at += head.size
        # What the read skipped is no more in the log, or never was there.
        books.queue_offset = max(books.queue_offset, min(read.next_offset, end))
        return True

    def _take(self, head: RecordHead) -> bool:
        """Lets a message wait where it is to; returns False where it must be known first whether it
        has rolled."""
        waits_for = self._entered.pop(head.physical_offset, None)
        if waits_for is not None:
            self._pass_over(head, waits_for)
            return True
        properties = parse_properties(head.properties)
        topic = properties.get(props.REAL_TOPIC)
        out = number(properties.get(props.TIMER_OUT_MS))
        if topic is None or out is None:
            log.error(
                "message {offset} of {topic}, at {position} of the log, lacks the time or the topic"
                " that it is for and is skipped",
                offset=head.queue_offset,
                topic=TIMER_TOPIC,
                position=head.physical_offset,
            )
            return True
        if not takes_timed(topic):
            return True
        if self._may_have_rolled(head, out):
            if not self._rolled.are_found(self._books.known_until):
                return False
            if self._rolled.take(properties):
                return True
        unit = self._unit(head, properties, topic, out)
        if unit is not None:
            self._books.add(topic, unit)
            if not unit.deletes:
                self._books.counts.delays.record(topic, (out - head.store_timestamp) / 1000)
        return True

    def _pass_over(self, head: RecordHead, slot: int) -> None:
        """Leaves a message where it waits already, be it behind its time, as it still is then."""
        if head.queue_offset >= self._books.known_until:
            out = number(parse_properties(head.properties).get(props.TIMER_OUT_MS))
            if out is not None and out < slot:
                self._books.note_late(head.queue_offset, out, slot)

    def _may_have_rolled(self, head: RecordHead, out: int) -> bool:
        """Returns whether a message was in the wheel before for a part of its time that is over."""
        books, rules = self._books, self._books.rules
        slot, rolls = rules.target(out, rules.slot_of(head.store_timestamp))
        return rolls and slot < books.read_ms <= out and head.queue_offset < books.known_until

    def _unit(
        self, head: RecordHead, properties: dict[str, str], topic: str, out: int
    ) -> TimerUnit | None:
        """Returns the entry that lets a message wait; None where its time is over and it was
        delivered."""
        rules, read_ms = self._books.rules, self._books.read_ms
        deletes = props.TIMER_DEL_UNIQKEY in properties
        if out < read_ms and head.queue_offset < self._books.known_until:
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
                self._books.note_late(head.queue_offset, out, slot)
        if rolls:
            time_ms = slot
        elif late:
            time_ms = slot + 1
        else:
            time_ms = rules.exact_time(props.deliver_ms(properties, head.store_timestamp), slot)
        return TimerUnit(
            NOWHERE,
            DEFAULT | (ROLL if rolls else 0) | (DELETE if deletes else 0),
            write,
            time_ms,
            head.physical_offset,
            head.size,
            java_hash_code(topic),
        )
