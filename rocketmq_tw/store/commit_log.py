"""The commit log: every record of every topic, one after the other (docs/formats/commitlog.md).

Appends are buffered and written with one system call for each file touched. Reading and writing
are for one thread; `fsync` may run in another meanwhile, but not while `truncate_to` runs.
"""

from __future__ import annotations

from collections.abc import Sequence

from zope.interface import implementer

from rocketmq_tw.files.interface import IFile, IFiles
from rocketmq_tw.files.reserve import NO_ROOM
from rocketmq_tw.message.layout import BLANK_MAGIC, BLANK_SIZE, SIZE_AND_MAGIC
from rocketmq_tw.store.errors import IllegalMessageError, NotWritableError, StoreError
from rocketmq_tw.store.handles import HandlePool, Unsynced, UnsyncedHandles
from rocketmq_tw.store.interface import ILog
from rocketmq_tw.store.next_file import NextFile
from rocketmq_tw.store.place import OpenedAt
from rocketmq_tw.store.scan import LogScan
from rocketmq_tw.store.segments import Segments, ShortFiles

#: Files that readers of the log have open.
_HANDLES = 64
Bytes = bytes | bytearray | memoryview


@implementer(ILog)
class CommitLog:
    """See `ILog`; `plain` is as a `HandlePool` has it, which keeps up to `handles` files open."""

    front_size = 0

    def __init__(
        self,
        files: IFiles,
        directory: str,
        file_size: int,
        *,
        plain: IFiles | None = None,
        handles: int = _HANDLES,
    ) -> None:
        self._files = files
        self._pool = HandlePool(files, handles, plain=plain)
        self.segments = Segments(self._pool, directory, file_size, Unsynced())
        self._next = NextFile(self.segments, self._pool, plain or files)
        self.file_size = file_size
        self.end_offset = 0
        self.written_offset = 0
        self.flushed_offset = 0
        self.own_from = 0
        #: Why nothing can be written any more; empty while all is well.
        self.failure = ""
        #: Buffers to write, and the offset each run of them starts at.
        self._runs: list[tuple[int, list[Bytes]]] = []
        #: The only files that `fsync` touches.
        self._unsynced = UnsyncedHandles(file_size, max(2, handles // 2))

    @property
    def directory(self) -> str:
        """Where the files are."""
        return self.segments.directory

    def places(self) -> Sequence[OpenedAt]:
        """See `ILog`."""
        for start in self.segments.starts[-1:]:
            if written := self._unsynced.get(start):
                return [OpenedAt(written, self.segments.path(start))]
        return self.segments.places()

    @property
    def min_offset(self) -> int:
        """Where the oldest file starts; without files, where the first one will."""
        starts = self.segments.starts
        # Not the end: what is buffered has no file yet.
        return starts[0] if starts else self.written_offset

    @property
    def file_starts(self) -> list[int]:
        """Where each file starts, the oldest first."""
        return self.segments.starts

    @property
    def files_end(self) -> int:
        """Behind the last file, whether it is filled or not."""
        return self.segments.end

    def first_record(self, start: int) -> int:
        """See `ILog`."""
        return start

    def modified_ms(self, start: int) -> int:
        """See `ILog`."""
        return self.segments.file(start).modified_ms()

    def load(self, *, clean: bool, safe: int = -1) -> None:
        """See `ILog`."""
        self._files.make_dirs(self.segments.directory)
        # A crash may have come while a file's end was cut off.
        short = ShortFiles.REFUSE if clean else ShortFiles.EXTEND
        self.segments.load("mappedFileSizeCommitLog", short=short)

    def scan(self, position: int, end: int, *, check_body: bool = True) -> LogScan:
        """See `ILog`."""
        return LogScan(self.segments, position, end, check_body=check_body)

    def peek(self, size: int, offset: int) -> bytes:
        """See `ILog`."""
        return self.segments.pread(size, offset)

    def write_again(self, since: int) -> None:
        """See `ILog`."""
        self.segments.write_again(since)

    def end_at(self, offset: int, *, cut: bool, since: int) -> None:
        """See `ILog`."""
        if cut:
            self.segments.cut(offset, durable=True, keep_first=True)
        # What the last process removed may not be durable yet.
        self._files.sync_dir(self.segments.directory)
        for start in self.segments.starts:
            if start + self.file_size > since:
                self.segments.file(start).fsync()
        self._start_writing(offset)

    def _start_writing(self, end_offset: int) -> None:
        self._runs.clear()
        self._unsynced.forget(0)
        self.end_offset = self.written_offset = self.flushed_offset = end_offset
        self.own_from = end_offset

    def reserve(self, size: int) -> int:
        """Returns the offset at which the next `size` bytes go; a blank closes a file without
        room."""
        offset = self.end_offset
        room = self.file_size - offset % self.file_size
        if size + BLANK_SIZE > room:
            if size + BLANK_SIZE > self.file_size:
                raise IllegalMessageError(
                    f"{size} bytes do not fit in a commit-log file: raise mappedFileSizeCommitLog"
                )
            self.push(SIZE_AND_MAGIC.pack(room, BLANK_MAGIC))
            self.end_offset = offset = offset + room
        return offset

    def push_fitting(self, data: Bytes) -> bool:
        """Buffers a record at the end; False where its file has no room for it, and `reserve` must
        say where it goes."""
        offset = self.end_offset
        size = len(data)
        if size + BLANK_SIZE > self.file_size - offset % self.file_size:
            return False
        if self._runs and offset % self.file_size:
            self._runs[-1][1].append(data)
        else:
            self._runs.append((offset, [data]))
        self.end_offset = offset + size
        return True

    def push(self, data: Bytes) -> None:
        """Buffers bytes at the end; they must not cross the file's end."""
        offset = self.end_offset
        if self._runs and offset % self.file_size:
            self._runs[-1][1].append(data)
        else:
            self._runs.append((offset, [data]))
        self.end_offset = offset + len(data)

    def push_each(self, data: bytes, sizes: Sequence[int]) -> Sequence[int]:
        """Not called: records that follow each other are one run of bytes here."""
        raise StoreError("records of a plain log are pushed as one run")

    def push_raw(self, data: Bytes) -> None:
        """Buffers a replica's bytes, which may cross the ends of files."""
        view = memoryview(data)
        while view:
            room = self.file_size - self.end_offset % self.file_size
            self.push(bytes(view[:room]))
            view = view[room:]
        self.own_from = self.end_offset

    def write(self) -> int:
        """Writes what is buffered; returns the offset written.

        Where that fails, everything buffered is dropped and cut off the files again, so that none
        of it is there later; without room that is all, any other error ends all writing.
        """
        if self.failure:
            raise NotWritableError(self.failure)
        runs = self._runs
        if not runs:
            return self.written_offset
        self._runs = []
        try:
            for offset, buffers in runs:
                file, start = self._writable(offset)
                if len(buffers) == 1:
                    file.pwrite(buffers[0], offset - start)
                else:
                    file.pwritev(buffers, offset - start)
        except OSError as error:
            self._drop_after(error)
            raise NotWritableError(f"the commit log cannot be written: {error}") from error
        self.written_offset = self.end_offset
        return self.written_offset

    def fsync(self) -> int:
        """Makes what is written durable; returns the offset reached.

        After a failure the system may have dropped the pages and marked them clean, so a second
        try would prove nothing: the log stays not writable until the store is opened again.
        """
        if self.failure:
            raise NotWritableError(self.failure)
        target, before = self.written_offset, self.flushed_offset
        first = before - before % self.file_size
        try:
            for start in range(first, target, self.file_size):
                if not self._unsynced.sync_beside(start):
                    break
                # At once, so that it need not stay open.
                durable = min(start + self.file_size, target)
                self.flushed_offset = max(self.flushed_offset, durable)
        except OSError as error:
            self._sync_failed(error)
            raise NotWritableError(self.failure) from error
        if target > before:
            self._next.make(target)
        return self.flushed_offset

    def _sync_failed(self, error: OSError) -> None:
        self.failure = (
            f"fsync of the commit log failed ({error}): data behind offset "
            f"{self.flushed_offset} may be lost; check the disk and restart"
        )

    def read(self, size: int, offset: int) -> bytes:
        """Returns up to `size` written bytes, not past the end of a file; empty where there are
        none."""
        size = min(size, self.written_offset - offset)
        if size <= 0 or offset < 0:
            return b""
        return self.segments.pread(size, offset)

    def truncate_to(self, offset: int) -> None:
        """See `ILog`; where it fails, nothing can be written any more."""
        self._runs.clear()
        try:
            self._unsynced.forget(offset - offset % self.file_size)
            if offset <= max(self.segments.starts, default=-1):
                self._next.join()
            # An empty file still says where the log is, where all is cut that retention left.
            self.segments.cut(offset, durable=True, keep_first=True)
        except OSError as error:
            self.failure = f"the commit log could not be truncated to {offset}: {error}; restart"
            raise NotWritableError(self.failure) from error
        self.end_offset = self.written_offset = offset
        self.flushed_offset = min(self.flushed_offset, offset)

    def start_at(self, offset: int) -> None:
        """Lets an empty log begin elsewhere: where its master's oldest file starts."""
        if self.min_offset != self.end_offset:
            raise StoreError("only an empty commit log can begin at another offset")
        if offset % self.file_size:
            raise StoreError(
                f"a commit log cannot begin at {offset}, inside a file of {self.file_size} bytes"
            )
        try:
            self._unsynced.forget(0)
            self._next.join()
            self.segments.clear(durable=True)
        except OSError as error:
            raise NotWritableError(f"the commit log cannot begin at {offset}: {error}") from error
        self._start_writing(offset)

    def remove_first(self) -> None:
        """See `ILog`."""
        self._unsynced.discard(self.segments.starts[0])
        self.segments.remove_first()

    @property
    def has_unsynced_removals(self) -> bool:
        """See `ILog`."""
        return self.segments.removed_may_return

    def sync_removals(self) -> None:
        """See `ILog`."""
        self.segments.sync_removals()

    def close(self) -> None:
        """Closes all files; what is still buffered is gone."""
        self._unsynced.forget(0)
        self._next.close()
        self._pool.close()

    def _writable(self, offset: int) -> tuple[IFile, int]:
        start = offset - offset % self.file_size
        file = self._unsynced.get(start)
        if file is None:
            try:
                self._unsynced.make_room(self.flushed_offset)
            except OSError as error:
                self._sync_failed(error)
                raise
            if self.segments.has(start):
                # A handle of its own: the pool may close its one while another thread syncs.
                file = self._pool.open_another(self.segments.path(start))
            else:
                file = self._next.take(start)
            self._unsynced.add(start, file)
        return file, start

    def _drop_after(self, error: OSError) -> None:
        self.end_offset = self.written_offset
        try:
            # Only files that hold nothing written: another thread may be syncing the others.
            self._unsynced.forget(self.written_offset)
            start = self.segments.start_of(self.written_offset)
            opened = self._unsynced.get(start)
            self.segments.cut(self.written_offset, durable=False, keep_first=True, opened=opened)
            # What comes in their place must not be found behind refused messages, which have the
            # same queue offsets. A file that is made anew is synced then.
            if opened is not None:
                self._unsynced.sync(start)
            elif self.segments.has(start):
                self.segments.file(start).fsync()
        except OSError as second:
            cut_failed = f"a failed write ({error}) could not be cut off again: {second}"
            self.failure = self.failure or cut_failed
        if not self.failure and error.errno not in NO_ROOM:
            self.failure = f"a write to the commit log failed: {error}; check the disk and restart"
