"""The message store: one face for the log, the queues and the index of a broker.

`appending` and `dispatching` do the work on a message's way in, `queue_reader` on its way out.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise

from zope.interface import implementer

from rocketmq_tw.config.store import MessageStoreConfig
from rocketmq_tw.files.interface import IFile, IFiles
from rocketmq_tw.message.batch import Batch
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.message.record import decode_record
from rocketmq_tw.store import time_search
from rocketmq_tw.store.appending import Appending
from rocketmq_tw.store.checkpointing import Checkpointing
from rocketmq_tw.store.commit_log import CommitLog
from rocketmq_tw.store.consume_queue import UNIT_SIZE, ConsumeQueue, Unit
from rocketmq_tw.store.deleted_topics import DeletedTopics, Deletion
from rocketmq_tw.store.dispatch_entries import EntryMaker, parse_delay_levels
from rocketmq_tw.store.dispatching import Dispatching
from rocketmq_tw.store.errors import NotWritableError, StoreError
from rocketmq_tw.store.index import MessageIndex
from rocketmq_tw.store.interface import (
    EVERY_MESSAGE,
    Appended,
    Arrival,
    ILog,
    IMessageStore,
    MessageFilter,
    QueueRead,
)
from rocketmq_tw.store.paths import StorePaths
from rocketmq_tw.store.queue_reader import QueueReader
from rocketmq_tw.store.queues import QueueTable
from rocketmq_tw.store.recovery import Recovery, RecoveryReport
from rocketmq_tw.store.retention import Pressure, disk_pressure, files_to_remove


@implementer(IMessageStore)
class MessageStore:
    """See `IMessageStore`. `clock` gives milliseconds since 1970; `memory_bytes` is the machine's
    memory, from which stock reckons what is still cached; `log` is a commit log of its own unless
    another one is given.

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
        log: ILog | None = None,
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
        if log is None:
            log = CommitLog(files, self.paths.commit_log, config.mapped_file_size_commit_log)
        self._log: ILog = log
        self._queues = QueueTable(
            files, self.paths.consume_queue, config.mapped_file_size_consume_queue
        )
        self._index: MessageIndex | None = None
        if config.message_index_enable:
            self._index = MessageIndex(
                files, self.paths.index, config.max_hash_slot_num, config.max_index_num, clock
            )
        self._deleted = DeletedTopics(files, self.paths.deleted_topics)
        maker = EntryMaker(self.delay_levels, index=self._index is not None)
        self._dispatching = Dispatching(log, self._queues, self._index, maker, self._deleted)
        self._appending = Appending(config, log, self._queues, self._dispatching, clock)
        self._reader = QueueReader(config, log, memory_bytes)
        self._checkpointing = Checkpointing(
            files, self.paths.checkpoint, log, self._queues, self._index
        )
        self._lock: IFile | None = None
        self._refusal = "the store is not loaded"
        self._disk_full = False

    # Life

    def load(self) -> RecoveryReport:
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
            report = self._recover()
        except BaseException:
            self._release()
            raise
        self._refusal = ""
        return report

    def _recover(self) -> RecoveryReport:
        files, paths = self._files, self.paths
        clean = not files.exists(paths.abort)
        # In front of the first change: a crash in the middle of one leaves what only an unclean
        # start accepts.
        self._write_abort()
        try:
            self.report = report = self._run_recovery(clean)
        except StoreError:
            if clean:
                # Nothing was changed.
                self._remove_abort()
            raise
        dispatched = report.dispatched_offset
        last = self._checkpointing.last
        self._dispatching.begin(
            dispatched, max(report.dispatched_timestamp, last.physic_msg_timestamp)
        )
        self._appending.begin(
            max(report.last_timestamp, last.physic_msg_timestamp),
            self._log.end_offset if dispatched < self._log.end_offset else 0,
        )
        if (last.safe_offset < 0 and report.records) or last.safe_offset > dispatched:
            # So that the next crash need not read all of it again.
            self.checkpoint()
        return report

    def _run_recovery(self, clean: bool) -> RecoveryReport:
        checkpoint = self._checkpointing.load()
        self._deleted.load()
        self._log.load(clean=clean)
        repaired = self._queues.load()
        if self._index:
            self._index.load(checkpoint.index_mark, clean=clean)
        return Recovery(
            self._log,
            self._queues,
            self._index,
            self._dispatching.maker,
            self._deleted,
            checkpoint,
            check_body=self.config.check_crc_on_recover,
            retract=self._checkpointing.retract,
            limit=self.dispatch_limit,
        ).run(clean=clean, queues_repaired=repaired)

    def _write_abort(self) -> None:
        abort = self._files.open(self.paths.abort, create=True)
        abort.truncate(0)
        abort.pwrite(str(os.getpid()).encode(), 0)
        abort.fsync()
        abort.close()
        self._files.sync_dir(self.paths.root)

    def _remove_abort(self) -> None:
        self._files.remove(self.paths.abort)
        self._files.sync_dir(self.paths.root)

    def close(self) -> None:
        """Writes, flushes, dispatches up to the limit, checkpoints; removes `abort` only where all
        of it held."""
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
                end = self._log.end_offset
                limit = end if self.dispatch_limit is None else self.dispatch_limit
                is_whole = self._dispatching.reached == end or limit < end
                if is_whole and not self._checkpointing.failed:
                    self._remove_abort()
        finally:
            self._release()

    def _release(self) -> None:
        self._log.close()
        self._queues.close()
        self._deleted.close()
        if self._index:
            self._index.close()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    @property
    def is_copy(self) -> bool:
        """See `IMessageStore`."""
        return self._reader.is_copy

    @is_copy.setter
    def is_copy(self, is_copy: bool) -> None:
        self._reader.is_copy = is_copy

    @property
    def cached_bytes(self) -> int:
        """See `IMessageStore`."""
        return self._reader.cached_bytes

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
        return self._dispatching.reached

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
        return self._appending.append(message, batch)

    def append_raw(self, offset: int, data: bytes) -> None:
        """See `IMessageStore`."""
        if self._refusal or self._log.failure or self._disk_full:
            raise NotWritableError(self.refusal)
        self._appending.append_raw(offset, data)

    def write_pending(self) -> int:
        """See `IMessageStore`."""
        return self._appending.write()

    def truncate_to(self, offset: int) -> None:
        """See `IMessageStore`."""
        log = self._log
        if self._refusal:
            raise NotWritableError(self._refusal)
        if not log.min_offset <= offset <= log.end_offset:
            raise StoreError(
                f"cannot truncate to {offset}: the log has {log.min_offset} to {log.end_offset}"
            )
        try:
            # Before the log shrinks: a checkpoint must never claim more than there is.
            self._checkpointing.before_cut(offset)
            log.truncate_to(offset)
            for queue in self._queues:
                if queue.max_physical > offset:
                    queue.cut_behind(offset)
                queue.next_offset = queue.max_offset
            if self._index:
                self._index.cut(offset)
            self._checkpointing.after_cut()
            self._deleted.rewrite(log.min_offset, offset)
        except OSError as error:
            self._refusal = f"a truncation to {offset} failed half-way: {error}; restart"
            raise NotWritableError(self._refusal) from error
        if self.dispatch_limit is not None:
            self.dispatch_limit = min(self.dispatch_limit, offset)
        self._appending.cut(offset)
        self._dispatching.cut(offset)

    def fsync(self) -> int:
        """See `IMessageStore`; one call at a time."""
        # First: no message may be durable that a deletion in front of it could take along.
        try:
            self._deleted.sync()
        except OSError as error:
            raise NotWritableError(f"deletions of topics cannot be synced: {error}") from error
        return self._log.fsync()

    # DispatchEntry

    def dispatch(self) -> int:
        """See `IMessageStore` and the class about how far it goes."""
        limit = self._log.written_offset
        if self.config.flush_disk_type == "SYNC_FLUSH":
            limit = min(limit, self._log.flushed_offset)
        if self.dispatch_limit is not None:
            limit = min(limit, self.dispatch_limit)
        return self._dispatching.run(limit)

    def on_arrival(self, callback: Arrival) -> Callable[[], None]:
        """See `IMessageStore`."""
        return self._dispatching.on_arrival(callback)

    # Read

    def read_queue(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_count: int,
        max_bytes: int,
        wanted: MessageFilter = EVERY_MESSAGE,
    ) -> QueueRead:
        """See `IMessageStore`."""
        queue = self._readable(topic, queue_id)
        return self._reader.read(queue, offset, max_count, max_bytes, *wanted)

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

    def search_by_key(
        self, topic: str, key: str, max_count: int, begin: int, end: int, found: list[int]
    ) -> Iterator[None]:
        """See `IMessageStore`; hashes collide, so the caller compares the keys."""
        if self._index is None:
            return iter(())
        limit = min(max_count, self.config.max_msgs_num_batch)
        return self._index.search(topic, key, limit, begin, end, found)

    @property
    def indexed(self) -> tuple[int, int]:
        """See `IMessageStore`."""
        if self._index is None or self._index.end_offset < 0:
            return 0, 0
        return self._index.end_timestamp, self._index.end_offset

    @property
    def damaged_records(self) -> int:
        """Records that reads left out because their bytes are not what was stored."""
        return self._reader.damaged

    # Housekeeping

    def remove_topics(self, topics: Iterable[str]) -> Callable[[], None]:
        """See `IMessageStore`."""
        doomed = frozenset(topics)
        end = self._log.end_offset
        try:
            self._deleted.note(
                [Deletion(topic, end, *self._queues.count_of(topic)) for topic in sorted(doomed)]
            )
        except OSError as error:
            raise NotWritableError(f"the deletion cannot be written: {error}") from error
        if doomed:
            self._dispatching.forget_topics(doomed)
        for topic in doomed:
            self._queues.remove_topic(topic)
        return self._deleted.sync

    @property
    def has_unsynced_deletions(self) -> bool:
        """See `IMessageStore`."""
        return self._deleted.unsynced

    def checkpoint(self) -> None:
        """Syncs log, queues and index, and writes the checkpoint; blocks."""
        run = self.prepare_checkpoint()
        if run is not None:
            self.fsync()
            run()

    @property
    def unsynced_files(self) -> int:
        """See `IMessageStore`."""
        return len(self._queues.unsynced.files)

    def prepare_checkpoint(self, *, thorough: bool = True) -> Callable[[], None] | None:
        """See `IMessageStore`. To be called every `flushConsumeQueueThoroughInterval` or more
        often: what lies behind the last checkpoint is read again after a crash."""
        return self._checkpointing.prepare(
            self._dispatching.reached, self._dispatching.last_timestamp, thorough=thorough
        )

    def clean(self, now_ms: int, *, at_any_hour: bool = False) -> int:
        """See `IMessageStore`."""
        pressure = disk_pressure(self.config, self._files.usage(self.paths.root))
        self._disk_full = pressure is Pressure.FULL
        log = self._log
        # What queues and index have in memory only must come from the log again after a crash.
        safe = self._checkpointing.last.safe_offset
        done = min(log.flushed_offset, self._dispatching.reached, safe)
        starts = log.file_starts
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
