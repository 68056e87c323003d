"""Open files: kept for the next use, and for the sync of what was written through them.

A log's file is synced through the descriptor that it was written through, and never closed before.
Linux reports a failed write-back to all descriptors that are open then; to one opened later it
reports it only if no other has seen the error and the inode is still in memory. Otherwise a sync
through a new descriptor succeeds although pages are lost.

So where too many files are open, the oldest is synced at once: the disk does not keep up. Where two
threads sync one file, the system reports an error to one of them only. The thread that gets it
marks the file as failed for both, and the other thread does not trust a sync that ran beside one.
"""

from __future__ import annotations

from collections import OrderedDict

from rocketmq_tw.files.interface import IFile, IFiles
from rocketmq_tw.files.reserve import NO_DESCRIPTOR


class HandlePool:
    """With a `limit` the least recently used file is closed first, and one thread may use the pool;
    without one every file stays open, and others may `get` those that are while one thread opens
    or closes.

    `plain` opens without a reserve of descriptors: where it finds none left, the pool first closes
    files of its own, and then asks `files`.
    """

    def __init__(
        self, files: IFiles, limit: int | None = None, *, plain: IFiles | None = None
    ) -> None:
        self.files = files
        self._plain = plain or files
        self._limit = limit
        self._open: OrderedDict[str, IFile] = OrderedDict()

    def get(self, path: str, *, create: bool = False) -> IFile:
        """Returns the open file at `path`; opened where it is not, and made there with `create`."""
        handle = self._open.get(path)
        if handle is not None:
            if self._limit is not None:
                self._open.move_to_end(path)
            return handle
        handle = self.open_another(path, create=create)
        self._open[path] = handle
        if self._limit is not None and len(self._open) > self._limit:
            self._open.popitem(last=False)[1].close()
        return handle

    def opened(self, path: str) -> IFile | None:
        """Returns the file at `path` where it is open; in any thread."""
        return self._open.get(path)

    def open_another(self, path: str, *, create: bool = False) -> IFile:
        """Opens a file that is not the pool's. Where no descriptor is left, the pool closes half
        of its own."""
        try:
            return self._plain.open(path, create=create)
        except OSError as error:
            if error.errno not in NO_DESCRIPTOR:
                raise
        if self._limit is not None:
            for _ in range((len(self._open) + 1) // 2):
                self._open.popitem(last=False)[1].close()
        return self.files.open(path, create=create)

    def forget(self, path: str) -> None:
        """Closes the file at `path` if it is open."""
        handle = self._open.pop(path, None)
        if handle is not None:
            handle.close()

    def close(self) -> None:
        """Closes all."""
        while self._open:
            self._open.popitem()[1].close()


class Unsynced:
    """Paths of files, and of directories whose names changed."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.dirs: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self.files or self.dirs)

    def taken(self) -> Unsynced:
        """Returns all that is here, and is not any more."""
        taken = Unsynced()
        taken.files, self.files = self.files, taken.files
        taken.dirs, self.dirs = self.dirs, taken.dirs
        return taken


_NONE = -1


class UnsyncedHandles:
    """At most `most` files of `file_size` bytes, by where they start. One thread uses them; only
    `sync_beside` may run in another one meanwhile."""

    def __init__(self, file_size: int, most: int) -> None:
        self._file_size = file_size
        self._most = most
        self._files: dict[int, IFile] = {}
        #: Which file each of the two threads is at.
        self._beside = self._here = _NONE
        #: Closed as soon as the other thread is not at them: a descriptor would be another file's.
        self._parked: list[tuple[int, IFile]] = []
        #: Why one could not be synced: the system tells it once, and no later sync proves anything.
        self._error: OSError | None = None

    def get(self, start: int) -> IFile | None:
        """Returns the file that starts there, where it is one of these."""
        return self._files.get(start)

    def make_room(self, flushed: int) -> None:
        """Closes those that end at or before `flushed`, up to where all is synced, and the oldest
        ones where there are too many for another one. Raises `OSError` where that cannot be synced,
        as each sync does from then on."""
        for start in [s for s in self._files if s + self._file_size <= flushed]:
            self._close(start)
        while len(self._files) >= self._most:
            start = min(self._files)
            self.sync(start)
            self._close(start)

    def add(self, start: int, file: IFile) -> None:
        """Adds a file that is about to be written; to be called behind `make_room`."""
        self._files[start] = file

    def sync(self, start: int) -> None:
        """Makes the file durable that starts there, where it is one of these; raises `OSError`
        where it cannot, or one could not before."""
        self._here = start
        self._sync(start)
        # Not behind an error: until all know of it, nobody believes otherwise.
        self._here = _NONE

    def sync_beside(self, start: int) -> bool:
        """Syncs the file that starts there in another thread, as `sync` does in the first. Returns
        False where the result is not known, since the first thread synced that file at the same
        time."""
        self._beside = start
        try:
            self._sync(start)
            return self._here != start
        finally:
            self._beside = _NONE

    def discard(self, start: int) -> None:
        """Closes the file that starts there, where it is one of these: it is removed, and a
        descriptor would keep its blocks on the disk."""
        if start in self._files:
            self._close(start)

    def forget(self, first: int) -> None:
        """Closes those that start at `first` or behind it, synced or not."""
        for start in [s for s in self._files if s >= first]:
            self._close(start)

    def _sync(self, start: int) -> None:
        file = self._files.get(start)
        if file is not None:
            try:
                file.fsync()
            except OSError as error:
                self._error = error
                raise
        if self._error is not None:
            raise OSError(self._error.errno, self._error.strerror)

    def _close(self, start: int) -> None:
        # Out of reach first, then the look whether the other thread has it.
        self._parked.append((start, self._files.pop(start)))
        at = self._beside
        for parked, file in self._parked:
            if parked != at:
                file.close()
        self._parked = [one for one in self._parked if one[0] == at]
