"""The oldest files of log, queues and index: how old they are, and how they go together."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from rocketmq_tw.store.checkpointing import Checkpointing
from rocketmq_tw.store.index import MessageIndex
from rocketmq_tw.store.interface import ILog
from rocketmq_tw.store.queues import QueueTable
from rocketmq_tw.store.time_search import log_store_time

#: Queues that one step looks at; in each some twenty units may be read.
_STEP = 50


def last_writes(log: ILog, done: int, most: int) -> list[int]:
    """When each of the oldest files was written last, in milliseconds since 1970, oldest first: of
    those that end at or before `done`, `most` of them at most, and never of the newest."""
    times: list[int] = []
    for _start, following in pairwise(log.file_starts):
        if following > done or len(times) == most:
            break
        moment = log_store_time(log, log.first_record(following))
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
) -> Iterator[int]:
    """Removes the `count` oldest files of the log and what only points into them, though of each
    queue one file at most between two checkpoints; in steps between which the store may change,
    each of which gives how many files it removed."""
    for _ in range(count):
        log.remove_first()
    removed = count
    if index is not None:
        removed += index.remove_before(log.min_offset)
    for number, queue in enumerate(queues, 1):
        # One that was deleted meanwhile may have a successor in its place.
        if (count or len(queue.segments.starts) != 1) and queues.has(queue):
            safe_offset = checkpointing.last.safe_offset
            removed += queue.remove_before(log.min_offset, safe_offset, *checkpointing.rounds)
        if number % _STEP == 0:
            yield removed
            removed = 0
    yield removed
