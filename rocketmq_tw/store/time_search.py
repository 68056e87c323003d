"""Finding queue offsets by store time."""

from __future__ import annotations

from rocketmq_tw.message.layout import STORE_TIMESTAMP_END, store_timestamp
from rocketmq_tw.store.consume_queue import ConsumeQueue
from rocketmq_tw.store.interface import ILog


def log_store_time(log: ILog, position: int) -> int:
    """Returns the store time of the record at a log offset; -1 where none is."""
    data = log.read(STORE_TIMESTAMP_END, position)
    if position < log.min_offset or len(data) < STORE_TIMESTAMP_END:
        return -1
    return store_timestamp(data)


def queue_store_time(log: ILog, queue: ConsumeQueue, offset: int) -> int:
    """Returns the store time of the message at a queue offset; -1 where none is."""
    unit = queue.unit(offset)
    if unit is None or unit.is_filler:
        return -1
    return log_store_time(log, unit.position)


def offset_by_time(log: ILog, queue: ConsumeQueue, timestamp: int, *, upper: bool) -> int:
    """Lower: the first offset stored at or after `timestamp`, the max offset where all are older.
    Upper: the last one stored at or before it, the min offset where all are newer."""
    low, high = queue.min_offset, queue.max_offset
    while low < high:
        middle = (low + high) // 2
        probe = middle
        moment = queue_store_time(log, queue, probe)
        while moment < 0 and probe + 1 < high:
            # A lost message has no time of its own: the next one's decides.
            probe += 1
            moment = queue_store_time(log, queue, probe)
        goes_left = moment > timestamp if upper else moment >= timestamp
        if goes_left:
            high = middle
        else:
            low = probe + 1
    return max(low - 1, queue.min_offset) if upper else low
