"""The oldest files of log, queues and index: how old they are, and how they go together."""

from __future__ import annotations

from itertools import pairwise

from rocketmq_tw.store.checkpointing import Checkpointing
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
    count: int,
    log: ILog,
    queues: QueueTable,
    index: MessageIndex | None,
    checkpointing: Checkpointing,
) -> int:
    """Removes the `count` oldest files of the log and what only points into them, though of each
    queue one file at most between two checkpoints; returns how many files went."""
    for _ in range(count):
        log.remove_first()
    removed = count
    safe_offset, rounds = checkpointing.last.safe_offset, checkpointing.rounds
    for queue in queues:
        if not count and len(queue.segments.starts) == 1:
            continue
        removed += queue.remove_before(log.min_offset, safe_offset, *rounds)
    if index is not None:
        removed += index.remove_before(log.min_offset)
    return removed
