"""The message store: one face for the log, the queues and the index of a broker."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from itertools import accumulate, pairwise
from operator import attrgetter
from struct import pack

from zope.interface import implementer

from rocketmq_tw.config.store import MessageStoreConfig
from rocketmq_tw.files.interface import IFile, IFiles
from rocketmq_tw.message.batch import Batch
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.message.record import (
    RecordError,
    decode_record,
    encode_batch_records,
    encode_record,
    host_bytes,
)
from rocketmq_tw.message.sysflags import TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from rocketmq_tw.store import time_search
from rocketmq_tw.store.checkpoints import Checkpoints
from rocketmq_tw.store.commit_log import CommitLog
from rocketmq_tw.store.consume_queue import UNIT_SIZE, ConsumeQueue, Unit
from rocketmq_tw.store.dispatch import BatchDispatch, Dispatch, Dispatcher, parse_delay_levels
from rocketmq_tw.store.errors import (
    DamagedStoreError,
    IllegalMessageError,
    NotWritableError,
    StoreError,
)
from rocketmq_tw.store.index import MessageIndex
from rocketmq_tw.store.interface import (
    Appended,
    Arrival,
    IMessageStore,
    QueueRead,
    RecordMatch,
    TagMatch,
)
from rocketmq_tw.store.paths import StorePaths
from rocketmq_tw.store.queue_reader import QueueReader
from rocketmq_tw.store.queues import QueueTable
from rocketmq_tw.store.recovery import Recovery, RecoveryReport
from rocketmq_tw.store.retention import Pressure, disk_pressure, files_to_remove
from rocketmq_tw.store.scan import LogScan

#: What a record may have beside its body.
_RECORD_ROOM = 64 * 1024
#: A clock that was set back by less than this does not show in store times.
_CLOCK_SLACK_MS = 1_000
_count_of = attrgetter("count")
_PREPARED_OR_ROLLBACK = (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK)


@lru_cache(maxsize=64)
def _message_id_prefix(host: tuple[str, int]) -> str:
    return (host_bytes(host[0]) + host[1].to_bytes(4, "big")).hex().upper()


@implementer(IMessageStore)
class MessageStore:
    """See `IMessageStore`. `clock` gives milliseconds since 1970; `memory_bytes` is the machine's
    memory, from which stock reckons what is still cached.

    With `SYNC_FLUSH`, `dispatch` stops at what is flushed: a consumer must not commit an offset
    that a power loss would give to another message. `dispatch_limit` lowers it further (a
    controller's confirmed offset).
    """

    def __init__(
        self,
        config: MessageStoreConfig,
        files: IFiles,
        clock: Callable[[], int],
        *,
        memory_bytes: int = 8 << 30,
    ) -> None:
        if config.mapped_file_size_consume_queue % UNIT_SIZE:
            raise StoreError(
                f"mappedFileSizeConsumeQueue = {config.mapped_file_size_consume_queue} is no "
                f"multiple of {UNIT_SIZE}"
            )
        try:
            self.delay_levels = parse_delay_levels(config.message_delay_level)
        except ValueError as error:
            raise StoreError(str(error)) from error
        self.config = config
        self.paths = StorePaths(config)
        self.dispatch_limit: int | None = None
        self.report: RecoveryReport | None = None
        self._files = files
        self._clock = clock
        self._log = CommitLog(files, self.paths.commit_log, config.mapped_file_size_commit_log)
        self._queues = QueueTable(
            files, self.paths.consume_queue, config.mapped_file_size_consume_queue
        )
        self._index: MessageIndex | None = None
        if config.message_index_enable:
            self._index = MessageIndex(
                files, self.paths.index, config.max_hash_slot_num, config.max_index_num, clock
            )
        self._dispatcher = Dispatcher(self.delay_levels, index=self._index is not None)
        self._reader = QueueReader(config, self._log, memory_bytes)
        self._checkpoints = Checkpoints(
            files, self.paths.checkpoint, self._log, self._queues, self._index
        )
        self._lock: IFile | None = None
        self._refusal = "the store is not loaded"
        self._disk_full = False
        self._arrivals: list[Arrival] = []
        #: Behind the last record dispatched.
        self._dispatched = 0
        self._last_timestamp = 0
        self._last_dispatched_timestamp = 0
        #: Queues that an append not yet written moved on, and their next offset before it.
        self._moved: list[tuple[ConsumeQueue, int]] = []
        #: Behind a replica's last bytes; until they are dispatched next offsets are not known.
        self._raw_end = 0
        #: Appended records that wait for dispatch; while `_from_log`, the log is read instead.
        self._waiting: deque[Dispatch | BatchDispatch] = deque()
        self._from_log = False

    # Life

    def load(self) -> None:
        """Locks, recovers, and leaves `abort` behind until `close`; see `IMessageStore`."""
        files, paths = self._files, self.paths
        files.make_dirs(paths.root)
        try:
            self._lock = files.lock(paths.lock)
        except BlockingIOError as error:
            raise StoreError(
                f"{paths.root} is in use by another broker: stop it, or set storePathRootDir"
            ) from error
        self._lock.pwrite(b"lock", 0)
        try:
            self._recover()
        except BaseException:
            self._release()
            raise
        self._refusal = ""

    def _recover(self) -> None:
        files, paths = self._files, self.paths
        clean = not files.exists(paths.abort)
        checkpoint = self._checkpoints.load()
        self._log.load()
        repaired = self._queues.load()
        if self._index:
            self._index.load(checkpoint.index_mark, clean=clean)
        self.report = Recovery(
            self._log,
            self._queues,
            self._index,
            self._dispatcher,
            checkpoint,
            check_body=self.config.check_crc_on_recover,
            retract=self._checkpoints.retract,
        ).run(clean=clean, queues_repaired=repaired)
        self._dispatched = self._log.end_offset
        self._last_timestamp = self._last_dispatched_timestamp = max(
            self.report.last_timestamp, self._checkpoints.last.physic_msg_timestamp
        )
        abort = files.open(paths.abort, create=True)
        abort.truncate(0)
        abort.pwrite(str(os.getpid()).encode(), 0)
        abort.fsync()
        abort.close()
        files.sync_dir(paths.root)
        if self._checkpoints.last.safe_offset < 0 and self.report.records:
            # So that the next crash need not read all of it again.
            self.checkpoint()

    def close(self) -> None:
        """Writes, flushes, dispatches, checkpoints; removes `abort` only where all of it held."""
        if self._lock is None:
            return
        was_open = not self._refusal
        self._refusal = "the store is closed"
        try:
            if was_open and not self._log.failure:
                self.write_pending()
                self.fsync()
                self.dispatch()
                self.checkpoint()
                if self._dispatched == self._log.end_offset and not self._checkpoints.failed:
                    self._files.remove(self.paths.abort)
                    self._files.sync_dir(self.paths.root)
        finally:
            self._release()

    def _release(self) -> None:
        self._log.close()
        self._queues.close()
        if self._index:
            self._index.close()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    @property
    def end_offset(self) -> int:
        return self._log.end_offset

    @property
    def written_offset(self) -> int:
        return self._log.written_offset

    @property
    def flushed_offset(self) -> int:
        return self._log.flushed_offset

    @property
    def dispatched_offset(self) -> int:
        """Up to here messages are in their queues."""
        return self._dispatched

    @property
    def last_record_offset(self) -> int:
        """Where the newest record that is in a queue starts; -1 where there is none."""
        position = self._queues.last_position
        return position if position >= self._log.min_offset else -1

    @property
    def min_physical_offset(self) -> int:
        return self._log.min_offset

    @property
    def refusal(self) -> str:
        """Why nothing can be stored now; empty while it can."""
        if self._refusal or self._log.failure:
            return self._refusal or self._log.failure
        if self._disk_full:
            return (
                "the disk is nearly full: free some, lower fileReservedTime or raise "
                "diskSpaceWarningLevelRatio"
            )
        return ""

    # Append

    def append(self, message: StoredMessage, *, batch: Batch | None = None) -> Appended:
        """See `IMessageStore`."""
        if self._refusal or self._log.failure or self._disk_full:
            raise NotWritableError(self.refusal)
        if self._dispatched < self._raw_end:
            raise NotWritableError("replicated messages are not dispatched yet: try again")
        log = self._log
        in_queue = (message.sys_flag & TRANSACTION_ROLLBACK) not in _PREPARED_OR_ROLLBACK
        try:
            queue = self._queues.find_or_create(message.topic, message.queue_id)
            now, last = self._clock(), self._last_timestamp
            message.store_timestamp = last if 0 < last - now < _CLOCK_SLACK_MS else now
            message.queue_offset = queue.next_offset if in_queue else 0
            message.physical_offset = log.end_offset
            if batch:
                offsets = self._push_batch(message, batch, in_queue)
            else:
                offsets = (self._push(message),)
        except RecordError as error:
            raise IllegalMessageError(str(error)) from error
        self._last_timestamp = message.store_timestamp
        if in_queue:
            self._moved.append((queue, queue.next_offset))
            queue.next_offset += len(offsets)
        prefix = _message_id_prefix(message.store_host)
        first = offsets[0]
        if batch:
            text = pack(f">{len(offsets)}q", *offsets).hex(",", 8).upper()
            ids = prefix + text.replace(",", "," + prefix)
        else:
            ids = f"{prefix}{first:016X}"
        return Appended(first, log.end_offset, message.queue_offset, message.store_timestamp, ids)

    def _push(self, message: StoredMessage) -> int:
        """Buffers the record; returns its offset."""
        log = self._log
        record = encode_record(message, crc_property=self.config.enabled_append_prop_crc)
        size = len(record)
        self._check_size(message, len(message.body), size)
        # Nearly always there is room, and the record need not be made again.
        if not log.push_fitting(record):
            message.physical_offset = log.reserve(size)
            record = encode_record(message, crc_property=self.config.enabled_append_prop_crc)
            log.push(record)
        if not self._from_log:
            self._waiting.append(
                self._dispatcher.dispatch(
                    message.topic,
                    message.queue_id,
                    message.queue_offset,
                    message.physical_offset,
                    size,
                    message.sys_flag,
                    message.store_timestamp,
                    message.properties,
                    message.parsed,
                )
            )
        message.store_size = size
        return message.physical_offset

    def _push_batch(self, message: StoredMessage, batch: Batch, in_queue: bool) -> tuple[int, ...]:
        """The same with a batch's records; returns the offset of each."""
        log = self._log
        data, sizes = self._batch_records(message, batch, in_queue)
        if not log.push_fitting(data):
            message.physical_offset = log.reserve(len(data))
            data, sizes = self._batch_records(message, batch, in_queue)
            log.push(data)
        offsets = tuple(accumulate(sizes[:-1], initial=message.physical_offset))
        if not self._from_log:
            self._waiting += self._dispatcher.dispatch_batch(message, batch, offsets, sizes)
        message.store_size = sizes[0]
        return offsets

    def _batch_records(
        self, message: StoredMessage, batch: Batch, in_queue: bool
    ) -> tuple[bytes, list[int]]:
        """The records of a batch, none larger than allowed, and their sizes."""
        data, sizes = encode_batch_records(
            message, batch, in_queue=in_queue, crc_property=self.config.enabled_append_prop_crc
        )
        self._check_size(message, max(map(len, batch.bodies)), max(sizes))
        return data, sizes

    def _check_size(self, message: StoredMessage, body_length: int, size: int) -> None:
        # What comes out of the log was accepted once: a limit that was lowered since spares it.
        most = max(self.config.max_message_size, message.store_size)
        if body_length > most or size > most + _RECORD_ROOM:
            raise IllegalMessageError(
                f"the message has {body_length} bytes of body, {size} in all: "
                f"maxMessageSize allows {most}"
            )

    def append_raw(self, offset: int, data: bytes) -> None:
        """See `IMessageStore`. An empty log begins where its first bytes belong, if a file can
        start there."""
        if self._refusal or self._log.failure or self._disk_full:
            raise NotWritableError(self.refusal)
        log = self._log
        if offset != log.end_offset:
            if log.segments.starts or log.end_offset != log.written_offset:
                raise StoreError(f"the log ends at {log.end_offset}: bytes for {offset} do not fit")
            log.start_at(offset)
            self._dispatched = offset
        log.push_raw(data)
        self._raw_end = log.end_offset
        self._waiting.clear()
        self._from_log = True

    def write_pending(self) -> int:
        """See `IMessageStore`; where it raises, none of what was buffered is in the store."""
        log = self._log
        try:
            written = log.write()
        except StoreError:
            self._take_back(log.written_offset)
            raise
        self._moved.clear()
        return written

    def _take_back(self, end: int) -> None:
        """The log lost what was buffered behind `end`: so do the queues' next offsets."""
        for queue, offset in reversed(self._moved):
            queue.next_offset = offset
        self._moved.clear()
        self._raw_end = min(self._raw_end, end)
        waiting = self._waiting
        while waiting and waiting[-1].physical_offset >= end:
            waiting.pop()

    def truncate_to(self, offset: int) -> None:
        """Drops the log at and behind `offset`, which must be where a record starts, and what
        queues and index say of it; durable when it returns. Not while `fsync` runs."""
        log = self._log
        if not log.min_offset <= offset <= log.end_offset:
            raise StoreError(
                f"cannot truncate to {offset}: the log has {log.min_offset} to {log.end_offset}"
            )
        # Before the log shrinks: a checkpoint must never claim more than there is.
        self._checkpoints.before_cut(offset)
        self._waiting.clear()
        self._moved.clear()
        log.truncate_to(offset)
        for queue in self._queues:
            if queue.max_physical > offset:
                queue.cut_behind(offset)
            queue.next_offset = queue.max_offset
        if self._index:
            self._index.cut(offset)
        self._checkpoints.after_cut()
        self._dispatched = min(self._dispatched, offset)
        self._raw_end = min(self._raw_end, offset)
        self._from_log = self._dispatched < log.end_offset

    def fsync(self) -> int:
        """See `IMessageStore`; one call at a time."""
        return self._log.fsync()

    # Dispatch

    def dispatch(self) -> int:
        """See `IMessageStore` and the class about how far it goes."""
        limit = self._log.written_offset
        if self.config.flush_disk_type == "SYNC_FLUSH":
            limit = min(limit, self._log.flushed_offset)
        if self.dispatch_limit is not None:
            limit = min(limit, self.dispatch_limit)
        if self._dispatched >= limit:
            return 0
        if self._from_log:
            entries, reached = self._entries_from_log(limit)
        else:
            entries, reached = self._entries_waiting(limit)
        try:
            arrived = self._queues.put(entries)
            if self._index is not None:
                self._index.add(entries)
            self._queues.write_pending()
        except OSError as error:
            # What is not in its queue yet comes from the log again, next time.
            self._from_log = True
            self._waiting.clear()
            raise NotWritableError(f"queues or index cannot be written: {error}") from error
        self._dispatched = reached
        if entries:
            self._last_dispatched_timestamp = entries[-1].store_timestamp
        self._from_log = self._from_log and reached < self._log.end_offset
        if arrived:
            for callback in self._arrivals:
                callback(arrived)
        return sum(map(_count_of, entries))

    def _entries_waiting(self, limit: int) -> tuple[list[Dispatch | BatchDispatch], int]:
        """What waits up to `limit`, and the offset behind it."""
        waiting = self._waiting
        if waiting and waiting[-1].physical_offset + waiting[-1].size <= limit:
            # All of it, as nearly always.
            self._waiting = deque()
            return list(waiting), waiting[-1].physical_offset + waiting[-1].size
        entries: list[Dispatch | BatchDispatch] = []
        reached = self._dispatched
        while waiting:
            end = waiting[0].physical_offset + waiting[0].size
            if end > limit:
                break
            reached = end
            entries.append(waiting.popleft())
        return entries, reached

    def _entries_from_log(self, limit: int) -> tuple[list[Dispatch | BatchDispatch], int]:
        """The same, read from the log."""
        scan = LogScan(self._log.segments, self._dispatched, limit, check_body=False)
        entries: list[Dispatch | BatchDispatch] = [
            self._dispatcher.dispatch(
                head.topic,
                head.queue_id,
                head.queue_offset,
                head.physical_offset,
                head.size,
                head.sys_flag,
                head.store_timestamp,
                head.properties,
            )
            for head in scan
        ]
        if scan.damaged and not entries:
            raise DamagedStoreError(f"the log has no sound record at {scan.position}")
        return entries, scan.position

    def on_arrival(self, callback: Arrival) -> None:
        """See `IMessageStore`."""
        self._arrivals.append(callback)

    # Read

    def read_queue(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_count: int,
        max_bytes: int,
        tag_match: TagMatch | None = None,
        record_match: RecordMatch | None = None,
    ) -> QueueRead:
        """See `IMessageStore`."""
        queue = self._readable(topic, queue_id)
        return self._reader.read(queue, offset, max_count, max_bytes, tag_match, record_match)

    def _readable(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        return self._queues.find(topic, queue_id)

    def read_log(self, offset: int, size: int) -> bytes:
        """See `IMessageStore`."""
        return self._log.read(size, offset)

    def record_at(self, physical_offset: int) -> bytes | None:
        """See `IMessageStore`."""
        return time_search.sound_record(self._log, physical_offset)

    def message_at(self, physical_offset: int) -> StoredMessage | None:
        """See `IMessageStore`."""
        data = self.record_at(physical_offset)
        return None if data is None else decode_record(data)

    def max_queue_offset(self, topic: str, queue_id: int) -> int:
        """See `IMessageStore`: of what is dispatched, which is what a reader may ask for."""
        queue = self._queues.find(topic, queue_id)
        return 0 if queue is None else queue.max_offset

    def min_queue_offset(self, topic: str, queue_id: int) -> int:
        """See `IMessageStore`."""
        queue = self._queues.find(topic, queue_id)
        return 0 if queue is None else queue.min_offset

    def offset_by_time(
        self, topic: str, queue_id: int, timestamp: int, *, upper: bool = False
    ) -> int:
        """See `IMessageStore`; 0 where there is no queue."""
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return 0
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

    def queue_units(self, topic: str, queue_id: int, offset: int, count: int) -> list[Unit]:
        """See `IMessageStore`."""
        queue = self._queues.find(topic, queue_id)
        if queue is None or offset < queue.min_offset:
            return []
        units = map(queue.unit, range(offset, min(offset + count, queue.max_offset)))
        return [unit for unit in units if unit is not None]

    def queues(self) -> dict[str, set[int]]:
        """See `IMessageStore`."""
        found: dict[str, set[int]] = {}
        for queue in self._queues:
            if queue.segments.starts:
                found.setdefault(queue.topic, set()).add(queue.queue_id)
        return found

    def query_by_key(
        self, topic: str, key: str, max_count: int, begin: int, end: int
    ) -> tuple[list[int], int, int]:
        """See `IMessageStore`; hashes collide, so the caller compares the keys."""
        if self._index is None:
            return [], 0, 0
        limit = min(max_count, self.config.max_msgs_num_batch)
        return self._index.query(topic, key, limit, begin, end)

    @property
    def damaged_records(self) -> int:
        """Records that reads left out because their bytes are not what was stored."""
        return self._reader.damaged

    # Housekeeping

    def remove_topic(self, topic: str) -> None:
        """See `IMessageStore`."""
        self._waiting = deque([entry for entry in self._waiting if entry.topic != topic])
        self._queues.remove_topic(topic)
        if self._checkpoints.last.safe_offset >= 0:
            self.checkpoint()

    def checkpoint(self) -> None:
        """Syncs log, queues and index, and writes the checkpoint; blocks."""
        run = self.prepare_checkpoint()
        if run is not None:
            self._log.fsync()
            run()

    @property
    def unsynced_files(self) -> int:
        """See `IMessageStore`."""
        return len(self._queues.unsynced.files)

    def prepare_checkpoint(self, *, thorough: bool = True) -> Callable[[], None] | None:
        """See `IMessageStore`. To be called every `flushConsumeQueueThoroughInterval` or more
        often: what lies behind the last checkpoint is read again after a crash."""
        return self._checkpoints.prepare(
            self._dispatched, self._last_dispatched_timestamp, thorough=thorough
        )

    def clean(self, now_ms: int, *, at_any_hour: bool = False) -> int:
        """See `IMessageStore`."""
        pressure = disk_pressure(self.config, self._files.usage(self.paths.root))
        self._disk_full = pressure is Pressure.FULL
        log = self._log
        done = min(log.flushed_offset, self._dispatched)
        starts = log.segments.starts
        times = []
        for _start, following in pairwise(starts):
            if following > done:
                break
            moment = time_search.log_store_time(log, following)
            if moment < 0:
                break
            times.append(moment)
            if len(times) == self.config.delete_file_batch_max:
                break
        count = files_to_remove(self.config, times, pressure, now_ms, at_any_hour=at_any_hour)
        if not count:
            return 0
        for _ in range(count):
            log.remove_first()
        removed = count
        for queue in self._queues:
            removed += queue.remove_before(log.min_offset)
        if self._index:
            removed += self._index.remove_before(log.min_offset)
        return removed
