"""The files of a log that are written and may not be synced, each open from its first write on.

A file is synced through the descriptor that it was written through, and never closed before. Linux
tells an error of writing back to descriptors that are open by then, and to one that is opened later
only while nobody has been told and the file's inode is still in memory: where it is not, a sync
through a new descriptor says yes to pages that are lost.

So where too many are open the oldest is synced at once, whoever waits for that: the disk does not
keep up. Files may be synced in another thread meanwhile, one at a time.
"""

from __future__ import annotations

from threading import Lock

from rocketmq_tw.files.interface import IFile


class UnsyncedHandles:
    """At most `most` files of `file_size` bytes, by where they start."""

    def __init__(self, file_size: int, most: int) -> None:
        self._file_size = file_size
        self._most = most
        self._files: dict[int, IFile] = {}
        #: Nobody may close what another syncs: the descriptor would be some other file's.
        self._syncing = Lock()
        #: Why one could not be synced: the system tells it once, and no later sync proves anything.
        self._error: OSError | None = None

    def get(self, start: int) -> IFile | None:
        """The file that starts there, where it is one of these."""
        return self._files.get(start)

    def make_room(self, flushed: int) -> None:
        """Closes those that end at or before `flushed`, up to where all is synced, and the oldest
        ones where there are too many for another one. Raises `OSError` where that cannot be synced,
        as `sync` does from then on."""
        for start in [s for s in self._files if s + self._file_size <= flushed]:
            self._files.pop(start).close()
        while len(self._files) >= self._most:
            start = min(self._files)
            self.sync(start)
            self._files.pop(start).close()

    def add(self, start: int, file: IFile) -> None:
        """It is about to be written; behind `make_room`."""
        self._files[start] = file

    def sync(self, start: int) -> None:
        """Makes the file durable that starts there, where it is one of these; raises `OSError`
        where it cannot, or one could not before."""
        with self._syncing:
            if self._error is not None:
                raise OSError(self._error.errno, self._error.strerror)
            file = self._files.get(start)
            if file is not None:
                try:
                    file.fsync()
                except OSError as error:
                    self._error = error
                    raise

    def forget(self, first: int) -> None:
        """Closes those that start at `first` or behind it, which nobody syncs now."""
        for start in [s for s in self._files if s >= first]:
            self._files.pop(start).close()
