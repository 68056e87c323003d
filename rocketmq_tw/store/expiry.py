"""The oldest files of log, queues and index: how old they are, and how they go together."""

from __future__ import annotations

from itertools import pairwise

from rocketmq_tw.store.index import MessageIndex
from rocketmq_tw.store.interface import ILog
from rocketmq_tw.store.queues import QueueTable
from rocketmq_tw.store.time_search import log_store_time


def last_writes(log: ILog, done: int, most: int) -> list[int]:
    """When each of the oldest files was written last, in milliseconds since 1970, oldest first: of
    those that end at or before `done`, `most` of them at most, and never of the newest."""
    times: list[int] = []
    for _start, following in pairwise(log.file_starts):
        if following > done or len(times) == most:
            break
        moment = log_store_time(log, following)
        if moment < 0:
            break
        times.append(moment)
    return times


def remove_oldest(
    count: int, log: ILog, queues: QueueTable, index: MessageIndex | None, safe_offset: int
) -> int:
    """Removes the `count` oldest files of the log and what only points into them; returns how many
    files went. The checkpoint says that all up to `safe_offset` is on stable storage."""
    for _ in range(count):
        log.remove_first()
    removed = count
    for queue in queues:
        removed += queue.remove_before(log.min_offset, safe_offset)
    if index is not None:
        removed += index.remove_before(log.min_offset)
    return removed
