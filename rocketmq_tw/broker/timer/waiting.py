"""Finding out what waits: at a start, when the role changes, and once the log is cut."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial

from rocketmq_tw.broker.interfaces import IMessageStore
from rocketmq_tw.broker.timer.progress import TimerCheckpoint
from rocketmq_tw.broker.timer.rules import TimerRules, number
from rocketmq_tw.message import properties as props
from rocketmq_tw.message.names import TIMER_TOPIC
from rocketmq_tw.message.properties import parse_properties
from rocketmq_tw.message.record import RecordHead
from rocketmq_tw.store.timer.timer_files import TimerFiles

#: Records that are looked at in one step.
SLICE = 500
#: Stock's mark of a message that it delivered without letting it wait.
_NEVER = (1 << 63) - 1


def start_of_time(
    checkpoint: TimerCheckpoint | None, store: IMessageStore, rules: TimerRules, now_ms: int
) -> int:
    """Before which slot all is taken to be delivered at a start: where the checkpoint is, but not
    further back than the wheel reaches; without one, now if there never was a timed message."""
    current = rules.slot_of(now_ms)
    if checkpoint is None and not store.max_queue_offset(TIMER_TOPIC, 0):
        return current
    read_ms = 0 if checkpoint is None else rules.slot_of(checkpoint.read_ms)
    return max(read_ms, current - rules.furthest_ms)


def _count(files: TimerFiles, lasts: list[int], names: dict[int, str]) -> Counter[str]:
    reader = files.log.reader()
    found: Counter[str] = Counter()
    for last in lasts:
        for _, unit in reader.chain(last):
            name = names.get(unit.topic_hash)
            if name is not None:
                found[name] += unit.weight
    return found


def counting(files: TimerFiles, since_ms: int, names: dict[int, str]) -> partial[Counter[str]]:
    """What counts, in any thread, how many messages of each topic wait now for a slot from
    `since_ms` on; `names` has topics by their hash code."""
    lasts = [slot.last for _, slot in files.wheel.waiting(since_ms)]
    return partial(_count, files, lasts, names)


class Delivered:
    """Which slots were delivered by what stands behind a place of the log."""

    def __init__(self, store: IMessageStore, rules: TimerRules) -> None:
        self._store = store
        self._rules = rules
        #: The first of those slots; None where there is none.
        self.first: int | None = None
        #: Unique ids of messages that stock delivered without letting them wait.
        self._at_once: set[str] = set()
        #: The first of those messages in the timer's topic.
        self.first_at_once: int | None = None

    def look(self, position: int) -> Iterator[None]:
        """Goes through the log from `position` on, in steps."""
        for count, head in enumerate(self._store.records(position), 1):
            if b"TIMER_DEQUEUE_MS" in head.properties:
                self._see(head)
            if count % SLICE == 0:
                yield
        yield from self._find(position)

    def _see(self, head: RecordHead) -> None:
        properties = parse_properties(head.properties)
        out = number(properties.get(props.TIMER_OUT_MS))
        write = number(properties.get(props.TIMER_ENQUEUE_MS))
        if out is None or write is None:
            return
        if write == _NEVER:
            self._at_once.add(properties.get(props.UNIQ_KEY, ""))
            return
        slot, _ = self._rules.target(out, write)
        if head.topic != TIMER_TOPIC:
            slot = out
        slot = max(slot, write)
        self.first = slot if self.first is None else min(self.first, slot)

    def _find(self, position: int) -> Iterator[None]:
        """Those messages stand not far in front of what was delivered."""
        store = self._store
        end = store.queue_end_at(TIMER_TOPIC, 0, position)
        offset = store.max_queue_offset(TIMER_TOPIC, 0) if end is None else end
        least = max(store.min_queue_offset(TIMER_TOPIC, 0), offset - 20 * SLICE)
        wanted = set(self._at_once)
        while wanted and offset > least:
            offset -= 1
            for unit in store.queue_units(TIMER_TOPIC, 0, offset, 1):
                message = store.message_at(unit.position)
                if message is None:
                    continue
                key = parse_properties(message.properties).get(props.UNIQ_KEY, "")
                if key in wanted:
                    wanted.discard(key)
                    self.first_at_once = offset
            if offset % 50 == 0:
                yield
