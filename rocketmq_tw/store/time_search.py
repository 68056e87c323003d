"""Finding queue offsets by store time."""

from __future__ import annotations

import struct

from rocketmq_tw.message.record import parse_head
from rocketmq_tw.message.sysflags import BORN_HOST_V6
from rocketmq_tw.store.commit_log import CommitLog
from rocketmq_tw.store.consume_queue import ConsumeQueue

_FLAG = struct.Struct(">i")
_TIME = struct.Struct(">q")
_FLAG_AT = 36
_TIME_AT = 56
_HEAD = 76


def log_store_time(log: CommitLog, position: int) -> int:
    """Store time of the record at a log offset; -1 where none is."""
    data = log.read(_HEAD, position)
    if position < log.min_offset or len(data) < _HEAD:
        return -1
    (flags,) = _FLAG.unpack_from(data, _FLAG_AT)
    (moment,) = _TIME.unpack_from(data, _TIME_AT + (12 if flags & BORN_HOST_V6 else 0))
    return int(moment)


def queue_store_time(log: CommitLog, queue: ConsumeQueue, offset: int) -> int:
    """Store time of the message at a queue offset; -1 where none is."""
    unit = queue.unit(offset)
    if unit is None or unit.is_filler:
        return -1
    return log_store_time(log, unit.position)


def offset_by_time(log: CommitLog, queue: ConsumeQueue, timestamp: int, *, upper: bool) -> int:
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


def sound_record(log: CommitLog, position: int) -> bytes | None:
    """The bytes of the record at a log offset; None where no sound one stands."""
    if position < log.min_offset:
        return None
    head = log.read(4, position)
    if len(head) < 4:
        return None
    (size,) = _FLAG.unpack(head)
    room = log.file_size - position % log.file_size
    if not 0 < size <= room:
        return None
    data = log.read(size, position)
    parsed = parse_head(data)
    if parsed is None or parsed.physical_offset != position or parsed.size != len(data):
        return None
    return data
