"""Reading a queue: which units, how many, and their records from the log."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rocketmq_tw.config.store import MessageStoreConfig
from rocketmq_tw.store.consume_queue import ConsumeQueue
from rocketmq_tw.store.interface import EVERY_MESSAGE, GetStatus, ILog, MessageFilter, QueueRead
from rocketmq_tw.store.queue_pass import QueuePass
from rocketmq_tw.store.queue_records import QueueRecords, ReadLimits
from rocketmq_tw.store.queue_units import FILLER_SIZE, UNIT_SIZE, places_of


class QueueReader:
    """Reads queues with stock's limits, statuses and next offsets; records whose bytes are not what
    was stored are left out. `is_copy` says whether the log may be a copy of another broker's, and
    be behind that."""

    def __init__(
        self,
        config: MessageStoreConfig,
        log: ILog,
        memory_bytes: int,
        is_copy: Callable[[], bool] = lambda: False,
    ) -> None:
        self._config = config
        self._log = log
        self._memory_bytes = memory_bytes
        self._is_copy = is_copy
        self._records = QueueRecords(config, log)

    @property
    def cached_bytes(self) -> int:
        """How much of the log's end is taken to be in memory; as in stock a slave, which reads for
        others, leaves more to them."""
        percent = self._config.access_message_in_memory_max_ratio - (10 if self._is_copy() else 0)
        return self._memory_bytes * max(percent, 0) // 100

    def read(
        self,
        queue: ConsumeQueue | None,
        offset: int,
        max_count: int,
        max_bytes: int,
        wanted: MessageFilter,
        *,
        check_fresh: bool = True,
    ) -> QueueRead:
        """Returns whole records from `offset` on; see `IMessageStore.read_queue`."""
        if queue is None:
            return self._nothing(GetStatus.NO_MATCHED_LOGIC_QUEUE, offset, 0, 0, 0)
        low, high = queue.min_offset, queue.max_offset
        if high == 0:
            return self._nothing(GetStatus.NO_MESSAGE_IN_QUEUE, offset, 0, low, high)
        if offset < low:
            return self._nothing(GetStatus.OFFSET_TOO_SMALL, offset, low, low, high)
        if offset == high:
            return self._nothing(GetStatus.OFFSET_OVERFLOW_ONE, offset, offset, low, high)
        if offset > high:
            return self._nothing(GetStatus.OFFSET_OVERFLOW_BADLY, offset, high, low, high)
        limits = ReadLimits(
            self._config, max_count, max_bytes, self.cached_bytes, check_fresh=check_fresh
        )
        if wanted.by_unit is None and wanted.by_properties is None:
            read = self.read_at_once(queue, offset, limits)
            if read is not None:
                return read
        return self.read_each(queue, offset, limits, wanted)

    def read_each(
        self,
        queue: ConsumeQueue,
        offset: int,
        limits: ReadLimits,
        wanted: MessageFilter = EVERY_MESSAGE,
    ) -> QueueRead:
        """Returns what `read` gives for an offset that the queue has, by looking at each unit."""
        return QueuePass(
            self._config, self._records, limits, queue, offset, wanted, self._corrected
        ).run()

    def read_at_once(
        self, queue: ConsumeQueue, offset: int, limits: ReadLimits
    ) -> QueueRead | None:
        """Returns what `read_each` gives, without a look at each unit for itself, for the usual
        read: no filter, all its messages there and sound, and none so old that other limits hold
        for it than for the others. None where that is not so."""
        log = self._log
        units = queue.read(offset, limits.most_records)
        count = len(units) // UNIT_SIZE
        if not count:
            return None
        positions, sizes = places_of(units)
        oldest, newest = min(positions), max(positions)
        if oldest < log.min_offset or FILLER_SIZE in sizes or min(sizes) <= 0:
            return None
        of_all = limits.of_all(log.end_offset, oldest, newest)
        if of_all is None:
            return None
        most_bytes, most_count = of_all
        count = _fitting(sizes, max(most_count, 1), most_bytes)
        positions, sizes = positions[:count], sizes[:count]
        data = self._records.joined(positions, sizes, limits.fresh_bytes)
        if data is None:
            return None
        return QueueRead(
            GetStatus.FOUND,
            data,
            count,
            offset + count,
            queue.min_offset,
            queue.max_offset,
            log.end_offset - positions[-1] > limits.in_memory_bytes,
        )

    def _nothing(
        self, status: GetStatus, offset: int, corrected: int, low: int, high: int
    ) -> QueueRead:
        return QueueRead(status, b"", 0, self._corrected(offset, corrected), low, high)

    def _corrected(self, offset: int, corrected: int) -> int:
        """Returns `corrected`, or on a slave `offset`: a slave does not correct offsets, since its
        queue may just be behind its master's."""
        if self._is_copy() and not self._config.offset_check_in_slave:
            return offset
        return corrected


def _fitting(sizes: Sequence[int], most: int, most_bytes: int) -> int:
    """Returns how many records, `most` at most, have so many bytes together; the first one always
    fits."""
    count = total = 0
    for size in sizes:
        total += size
        if count and (count == most or total > most_bytes):
            break
        count += 1
    return count
