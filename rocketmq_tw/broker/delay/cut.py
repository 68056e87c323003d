"""What a delay level delivered behind a place of the log, before that is cut, waits again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rocketmq_tw.broker.delay.levels import DelayLevels, due_message, queue_of
from rocketmq_tw.broker.delay.offsets import DelayOffsets
from rocketmq_tw.broker.interfaces import IMessageStore
from rocketmq_tw.broker.writing.log_end import LogEnd
from rocketmq_tw.message.names import SCHEDULE_TOPIC
from rocketmq_tw.message.properties import DELAY, REAL_QID, REAL_TOPIC, number, parse_properties
from rocketmq_tw.message.record import RecordHead

#: Waiting messages that are looked at in one step.
STEPS_BACK = 50


def take_back(
    store: IMessageStore, levels: DelayLevels, offsets: DelayOffsets, end: int
) -> Iterator[None]:
    """Takes each level's offset back, in steps, by as many messages as were delivered behind `end`,
    and by all that were due since the first record there: that one may come twice, and none is
    missing. Nothing is delivered meanwhile."""
    delivered: Counter[int] = Counter()
    since: int | None = None
    log_end = LogEnd(store, SCHEDULE_TOPIC, end)
    for head in log_end.look():
        if head is None:
            yield
            continue
        since = head.store_timestamp if since is None else min(since, head.store_timestamp)
        level = _delivered_level(head)
        if level is not None:
            delivered[min(level, levels.max_level)] += 1
    if since is not None:
        for level in range(1, levels.max_level + 1):
            stored_since = since - levels.delay_ms(level)
            yield from _level_back(store, log_end, offsets, level, stored_since, delivered[level])


def _level_back(
    store: IMessageStore,
    log_end: LogEnd,
    offsets: DelayOffsets,
    level: int,
    stored_since: int,
    count: int,
) -> Iterator[None]:
    """Goes back by `count` messages, and by all that are stored since a time."""
    queue_id, known = queue_of(level), offsets.get(level)
    back = min(known, log_end.end_of(queue_id))
    # Of what was delivered, this waited behind the cut itself.
    count -= min(known - back, log_end.count_behind(queue_id))
    least = store.min_queue_offset(SCHEDULE_TOPIC, queue_id)
    for offset in range(back - 1, least - 1, -1):
        message = log_end.message(queue_id, offset)
        if message is not None:
            if count <= 0 and message.store_timestamp < stored_since:
                break
            # Any other was passed over, not delivered.
            count -= due_message(message) is not None
            back = offset
        if offset % STEPS_BACK == 0:
            yield
    if back < known:
        offsets.set(level, back)


def _delivered_level(head: RecordHead) -> int | None:
    """The level at which a message says it has waited; None where it did not."""
    if b"REAL_TOPIC" not in head.properties or head.topic == SCHEDULE_TOPIC:
        return None
    properties = parse_properties(head.properties)
    level = number(properties.get(DELAY))
    if level is None or level <= 0:
        return None
    is_its_own = properties.get(REAL_TOPIC) == head.topic and properties.get(REAL_QID) == str(
        head.queue_id
    )
    return level if is_its_own else None
