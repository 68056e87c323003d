"""The reading side of the message store: everything that changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from rocketmq_tw.config.store import MessageStoreConfig
from rocketmq_tw.message.layout import SIZE
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.message.record import RecordError, RecordHead, decode_record, parse_head
from rocketmq_tw.store import time_search
from rocketmq_tw.store.contents import StoreContents
from rocketmq_tw.store.interface import EVERY_MESSAGE, MessageFilter, QueueRead, RecordScan
from rocketmq_tw.store.queue_extension import UnitExtra
from rocketmq_tw.store.queue_reader import QueueReader

#: Bytes of a first read at a record whose size is not known: most records are no longer.
_MOST_RECORDS = 1024


class ShownUnit(NamedTuple):
    """A unit of a queue with its extra, see `QueueUnit`."""

    position: int
    size: int
    tags_code: int
    extra: UnitExtra | None = None


class StoreReads:
    """Reads for `IMessageStore`, on a log, its queues and its index; `memory_bytes` is
    the machine's memory, `is_copy` as `MessageStore` has it."""

    def __init__(
        self,
        config: MessageStoreConfig,
        contents: StoreContents,
        memory_bytes: int,
        is_copy: Callable[[], bool],
    ) -> None:
        self._log = contents.log
        self._queues = contents.queues
        self._index = contents.index
        self._most_found = config.max_msgs_num_batch
        self._reader = QueueReader(config, contents.log, memory_bytes, is_copy)

    @property
    def cached_bytes(self) -> int:
        """See `IMessageStore`."""
        return self._reader.cached_bytes

    def read_queue(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_count: int,
        max_bytes: int,
        wanted: MessageFilter = EVERY_MESSAGE,
        *,
        check_fresh: bool = True,
    ) -> QueueRead:
        """See `IMessageStore`."""
        queue = self._queues.find(topic, queue_id)
        return self._reader.read(
            queue, offset, max_count, max_bytes, wanted, check_fresh=check_fresh
        )

    def read_log(self, offset: int, size: int) -> bytes:
        """See `IMessageStore`."""
        return self._log.read(size, offset)

    def record_at(self, physical_offset: int) -> bytes | None:
        """See `IMessageStore`."""
        data = self._one_record(physical_offset)
        head = None if data is None else parse_head(data)
        if head is None or head.physical_offset != physical_offset:
            return None
        return data

    def message_at(self, physical_offset: int) -> StoredMessage | None:
        """See `IMessageStore`."""
        data = self._one_record(physical_offset)
        if data is None:
            return None
        try:
            message = decode_record(data)
        except RecordError:
            return None
        return message if message.physical_offset == physical_offset else None

    def _one_record(self, position: int) -> bytes | None:
        """Returns the bytes of the record at `position`, sound or not, by the size that stands
        there; None where the log does not have all of them."""
        if position < self._log.min_offset:
            return None
        data = self._log.read(_MOST_RECORDS, position)
        if len(data) < SIZE.size:
            return None
        (size,) = SIZE.unpack_from(data)
        room = self._log.file_size - position % self._log.file_size
        if not 0 < size <= room:
            return None
        if size > len(data):
            data = self._log.read(size, position)
        return data[:size] if size <= len(data) else None

    def records(self, position: int) -> Iterator[RecordHead]:
        """See `IMessageStore`."""
        return iter(self.scan(position))

    def scan(self, position: int) -> RecordScan:
        """See `IMessageStore`."""
        return self._log.scan(position, self._log.written_offset, check_body=False)

    def max_queue_offset(self, topic: str, queue_id: int) -> int:
        """See `IMessageStore`: of what is dispatched, which is what a reader may ask for."""
        queue = self._queues.find(topic, queue_id)
        return 0 if queue is None else queue.max_offset

    def min_queue_offset(self, topic: str, queue_id: int) -> int:
        """See `IMessageStore`."""
        queue = self._queues.find(topic, queue_id)
        return 0 if queue is None else queue.min_offset

    def queue_end_at(self, topic: str, queue_id: int, position: int) -> int | None:
        """See `IMessageStore`."""
        queue = self._queues.find(topic, queue_id)
        if queue is None or queue.max_physical <= position:
            return None
        return queue.end_at(position)

    def offset_by_time(
        self, topic: str, queue_id: int, timestamp: int, *, upper: bool = False
    ) -> int:
        """See `IMessageStore`; 0 where there is no queue."""
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return 0
        first = queue.unit(queue.min_offset)
        if first is not None and first.position < self._log.min_offset:
            # Retention is on its way to it: what is gone already has no time to be found by.
            queue.correct_min_offset(self._log.min_offset)
        return time_search.offset_by_time(self._log, queue, timestamp, upper=upper)

    def store_time(self, topic: str, queue_id: int, offset: int) -> int:
        """See `IMessageStore`."""
        queue = self._queues.find(topic, queue_id)
        return -1 if queue is None else time_search.queue_store_time(self._log, queue, offset)

    def earliest_store_time(self, topic: str, queue_id: int) -> int:
        """See `IMessageStore`."""
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return -1
        return time_search.queue_store_time(self._log, queue, queue.min_offset)

    @property
    def log_directory(self) -> str:
        """Where the files of the log are."""
        return self._log.directory

    def oldest_store_time(self) -> int:
        """Returns the store time of the oldest record of the log; -1 where there is none."""
        log = self._log
        return time_search.log_store_time(log, log.first_record(log.min_offset))

    def queue_units(self, topic: str, queue_id: int, offset: int, count: int) -> list[ShownUnit]:
        """See `IMessageStore`."""
        queue = self._queues.find(topic, queue_id)
        if queue is None or offset < queue.min_offset:
            return []
        found = map(queue.unit, range(offset, min(offset + count, queue.max_offset)))
        units = [unit for unit in found if unit is not None]
        if queue.extension is None:
            return [ShownUnit(*unit) for unit in units]
        extras = queue.extension.find([unit.tags_code for unit in units])
        return [
            ShownUnit(unit.position, unit.size, extra.tags_code if extra else unit.tags_code, extra)
            for unit, extra in zip(units, extras, strict=True)
        ]

    def queue_ids(self, topic: str) -> list[int]:
        """See `IMessageStore`."""
        return [q.queue_id for q in self._queues.of_topic(topic) if q.segments.starts]

    def queue_topics(self) -> list[str]:
        """See `IMessageStore`."""
        return self._queues.topics()

    def search_by_key(
        self, topic: str, key: str, max_count: int, begin: int, end: int, found: list[int]
    ) -> Iterator[None]:
        """See `IMessageStore`; hashes collide, so the caller compares the keys."""
        if self._index is None:
            return iter(())
        limit = min(max_count, self._most_found)
        return self._index.search(topic, key, limit, begin, end, found)

    @property
    def indexed(self) -> tuple[int, int]:
        """See `IMessageStore`."""
        if self._index is None or self._index.end_offset < 0:
            return 0, 0
        return self._index.end_timestamp, self._index.end_offset
