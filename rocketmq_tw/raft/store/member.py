"""All files of one member, `dledger-ID/` under its store directory."""

from contextlib import ExitStack, suppress

from rocketmq_tw.files.atomic import settle
from rocketmq_tw.files.interface import IFile, IFiles
from rocketmq_tw.raft.core.entry import Entry
from rocketmq_tw.raft.core.member_state import HardState
from rocketmq_tw.raft.core.raft_core import Ready
from rocketmq_tw.raft.core.snapshot import Snapshot, SnapshotMeta
from rocketmq_tw.raft.store.format import COPY_AGAIN
from rocketmq_tw.raft.store.ledger import DEFAULT_INDEX_FILE_SIZE, Ledger, UnsyncedError
from rocketmq_tw.raft.store.properties import (
    LedgerCheckpoint,
    read_ledger_checkpoint,
    read_term,
    write_ledger_checkpoint,
    write_term,
)
from rocketmq_tw.raft.store.snapshots import SnapshotFile
from rocketmq_tw.store.errors import StoreError
from rocketmq_tw.store.place import OpenedAt, PlaceWatch, why_gone
from rocketmq_tw.store.segments import Segments


class MemberStore:
    """Opens, and where need be repairs, what a member has stored. Raises `StoreError`.

    It is the core's view of the storage, and does the storing part of a `Ready`.
    """

    def __init__(
        self,
        files: IFiles,
        directory: str,
        data_file_size: int,
        index_file_size: int = DEFAULT_INDEX_FILE_SIZE,
        *,
        data_directory: str = "",
    ) -> None:
        """`data_directory` is where the entries are if that is not `data` in `directory`."""
        self._files = files
        self._directory = directory
        #: Looks whether the files are where they were opened, beside what is stored.
        self.place = PlaceWatch(files, self.places)
        files.make_dirs(directory)
        # A process that ended in front of the sync has left a name that a power loss takes back.
        settle(files, directory)
        self._lock: IFile = files.lock(f"{directory}/lock")
        self._saved_snapshot: SnapshotMeta | None = None
        self._begin_behind = -1
        #: Whether all that was to be stored is: not while `store` works, nor once it has failed.
        self._is_whole = True
        with ExitStack() as opened:
            opened.callback(self._lock.close)
            self._snapshots = SnapshotFile(files, f"{directory}/snapshot")
            opened.callback(self._snapshots.close)
            self._open(data_file_size, index_file_size, data_directory)
            opened.pop_all()

    def _open(self, data_file_size: int, index_file_size: int, data_directory: str) -> None:
        files, directory = self._files, self._directory
        hard_state = read_term(files, f"{directory}/currterm")
        checkpoint = read_ledger_checkpoint(files, f"{directory}/checkpoint")
        meta = self._snapshots.meta
        covered = -1 if meta is None else meta.index
        self._ledger = Ledger(
            files,
            directory,
            data_file_size,
            index_file_size,
            data_directory=data_directory,
            begin_pos=checkpoint.begin_pos,
            committed_index=-1
            if checkpoint.committed_index <= covered
            else checkpoint.committed_index,
            sound_index=checkpoint.end_index,
        )
        self.commit_index = max(covered, min(checkpoint.committed_index, self._ledger.end_index))
        #: What the checkpoint's file has; None where that is not known, since a write has failed.
        self._saved: LedgerCheckpoint | None = checkpoint
        #: What was to be written last, and the last entry that the file may vouch for.
        self._last, self._vouched = checkpoint, checkpoint.end_index
        if hard_state is None and (self._ledger.end_index >= 0 or meta is not None):
            raise StoreError(
                f"{directory}/currterm is missing: a vote may be forgotten; {COPY_AGAIN}"
            )
        self.hard_state = hard_state or HardState()
        if meta is not None:
            self._join(meta)

    def _join(self, meta: SnapshotMeta) -> None:
        """Drops entries that an interrupted snapshot was to replace."""
        ledger = self._ledger
        ends_before = ledger.end_index < meta.index
        inside = ledger.begin_index <= meta.index <= ledger.end_index
        if ends_before or (inside and ledger.term(meta.index) != meta.term):
            ledger.reset(meta.base)
            self._write_checkpoint(self._reached(meta.index))

    @property
    def begin_index(self) -> int:
        return self._ledger.begin_index

    @property
    def end_index(self) -> int:
        return self._ledger.end_index

    @property
    def begin_pos(self) -> int:
        """Where the first entry lies, or will lie."""
        return self._ledger.begin_pos

    @property
    def data(self) -> Segments:
        """The files with the entries, to be read while `store` writes them in another thread."""
        return self._ledger.data

    def places(self) -> list[OpenedAt]:
        """Returns open files by which to see that all are where they were opened. Touches no disk,
        in any thread."""
        directory = self._directory
        lock = OpenedAt(self._lock, f"{directory}/lock", beside=f"{directory}/index")
        return [lock, *self._ledger.places()]

    def check_place(self) -> None:
        """Raises `StoreError` where the files are not where they were opened: what is written would
        be in files that nobody finds again, and a vote elsewhere. In the thread that stores."""
        if why := why_gone(self._files, self.places()):
            raise StoreError(why)

    @property
    def size(self) -> int:
        """Bytes of the files of the log, its index and the snapshot in use: all but a few small
        ones. Does not touch the disk."""
        meta = self.snapshot
        return self._ledger.size + (0 if meta is None else meta.size)

    def end_pos_of(self, index: int) -> int:
        """Returns where entry `index` ends; where the first one lies for the index in front of
        it."""
        return self._ledger.end_pos_of(index)

    def last_index_before(self, position: int) -> int:
        """Returns the last entry that ends at or before `position`; `begin_index` - 1 where none
        does."""
        return self._ledger.last_index_before(position)

    def commit(self, index: int) -> None:
        """Notes, before a core is made, that all up to `index` is known to be committed."""
        self.commit_index = max(self.commit_index, min(index, self.end_index))

    def read(self, index: int) -> Entry:
        return self._ledger.read(index)

    def term(self, index: int) -> int:
        return self._ledger.term(index)

    @property
    def snapshot(self) -> SnapshotMeta | None:
        return self._snapshots.meta

    def read_snapshot(self, offset: int, size: int) -> bytes:
        return self._snapshots.read(offset, size)

    def store(self, ready: Ready) -> None:
        """Carries out step 1 of a `Ready`: everything is on stable storage on return. Where it
        raises `OSError` since there was no room, or no descriptor left, it may be called again with
        the same `Ready`; until that has worked no checkpoint is written."""
        self._is_whole = False
        self.check_place()
        if ready.hard_state is not None:
            write_term(self._files, f"{self._directory}/currterm", ready.hard_state)
            self.hard_state = ready.hard_state
        if ready.snapshot is not None:
            self._snapshots.save(ready.snapshot)
            self._snapshots.use(ready.snapshot.meta)
            with suppress(OSError):
                # They go with the next snapshot.
                self._snapshots.drop_others()
        writes = ready.writes
        if writes.reset is not None:
            # Entries that were committed here go: recovery must not miss them if it stops midway.
            self._write_checkpoint(LedgerCheckpoint(-1, -1, self._ledger.begin_pos))
            self._ledger.reset(writes.reset)
            self._write_checkpoint(self._reached(writes.reset.index))
        if writes.truncate_after is not None:
            self._ledger.truncate_after(writes.truncate_after)
        if writes.entries:
            self._vouch_before(writes.entries[0])
            # Where this is done again, they may be there and not be synced.
            if self._ledger.end_index < writes.entries[0].index:
                self._ledger.append(writes.entries)
            self._ledger.sync()
        self._is_whole = True

    def _vouch_before(self, entry: Entry) -> None:
        """Has the checkpoint say nothing of `entry` and what follows it, as they are to be written
        now, and where a log begins that begins inside a file."""
        committed, ledger = self._last.committed_index, self._ledger
        if ledger.begin_index < 0:
            self._write_checkpoint(LedgerCheckpoint(-1, committed, entry.pos))
        elif self._vouched >= entry.index:
            self._write_checkpoint(LedgerCheckpoint(entry.index - 1, committed, ledger.begin_pos))

    def save_snapshot(self, snapshot: Snapshot) -> None:
        """Stores a snapshot that the state machine took. Readers of log and snapshot see no change
        before `use_snapshot`."""
        self._snapshots.save(snapshot)
        self._begin_behind = self._ledger.begin_index_after_drop(snapshot.meta.index + 1)
        self._saved_snapshot = snapshot.meta

    def use_snapshot(self) -> None:
        """Lets readers see the saved snapshot, and the log begin behind the files that it covers.
        Does not touch the disk."""
        if self._saved_snapshot is not None:
            self._snapshots.use(self._saved_snapshot)
            self._ledger.begin_index = self._begin_behind
            self._saved_snapshot = None

    def begin_behind(self, position: int) -> bool:
        """Lets the log begin behind the files that end at or before `position`, the last file
        excepted; returns whether the begin has changed. Does not touch the disk."""
        begin = self._ledger.begin_index_behind(position)
        if begin <= self._ledger.begin_index:
            return False
        self._ledger.begin_index = begin
        return True

    def drop_covered(self) -> None:
        """Removes the files that are not read any more since `use_snapshot` or `begin_behind`."""
        self._snapshots.drop_others()
        self._ledger.drop_files()

    def write_checkpoint(self, committed_index: int) -> None:
        """Saves how far the log is sound and committed, from where recovery starts to look. To be
        called now and then, and before `close`. Does nothing behind a `store` that failed: entries
        may be gone that were committed, and those that seem to be there need not be durable.
        Where it raises `OSError` all is as before, but for a start that takes longer."""
        if self._is_whole:
            self._write_checkpoint(self._reached(committed_index))

    def _reached(self, committed_index: int) -> LedgerCheckpoint:
        """Returns what a checkpoint may say now. A log that begins anew has none of the entries in
        front of it, and recovery would miss those that were committed."""
        ledger, meta = self._ledger, self.snapshot
        if ledger.end_index < 0:
            committed_index = min(committed_index, -1 if meta is None else meta.index)
        return LedgerCheckpoint(ledger.end_index, committed_index, ledger.begin_pos)

    def _write_checkpoint(self, checkpoint: LedgerCheckpoint) -> None:
        if checkpoint == self._saved:
            return
        try:
            self._ledger.sync_index()
        except UnsyncedError:
            self._is_whole = False
            raise
        self._saved, self._last = None, checkpoint
        self._vouched = max(self._vouched, checkpoint.end_index)
        write_ledger_checkpoint(self._files, f"{self._directory}/checkpoint", checkpoint)
        self._saved, self._vouched = checkpoint, checkpoint.end_index

    def close(self) -> None:
        try:
            self._ledger.close()
        finally:
            self._snapshots.close()
            self._lock.close()
