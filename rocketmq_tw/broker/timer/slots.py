"""What waits for one slot, brought into the order of its times, and what it becomes."""

from __future__ import annotations

from heapq import heappop, heappush

import msgspec

from rocketmq_tw.broker.timer.rules import TimerRules
from rocketmq_tw.message import properties as props
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.message.names import TIMER_TOPIC
from rocketmq_tw.message.properties import join_properties, number
from rocketmq_tw.store.timer.timer_log import TimerLogReader
from rocketmq_tw.store.timer.unit import TimerUnit

#: An entry is one number: milliseconds in its slot, and its position below that.
_POSITION_BITS = 48
_POSITION = (1 << _POSITION_BITS) - 1


class DueSlot:
    """The entries of the slot that is delivered now. One that comes late is told by `add`."""

    def __init__(self, slot: int, rules: TimerRules) -> None:
        self.slot = slot
        self._rules = rules
        self._waiting: list[int] = []
        #: Entries that take messages back: those to read, and all of them.
        self.deletes: list[int] = []
        self.all_deletes: list[int] = []
        #: Entries whose messages are gone.
        self.lost = 0
        #: Topic+unique id of the messages that were taken back.
        self.taken_back: set[str] = set()

    def read(self, reader: TimerLogReader, last: int) -> None:
        """Fills it with what the log has, from the slot's last entry on to the first; in any thread
        while nothing else is done with it."""
        waiting, deletes, rules, slot = self._waiting, self.deletes, self._rules, self.slot
        for position, unit in reader.chain(last):
            if unit.is_void or rules.slot_of(unit.time_ms) != slot:
                continue
            if unit.deletes:
                deletes.append(position)
            else:
                due = rules.due_ms(unit.time_ms)
                waiting.append((due - slot) << _POSITION_BITS | position)
        # A sorted list is a heap.
        waiting.sort()
        self.all_deletes = list(deletes)

    def add(self, position: int, unit: TimerUnit) -> None:
        """Another entry."""
        if unit.deletes:
            self.deletes.append(position)
            self.all_deletes.append(position)
        else:
            self.put_back(self._rules.due_ms(unit.time_ms), position)

    def put_back(self, due_ms: int, position: int) -> None:
        """An entry waits (again)."""
        heappush(self._waiting, (due_ms - self.slot) << _POSITION_BITS | position)

    @property
    def next_due(self) -> int | None:
        """When the next entry is due; None where all were taken."""
        if not self._waiting:
            return None
        return self.slot + (self._waiting[0] >> _POSITION_BITS)

    def take_due(self, now_ms: int, most: int) -> list[int]:
        """Takes the positions of at most so many entries that are due."""
        taken: list[int] = []
        limit = (now_ms - self.slot + 1) << _POSITION_BITS
        waiting = self._waiting
        while waiting and waiting[0] < limit and len(taken) < most:
            taken.append(heappop(waiting) & _POSITION)
        return taken

    def __len__(self) -> int:
        return len(self._waiting)

    def positions(self) -> list[int]:
        """Of all that still waits, the first due first."""
        return [key & _POSITION for key in sorted(self._waiting)]


def as_delivered(
    waiting: StoredMessage, properties: dict[str, str], unit: TimerUnit, now_ms: int
) -> StoredMessage:
    """What is appended for a message that waited: into its own topic, or the timer's once more."""
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
        properties=join_properties(properties),
        parsed=None,
    )
