"""The message store: one face for the log, the queues and the index of a broker.

`appending` and `dispatching` do the work on a message's way in, `reads` on its way out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress

from zope.interface import implementer

from rocketmq_tw.config.store import MessageStoreConfig
from rocketmq_tw.config.values import delay_levels_ms
from rocketmq_tw.files.interface import IFiles
from rocketmq_tw.files.reserve import ReservingFiles
from rocketmq_tw.message.batch import Batch
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.message.record import RecordHead
from rocketmq_tw.store.appending import Appending
from rocketmq_tw.store.checkpoint import Checkpoint
from rocketmq_tw.store.checkpointing import Checkpointing, CheckpointWrite
from rocketmq_tw.store.commit_log import CommitLog
from rocketmq_tw.store.contents import StoreContents
from rocketmq_tw.store.cutting import Cutting
from rocketmq_tw.store.deleted_topics import DeletedTopics
from rocketmq_tw.store.dispatch_entries import EntryMaker
from rocketmq_tw.store.dispatching import Dispatching
from rocketmq_tw.store.errors import NotWritableError, StoreError
from rocketmq_tw.store.index import MessageIndex
from rocketmq_tw.store.interface import Appended, Arrival, Disks, ILog, IMessageStore
from rocketmq_tw.store.lost_log import LostLog, lacks_files
from rocketmq_tw.store.multi_dispatch import multi_dispatch_of
from rocketmq_tw.store.paths import Ownership, StorePaths
from rocketmq_tw.store.place import OpenedAt, PlaceWatch
from rocketmq_tw.store.queue_extension import QueueExtensions
from rocketmq_tw.store.queues import HANDLES, QueueTable
from rocketmq_tw.store.reads import StoreReads
from rocketmq_tw.store.recovery import Recovery, RecoveryReport
from rocketmq_tw.store.retention import Retention
from rocketmq_tw.store.topic_removal import TopicRemoval


@implementer(IMessageStore)
class MessageStore(StoreReads):
    """See `IMessageStore`. `clock` gives milliseconds since 1970; `memory_bytes` is the machine's
    memory, from which stock reckons what is still cached; `log` is a commit log of its own unless
    another one is given; queues keep `open_files` open, its readers some more.

    With `SYNC_FLUSH`, `dispatch` stops at what is flushed: a consumer must not commit an offset
    that a power loss would give to another message. `dispatch_limit` lowers it further (a
    controller's confirmed offset); `confirmed_only`: from the start on, to what the checkpoint says
    was confirmed. `is_copy` says whether the log may be a copy of another broker's, and be behind
    that. `warn` is told in words of what retention does out of turn; see `Retention`.
    """

    def __init__(
        self,
        config: MessageStoreConfig,
        files: IFiles,
        clock: Callable[[], int],
        *,
        memory_bytes: int = 8 << 30,
        log: ILog | None = None,
        confirmed_only: bool = False,
        open_files: int = HANDLES,
        is_copy: Callable[[], bool] = lambda: False,
        warn: Callable[[str], None] = lambda text: None,
    ) -> None:
        try:
            self.delay_levels = delay_levels_ms(config.message_delay_level)
        except ValueError as error:
            levels = config.message_delay_level
            raise StoreError(f"messageDelayLevel={levels}: {error}") from error
        self.config = config
        self.paths = StorePaths(config)
        self.dispatch_limit: int | None = None
        self._confirmed_only = confirmed_only
        self.report: RecoveryReport | None = None
        # Sockets may take all descriptors while the log needs its next file. Queues and index do
        # without the reserve, since they can wait.
        self.files = reserving = ReservingFiles(files)
        self._clock = clock
        if log is None:
            size = config.mapped_file_size_commit_log
            handles = max(2, open_files // 4)
            log = CommitLog(reserving, self.paths.commit_log, size, plain=files, handles=handles)
        self.extensions = extensions = QueueExtensions(config, self.paths.queue_extensions)
        size = config.mapped_file_size_consume_queue
        queues = QueueTable(files, self.paths.consume_queue, size, extensions, open_files)
        index = None
        if config.message_index_enable:
            index = MessageIndex(
                files,
                self.paths.index,
                config.max_hash_slot_num,
                config.max_index_num,
                clock,
                lambda: self._checkpointing.rounds,
            )
        self._deleted = deleted = DeletedTopics(reserving, self.paths.deleted_topics)
        self._contents = contents = StoreContents(log, queues, index, deleted)
        super().__init__(config, contents, memory_bytes, is_copy)
        further, has_index = multi_dispatch_of(config), index is not None
        maker = EntryMaker(self.delay_levels, index=has_index, multi_dispatch=further)
        self._checkpointing = Checkpointing(reserving, self.paths.checkpoint, contents)
        self._removal = TopicRemoval(files, self.paths, contents, self._checkpointing)
        self._dispatching = Dispatching(contents, maker, self._removal.begin_anew, extensions)
        self._appending = Appending(config, contents, self._dispatching, clock, further)
        self._cutting = Cutting(contents, self._checkpointing, self._removal, self._log_ended)
        self._ownership = Ownership(reserving, self.paths)
        self._refusal = "the store is not loaded"
        #: To be looked at now and then: see `gone`.
        self.place = PlaceWatch(reserving, self._places)
        #: Something was done half: what is in memory says nothing about the files any more.
        self._is_broken = False
        self.retention = Retention(
            config, reserving, self.paths.root, contents, self._checkpointing, warn
        )

    # Life

    def load(self, advance: Callable[[int], object] = lambda count: None) -> RecoveryReport:
        """Locks, recovers, and leaves `abort` behind until `close`; see `IMessageStore`. `advance`
        is told of the bytes of the log that were read."""
        self._ownership.take()
        try:
            report = self._recover(advance)
        except BaseException:
            self._release()
            raise
        self._refusal = ""
        return report

    def _recover(self, advance: Callable[[int], object]) -> RecoveryReport:
        clean = self._ownership.was_closed
        # In front of the first change: a crash in the middle of one leaves what only an unclean
        # start accepts.
        self._ownership.mark_open()
        self.files.keep(self.paths.abort)
        try:
            checkpoint = self._open_files(clean)
        except StoreError:
            if clean and not self._queues.are_repaired:
                # Nothing was changed that a clean start minds.
                self._ownership.mark_closed()
            raise
        self.report = report = self._run_recovery(checkpoint, clean, advance)
        dispatched = report.dispatched_offset
        last = self._checkpointing.last
        self._dispatching.begin(
            dispatched, max(report.dispatched_timestamp, last.physic_msg_timestamp)
        )
        self._appending.begin(
            max(report.last_timestamp, last.physic_msg_timestamp),
            self._log.end_offset if dispatched < self._log.end_offset else 0,
        )
        is_queue_safe = last.safe_offset >= 0 and not last.is_of_log_alone
        if (report.records and not is_queue_safe) or last.safe_offset > dispatched:
            # So that the next crash need not read all of it again.
            self.checkpoint()
        if any(self._deleted.since(last)):
            # A checkpoint without them takes their place: what else is missing must be seen.
            self.checkpoint()
            self._deleted.forget_counts()
        return report

    def _open_files(self, clean: bool) -> Checkpoint:
        checkpoint = self._checkpointing.load(clean=clean)
        if self._confirmed_only:
            self.dispatch_limit = checkpoint.confirm_phy_offset
        self._removal.load()
        self._log.load(clean=clean, safe=checkpoint.safe_offset)
        # In a DLedger group checkpoint and queues tell of the group's log, which its member judges.
        is_judged = not self.config.enable_dledger_commit_log
        lost = LostLog(self._log, self.files, self.paths)
        if is_judged:
            lost.judge_by_checkpoint(checkpoint)
        self._queues.load(clean=clean)
        if is_judged:
            lost.judge_by_queues(self._queues, checkpoint, clean=clean)
        return checkpoint

    def _run_recovery(
        self, checkpoint: Checkpoint, clean: bool, advance: Callable[[int], object]
    ) -> RecoveryReport:
        if self._index and not self._index.load(checkpoint.index_mark, clean=clean):
            self._checkpointing.forget_index_mark()
        recovery = Recovery(
            self._contents,
            self._dispatching.maker,
            self._removal,
            self._checkpointing,
            check_body=self.config.check_crc_on_recover,
            advance=advance,
        )
        return recovery.run(
            checkpoint,
            clean=clean,
            queues_repaired=self._queues.are_repaired,
            limit=self.dispatch_limit,
        )

    def close(self, *, mark_closed: bool = True) -> None:
        """Writes, flushes, dispatches up to the limit, checkpoints; removes `abort` only where all
        of it held, and with `mark_closed`."""
        if not self._ownership.is_taken:
            return
        was_open = not self._refusal
        with suppress(OSError):
            self.place.take(self.place.prepare()())
        self._refusal = "the store is closed"
        try:
            # What is gone has its `abort`, wherever it is.
            if was_open and not self._log.failure and not self.gone:
                self.write_pending()
                self.fsync()
                while self.dispatch():
                    pass
                self.checkpoint()
                end = self._log.end_offset
                limit = end if self.dispatch_limit is None else self.dispatch_limit
                is_whole = self._dispatching.reached == end or limit < end
                # An empty log that was to begin elsewhere, where there was no room for its file.
                is_whole = is_whole and not lacks_files(self._log, end)
                if mark_closed and is_whole and not self._checkpointing.failed:
                    self._ownership.mark_closed()
        finally:
            self._release()

    def _break(self, why: str) -> None:
        self._refusal, self._is_broken = f"{why}; restart", True

    def _release(self) -> None:
        self._log.close()
        self._queues.close()
        self._deleted.close()
        self.files.give_up()
        if self._index:
            self._index.close()
        self._ownership.release()

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
    def failure(self) -> str:
        """Why nothing can be stored before a restart; empty while that is not so."""
        if self._log.failure or self._is_broken:
            return self._log.failure or self._refusal
        if self._checkpointing.failed:
            return "queues or index could not be synced: check the disk and restart"
        return ""

    @property
    def queue_failure(self) -> str:
        """Why a queue could not be written when that was tried last; empty where all could."""
        return self._queues.failure

    @property
    def refusal(self) -> str:
        """Why nothing can be stored now; empty while it can."""
        if self._refusal or self._log.failure or self.gone:
            return self._refusal or self._log.failure or self.gone
        if self.retention.is_disk_full:
            return (
                "the disk is nearly full: free some, lower fileReservedTime or raise "
                "diskSpaceWarningLevelRatio"
            )
        return ""

    @property
    def gone(self) -> str:
        """Why what is written now would be lost, although it can be; empty while that is not so."""
        return self.place.gone

    def _places(self) -> Sequence[OpenedAt]:
        return [*self._ownership.places(), *self._log.places()]

    # Append

    def append(self, message: StoredMessage, *, batch: Batch | None = None) -> Appended:
        """See `IMessageStore`."""
        if self._refusal or self._log.failure or self.place.gone or self.retention.is_disk_full:
            raise NotWritableError(self.refusal)
        return self._appending.append(message, batch)

    def append_raw(self, offset: int, data: bytes) -> None:
        """See `IMessageStore`."""
        if self._refusal or self._log.failure or self.place.gone or self.retention.is_disk_full:
            raise NotWritableError(self.refusal)
        if self._log.end_offset == self._log.min_offset != offset:
            self._claim_no_log()
        self._appending.append_raw(offset, data)

    def _claim_no_log(self) -> None:
        """Before an empty log begins elsewhere: for a moment it has no file."""
        try:
            self._checkpointing.before_beginning_anew()
        except OSError as error:
            raise NotWritableError(f"the checkpoint cannot be taken back: {error}") from error

    def write_pending(self) -> int:
        """See `IMessageStore`."""
        try:
            return self._appending.write()
        except StoreError:
            try:
                if not self._log.failure:
                    self._deleted.take_back(self._log.written_offset)
            except OSError as error:
                self._break(f"a deletion cannot be taken back: {error}")
            raise

    def settle_deletions(self) -> None:
        """See `IMessageStore`."""
        try:
            self._removal.settle()
        except OSError as error:
            raise NotWritableError(f"deleted queues cannot be removed: {error}") from error

    def truncate_to(self, offset: int) -> Iterator[None]:
        """See `IMessageStore`."""
        if self._refusal:
            raise NotWritableError(self._refusal)
        self._cutting.check(offset)
        self._refusal = under_way = f"the log is being cut at {offset}: try again"
        try:
            for _ in self._cutting.run(offset):
                yield
                if self._refusal != under_way:
                    raise NotWritableError(self._refusal)
        except OSError as error:
            self._break(f"a truncation to {offset} failed half-way: {error}")
            raise NotWritableError(self._refusal) from error
        except GeneratorExit:
            if self._refusal == under_way:
                self._break(f"a truncation to {offset} was given up half-way")
            raise
        finally:
            if self._refusal == under_way:
                # A log that failed says so itself.
                self._refusal = ""
        if self.dispatch_limit is not None:
            self.dispatch_limit = min(self.dispatch_limit, offset)

    # A log that others write too

    def log_grew(self) -> None:
        """Notes that the log got records that were not appended here: they are dispatched from
        there."""
        self._appending.log_grew()

    def log_shrank(self) -> None:
        """Takes back what the log dropped that was appended and not dispatched. Raises
        `NotWritableError`, and then nothing can be stored before a restart."""
        end = self._log.end_offset
        self._log_ended(end)
        for queue in self._queues:
            queue.next_offset = queue.max_offset
        try:
            self._deleted.take_back(end)
        except OSError as error:
            self._break(f"a deletion cannot be taken back: {error}")
            raise NotWritableError(self._refusal) from error

    def _log_ended(self, end: int) -> None:
        self._appending.cut(end)
        self._dispatching.cut(end)

    def log_began_anew(self) -> None:
        """Notes that the log begins behind all that it had: readers find that removed."""
        begin = self._log.min_offset
        self.log_shrank()
        self._dispatching.pass_over(begin)
        for queue in self._queues:
            queue.correct_min_offset(begin)

    def fsync(self) -> int:
        """See `IMessageStore`; one call at a time."""
        # First: no message may be durable that a deletion in front of it could take along.
        try:
            self._deleted.sync()
        except OSError as error:
            raise NotWritableError(f"deletions of topics cannot be synced: {error}") from error
        return self._log.fsync()

    # Dispatch

    def dispatch(self) -> int:
        """See `IMessageStore` and the class about how far it goes."""
        return 0 if self._cutting.is_under_way else self._dispatching.run(self._dispatch_end())

    @property
    def is_dispatched(self) -> bool:
        """See `IMessageStore`."""
        return self._dispatching.reached >= self._dispatch_end()

    def _dispatch_end(self) -> int:
        limit = self._log.written_offset
        if self.config.flush_disk_type == "SYNC_FLUSH":
            limit = min(limit, self._log.flushed_offset)
        if self.dispatch_limit is not None:
            limit = min(limit, self.dispatch_limit)
        return limit

    def on_arrival(self, callback: Arrival, topic: str | None = None) -> Callable[[], None]:
        """See `IMessageStore`."""
        return self._dispatching.on_arrival(callback, topic)

    def places_of(self, head: RecordHead) -> Iterator[tuple[str, int, int]]:
        """See `IMessageStore`."""
        entry = self._dispatching.maker.of_head(head)
        if entry.in_queue and not self._deleted.covers(head.topic, head.physical_offset):
            yield head.topic, head.queue_id, head.queue_offset
        yield from entry.further

    # Housekeeping

    def remove_topics(self, topics: Iterable[str]) -> None:
        """See `IMessageStore`."""
        doomed = frozenset(topics)
        if self._is_broken:
            # What a deletion left half-written must stay the last that is there.
            raise NotWritableError(self._refusal)
        try:
            self._removal.remove(doomed)
        except OSError as error:
            if self._deleted.is_stale:
                self._break(f"a deletion was written in part: {error}")
            raise NotWritableError(f"the deletion cannot be written: {error}") from error
        self._dispatching.forget_topics(doomed)

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

    def write_queues(self) -> Iterator[None]:
        """See `IMessageStore`."""
        for _ in self._queues.write_in_steps():
            yield
            if self._refusal:
                return

    def prepare_checkpoint(self, *, thorough: bool = True) -> CheckpointWrite | None:
        """See `IMessageStore`. To be called every `flushConsumeQueueThoroughInterval` or more
        often: what lies behind the last checkpoint is read again after a crash."""
        if self._is_broken or self.gone or self._cutting.is_under_way:
            return None
        write = self._checkpointing.prepare(
            self._dispatching.reached, self._dispatching.last_timestamp, thorough=thorough
        )
        if write is not None:
            write.then = self._removal.remove_files
        return write

    def clean(
        self, now_ms: int, *, at_any_hour: bool = False, disks: Disks | None = None
    ) -> Iterator[int]:
        """See `IMessageStore`."""
        if self._refusal or self.gone:
            return
        reached, cuts = self._dispatching.reached, self._cutting.begun
        retention = self.retention
        for removed in retention.run(reached, now_ms, at_any_hour=at_any_hour, disks=disks):
            yield removed
            if self._refusal or self.gone or self._cutting.begun != cuts:
                # It was closed meanwhile, or broke, or has other messages at the same offsets.
                return
        self._deleted.forget(self._log.min_offset, self._checkpointing.last)

    @property
    def has_unsynced_removals(self) -> bool:
        """See `IMessageStore`."""
        return self._log.has_unsynced_removals

    def sync_removals(self) -> None:
        """See `IMessageStore`."""
        self._log.sync_removals()
