"""The slot that is being delivered: its entries in the order of their times, and the messages that
they become (docs/formats/timers.md).
"""

from __future__ import annotations

from heapq import heappop, heappush

from rocketmq_tw.broker.timer.counts import TimedCounts
from rocketmq_tw.broker.timer.rules import TimerRules, takes_timed
from rocketmq_tw.message import properties as props
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.message.names import TIMER_TOPIC
from rocketmq_tw.message.properties import join_properties, number, parse_properties
from rocketmq_tw.message.room import fits
from rocketmq_tw.store.interface import IMessageStore
from rocketmq_tw.store.timer.timer_files import TimerFiles
from rocketmq_tw.store.timer.timer_log import TimerLogReader
from rocketmq_tw.store.timer.unit import ROLL, TimerUnit
from rocketmq_tw.structs import msgspec

#: An entry is one number: milliseconds in its slot, and its position below that.
_POSITION_BITS = 48
_POSITION = (1 << _POSITION_BITS) - 1


class DueSlot:
    """The entries of the slot that is being delivered, with those that are added meanwhile.

    `log_barrier`: where the commit log ended when the slot was opened. All of it must be in the
    wheel before anything is delivered, so that what was recalled in time is not.
    """

    def __init__(self, slot: int, rules: TimerRules, log_barrier: int) -> None:
        self.slot = slot
        self._rules = rules
        self.log_barrier = log_barrier
        #: `log_barrier` as an offset of the timer's topic; None until the log is dispatched up to
        #: it.
        self.queue_barrier: int | None = None
        #: Whether the barrier was reached.
        self.is_begun = False
        #: Whether `read` is over, and `take_due` may be called.
        self.is_read = False
        self._added_meanwhile: list[tuple[int, TimerUnit]] = []
        self._waiting: list[int] = []
        #: Positions of entries that recall messages, and are to be read.
        self.recalls: list[int] = []
        #: How many entries have lost their message.
        self.lost = 0
        #: Topic+unique id of the messages that were recalled.
        self.recalled: set[str] = set()

    def read(self, reader: TimerLogReader, last: int) -> None:
        """Takes the entries of the log, from the slot's last one at `last` back to the first; in
        any thread. `read_ended` must follow. Raises `DamagedStoreError` where some cannot be
        found."""
        waiting, recalls, rules, slot = self._waiting, self.recalls, self._rules, self.slot
        for position, found in reader.chain(last):
            unit = self.as_due(found)
            if unit.is_void or rules.slot_of(unit.time_ms) != slot:
                continue
            if unit.deletes:
                recalls.append(position)
            else:
                due = rules.due_ms(unit.time_ms)
                waiting.append((due - slot) << _POSITION_BITS | position)
        # A sorted list is a heap.
        waiting.sort()

    def as_due(self, unit: TimerUnit) -> TimerUnit:
        """Returns an entry as it counts when the slot is due: one for a later round, which has the
        same place of the wheel, rolls."""
        if self._rules.slot_of(unit.time_ms) <= self.slot:
            return unit
        return unit._replace(magic=unit.magic | ROLL, time_ms=self.slot)

    def read_ended(self) -> None:
        """Takes the entries that were added during `read`."""
        self.is_read = True
        for position, unit in self._added_meanwhile:
            self.add(position, unit)
        self._added_meanwhile.clear()

    def add(self, position: int, unit: TimerUnit) -> None:
        """Takes an entry that was added to the log at `position`."""
        if not self.is_read:
            self._added_meanwhile.append((position, unit))
        elif unit.deletes:
            self.recalls.append(position)
        else:
            self.put_back(self._rules.due_ms(unit.time_ms), position)

    def put_back(self, due_ms: int, position: int) -> None:
        """Lets an entry wait (again) until `due_ms`."""
        heappush(self._waiting, (due_ms - self.slot) << _POSITION_BITS | position)

    @property
    def next_due(self) -> int | None:
        """When the next entry is due, in ms since 1970; None where all were taken."""
        if not self._waiting:
            return None
        return self.slot + (self._waiting[0] >> _POSITION_BITS)

    def take_due(self, now_ms: int, most: int) -> list[int]:
        """Takes at most `most` entries that are due, and returns their positions."""
        taken: list[int] = []
        limit = (now_ms - self.slot + 1) << _POSITION_BITS
        waiting = self._waiting
        while waiting and waiting[0] < limit and len(taken) < most:
            taken.append(heappop(waiting) & _POSITION)
        return taken


def as_delivered(
    waiting: StoredMessage, properties: dict[str, str], unit: TimerUnit, now_ms: int
) -> StoredMessage:
    """Returns the message that is stored for one that waited: in its own topic, or in the timer's
    once more where the entry `unit` rolls."""
    properties[props.TIMER_ENQUEUE_MS] = str(unit.write_ms)
    properties[props.TIMER_DEQUEUE_MS] = str(now_ms)
    topic, queue_id = properties[props.REAL_TOPIC], int(properties[props.REAL_QID])
    if unit.rolls:
        times = number(properties.get(props.TIMER_ROLL_TIMES)) or 0
        properties[props.TIMER_ROLL_TIMES] = str(times + 1)
        topic, queue_id = TIMER_TOPIC, 0
    return msgspec.structs.replace(
        waiting,
        topic=topic,
        queue_id=queue_id,
        # Without the times rather than never, where stock has left no room for them.
        properties=join_properties(properties) if fits(properties) else waiting.properties,
        parsed=None,
    )


def topic_for(unit: TimerUnit, message: StoredMessage) -> str:
    """Returns the topic that a message as `as_delivered` makes it is for in the end."""
    return parse_properties(message.properties)[props.REAL_TOPIC] if unit.rolls else message.topic


class SlotMessages:
    """Reads the messages that the entries of a slot stand for; counts those that wait no more."""

    def __init__(self, store: IMessageStore, files: TimerFiles, counts: TimedCounts) -> None:
        self._store = store
        self._log = files.log
        self._counts = counts

    def recall(self, slot: DueSlot, most: int) -> int | None:
        """Reads at most `most` of the slot's recalls, and notes which messages they are for.
        Returns the position of the first that is not in the timer log any more, or None. Those
        that cannot be read stay among the recalls; raises `OSError` for the first of them."""
        reader = self._log.reader()
        read = 0
        try:
            for position in slot.recalls[:most]:
                unit = reader.unit(position)
                if unit is None:
                    return position
                message = self._store.message_at(unit.offset)
                read += 1
                if message is not None and message.topic == TIMER_TOPIC:
                    self._note_recall(slot, parse_properties(message.properties))
        finally:
            slot.recalls = slot.recalls[read:]
        return None

    def _note_recall(self, slot: DueSlot, properties: dict[str, str]) -> None:
        key = properties.get(props.TIMER_DEL_UNIQKEY)
        if key is not None:
            slot.recalled.add(key)
            self._counts.add(properties.get(props.REAL_TOPIC, ""), 1)

    def due(self, slot: DueSlot, unit: TimerUnit, now_ms: int) -> StoredMessage | None:
        """Returns the message to be stored for an entry that is due; None where there is none: it
        was recalled, is lost, or is not the one that the entry was made for."""
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
                # Another message took the place of the entry's message.
                return None
            key = f"{topic}+{properties.get(props.UNIQ_KEY)}"
            if slot.recalled and key in slot.recalled:
                self._counts.add(topic, -1)
                return None
        self._counts.add(topic, -unit.weight)
        return as_delivered(waiting, properties, unit, now_ms)
