"""Keeping the checkpoint up to date: what is synced for it, and what must not be claimed any more.

A checkpoint is prepared where the store is used and written where blocking is allowed, so that the
next one may be prepared, or even written, before it: each syncs also what the others have not yet,
and none takes the place of a younger one. One that is stopped between two files leaves the rest of
them to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from rocketmq_tw.files.interface import IFiles
from rocketmq_tw.files.reserve import NO_DESCRIPTOR
from rocketmq_tw.store.checkpoint import (
    BETWEEN_LOGS,
    NOTHING_OF_QUEUES,
    UNKNOWN,
    Checkpoint,
    read_checkpoint,
    write_checkpoint,
)
from rocketmq_tw.store.contents import StoreContents
from rocketmq_tw.store.errors import NotWritableError, StoreError
from rocketmq_tw.store.handles import Unsynced
from rocketmq_tw.store.lost_log import lacks_files

#: Names that are sorted in one go: sorting 100,000 keeps all other threads waiting.
_SORTED = 1000


def in_pieces(names: Iterable[str]) -> Iterator[str]:
    """Yields all names, where there are few in their order; of many those of each piece."""
    left = list(names)
    for start in range(0, len(left), _SORTED):
        yield from sorted(left[start : start + _SORTED])


class Rounds(NamedTuple):
    """Counts checkpoints: what was changed while `prepared` was n is on stable storage once
    `synced` is above n."""

    prepared: int
    synced: int


class CheckpointWrite:
    """A checkpoint that is prepared and not written yet; see `IMessageStore.prepare_checkpoint`."""

    def __init__(self, write: Callable[[Callable[[], bool]], bool]) -> None:
        self._write = write
        self._is_stopped = False
        #: Called, in the same thread, once it is written.
        self.then: Callable[[], None] = lambda: None

    def __call__(self) -> bool:
        """Syncs the files and writes the checkpoint; blocks. Returns False where it was stopped."""
        if not self._write(lambda: self._is_stopped):
            return False
        self.then()
        return True

    def stop(self) -> None:
        """Ends a call, in any other thread, after the file that it is syncing; the next checkpoint
        syncs the others."""
        self._is_stopped = True


class Checkpointing:
    """Writes the checkpoint of one store to the file at `path` (docs/formats/checkpoint.md). `last`
    is what the file says; after a write that failed it may say what that one had. `failed`: queues
    or index could not be synced, and no checkpoint is written any more."""

    def __init__(self, files: IFiles, path: str, contents: StoreContents) -> None:
        self.last = Checkpoint()
        self.failed = False
        self._files = files
        self._path = path
        self._log = contents.log
        self._queues = contents.queues
        self._index = contents.index
        self._deleted = contents.deleted
        #: The file, or what a power loss leaves of it, may claim something else than `last`.
        self._may_say_more = False
        #: What prepared checkpoints are to sync and have not synced yet: only they take out of it,
        #: each file once it is synced.
        self._syncing: tuple[Unsynced, ...] = ()
        #: Numbers of the last checkpoints prepared and written, or overtaken.
        self._prepared = self._written = 0
        #: The number of the last checkpoint that was written.
        self._synced = 0

    def load(self, *, clean: bool) -> Checkpoint:
        """Reads the file; a missing one claims nothing as safe. `clean`: the last stop was
        orderly."""
        self.last = read_checkpoint(self._files, self._path)
        # Of a sync that failed the page cache has more than the disk.
        self._may_say_more = not clean
        return self.last

    @property
    def rounds(self) -> Rounds:
        """Returns the number of checkpoints prepared so far, and of the last whose files are
        synced."""
        return Rounds(self._prepared, self._synced)

    def retract(self) -> None:
        """Takes back what the checkpoint claims of queues and index: after a power loss while they
        are built again they must not count as safe. The log is as safe as before."""
        last = self.last
        if self._may_say_more or last.safe_offset >= 0 or last.logics_msg_timestamp > 0:
            self._claim_log_alone(last.safe_offset)

    def before_cut(self, offset: int) -> None:
        """Takes back all claims at and behind the log offset `offset`, where the log is about to
        end, also of checkpoints that are prepared and not yet written. Nor is anything behind it
        confirmed: another master's messages take its place."""
        self._written = self._prepared
        last = self.last
        last.confirm_phy_offset = min(last.confirm_phy_offset, offset)
        if self._may_say_more or offset < last.safe_offset or last.safe_offset < 0:
            # Nor by times: what comes in place of what is cut may be older than that.
            self._claim_nothing()

    def before_beginning_anew(self) -> None:
        """Takes back all claims, also of checkpoints that are prepared and not yet written: the log
        is about to lose all of its files, which are empty."""
        self._written = self._prepared
        self._claim_log_alone(BETWEEN_LOGS)

    def claim_log(self, safe_offset: int) -> None:
        """Claims that the log is safe up to an offset, and nothing of the queues, where a start
        that is refused found that out: the next one must not take the log's damage for its end."""
        if self.last.safe_offset < safe_offset:
            self._claim_log_alone(safe_offset)

    def before_index_cut(self, offset: int) -> None:
        """Claims nothing of the index's slots where the index is about to lose entries at or behind
        a log offset: its slots are made anew."""
        if self._index is not None and self._index.end_offset >= offset:
            if self._may_say_more or offset < self.last.safe_offset:
                self._claim_nothing()
            self.forget_index_mark()

    def forget_index_mark(self) -> None:
        """Stops claiming anything of the index's slots."""
        self.last.index_begin, self.last.index_entries = -1, 1
        self._write_file(self.last)

    def _claim_nothing(self) -> None:
        self._claim_log_alone(UNKNOWN if self._log.file_starts else BETWEEN_LOGS)

    def _claim_log_alone(self, safe_offset: int) -> None:
        last = self.last
        self.last = Checkpoint(
            master_flushed_offset=last.master_flushed_offset,
            confirm_phy_offset=last.confirm_phy_offset,
            safe_offset=safe_offset,
            units=0 if safe_offset < 0 else NOTHING_OF_QUEUES,
            index_begin=last.index_begin,
            index_entries=last.index_entries,
        )
        self._write_file(self.last)

    def _write_file(self, checkpoint: Checkpoint) -> None:
        self._may_say_more = True
        write_checkpoint(self._files, self._path, checkpoint)
        self.last = checkpoint
        self._may_say_more = False

    def prepare(
        self, safe_offset: int, timestamp: int, *, thorough: bool
    ) -> CheckpointWrite | None:
        """Returns what writes a checkpoint for the log in front of `safe_offset`, whose last
        message was stored at `timestamp` (ms); see `IMessageStore.prepare_checkpoint`."""
        if self.failed or self._log.failure or lacks_files(self._log, safe_offset):
            return None
        queues, index = self._queues, self._index
        try:
            queues.write_out()
            if index is not None:
                index.write_back(slots=thorough)
                self.failed = index.failed
        except OSError as error:
            raise NotWritableError(f"queues or index cannot be written: {error}") from error
        if self.failed:
            return None
        checkpoint = Checkpoint(
            physic_msg_timestamp=timestamp,
            logics_msg_timestamp=timestamp,
            master_flushed_offset=self.last.master_flushed_offset,
            confirm_phy_offset=safe_offset,
            safe_offset=safe_offset,
            queues=queues.with_files,
            units=queues.units,
        )
        changed = bool(queues.unsynced) or any(self._syncing)
        if index is not None:
            changed = changed or bool(index.unsynced)
            checkpoint.index_msg_timestamp = index.end_timestamp
            checkpoint.index_begin, checkpoint.index_entries = index.mark
            checkpoint.index_end = index.end_offset
        if not changed and checkpoint == self.last and not self._may_say_more:
            return None
        # With what another one may still be syncing, which is not durable either.
        syncing = (*filter(None, self._syncing), queues.unsynced.taken())
        if index is not None:
            syncing += (index.unsynced.taken(),)
        self._syncing = syncing
        self._prepared += 1
        return CheckpointWrite(partial(self._write, checkpoint, self._prepared, syncing))

    def _write(
        self,
        checkpoint: Checkpoint,
        number: int,
        syncing: Sequence[Unsynced],
        is_stopped: Callable[[], bool],
    ) -> bool:
        """Writes the checkpoint once log, queues and index are durable, unless one with a higher
        number was written before. Returns False where it was stopped on the way."""
        if self._log.flushed_offset < checkpoint.safe_offset:
            raise StoreError("the log is not durable up to where the checkpoint would say")
        try:
            for path in in_pieces(set().union(*[each.files for each in syncing])):
                if is_stopped():
                    return False
                self._sync(path)
                for each in syncing:
                    each.files.discard(path)
            # Before it is durable that their queues are not where they were.
            self._deleted.sync()
            for directory in in_pieces(set().union(*[each.dirs for each in syncing])):
                if is_stopped():
                    return False
                if self._files.exists(directory):
                    self._files.sync_dir(directory)
                for each in syncing:
                    each.dirs.discard(directory)
            # What was not there any more is not synced: nothing may bring it back.
            self._deleted.sync()
        except OSError as error:
            if error.errno not in NO_DESCRIPTOR:
                # Never again a checkpoint that claims these files: the next start rebuilds them.
                self.failed = True
            raise StoreError(f"queues or index cannot be synced: {error}") from error
        self._synced = max(self._synced, number)
        if number > self._written:
            self._written = number
            self._write_file(checkpoint)
        if self._syncing is syncing:
            self._syncing = ()
        return True

    def _sync(self, path: str) -> None:
        try:
            file = self._files.open(path)
        except FileNotFoundError:
            # Removed with its topic or by retention since it was written.
            return
        try:
            file.fsync()
        finally:
            file.close()
