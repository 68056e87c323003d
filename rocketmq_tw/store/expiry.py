"""The oldest files of log, queues and index: how old they are, and how they go together."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from rocketmq_tw.config.store import MessageStoreConfig
from rocketmq_tw.files.interface import IFiles
from rocketmq_tw.store.checkpointing import Checkpointing
from rocketmq_tw.store.index import MessageIndex
from rocketmq_tw.store.interface import ILog
from rocketmq_tw.store.queues import QueueTable
from rocketmq_tw.store.retention import Pressure, files_to_remove, worst_pressure
from rocketmq_tw.store.time_search import log_store_time

#: Queues that one step looks at; in each some twenty units may be read.
_STEP = 50


class Expiry:
    """That of one store. `is_disk_full`, as the last run found it: nothing more is stored."""

    def __init__(
        self,
        config: MessageStoreConfig,
        files: IFiles,
        root: str,
        log: ILog,
        queues: QueueTable,
        index: MessageIndex | None,
        checkpointing: Checkpointing,
    ) -> None:
        self.is_disk_full = False
        self._config = config
        self._files = files
        #: The log may lie on a disk of its own.
        self._directories = log.directory, root
        self._log = log
        self._queues = queues
        self._index = index
        self._checkpointing = checkpointing

    def run(self, dispatched: int, now_ms: int, *, at_any_hour: bool) -> Iterator[int]:
        """Removes what may go of a log whose queues have it up to `dispatched`; see
        `IMessageStore.clean`. In steps between which the store may change."""
        log, config = self._log, self._config
        pressure = worst_pressure(config, {self._files.usage(path) for path in self._directories})
        self.is_disk_full = pressure is Pressure.FULL
        # What queues and index have in memory only must come from the log again after a crash.
        done = min(log.flushed_offset, dispatched, self._checkpointing.last.safe_offset)
        times = _last_writes(log, done, config.delete_file_batch_max)
        count = files_to_remove(config, times, pressure, now_ms, at_any_hour=at_any_hour)
        yield from _remove_oldest(count, log, self._queues, self._index, self._checkpointing)


def _last_writes(log: ILog, done: int, most: int) -> list[int]:
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


def _remove_oldest(
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
