"""Finding out what waits: at a start and when the role changes."""

from __future__ import annotations

from collections import Counter
from functools import partial

from rocketmq_tw.broker.interfaces import IMessageStore
from rocketmq_tw.broker.timer.progress import TimerCheckpoint
from rocketmq_tw.broker.timer.rules import TimerRules
from rocketmq_tw.message.names import TIMER_TOPIC
from rocketmq_tw.store.timer.timer_files import TimerFiles


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
            if name is not None and not unit.is_void:
                found[name] += unit.weight
    return found


def counting(files: TimerFiles, since_ms: int, names: dict[int, str]) -> partial[Counter[str]]:
    """What counts, in any thread, how many messages of each topic wait now for a slot from
    `since_ms` on; `names` has topics by their hash code."""
    lasts = [slot.last for _, slot in files.wheel.waiting(since_ms)]
    return partial(_count, files, lasts, names)
