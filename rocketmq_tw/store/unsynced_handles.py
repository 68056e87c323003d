"""The files of a log that are written and may not be synced, each open from its first write on.

A file is synced through the descriptor that it was written through, and never closed before. Linux
tells an error of writing back to descriptors that are open by then, and to one that is opened later
only while nobody has been told and the file's inode is still in memory: where it is not, a sync
through a new descriptor says yes to pages that are lost.

So where too many are open the oldest is synced at once, whoever waits for that: the disk does not
keep up. Another thread may be syncing the same file, and the system tells an error only to one of
both: so whoever meets one makes it everybody's, and the other thread believes in no sync beside
which there was one here.
"""

from __future__ import annotations

from rocketmq_tw.files.interface import IFile

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
        """The file that starts there, where it is one of these."""
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
        """It is about to be written; behind `make_room`."""
        self._files[start] = file

    def sync(self, start: int) -> None:
        """Makes the file durable that starts there, where it is one of these; raises `OSError`
        where it cannot, or one could not before."""
        self._here = start
        self._sync(start)
        # Not behind an error: until all know of it, nobody believes otherwise.
        self._here = _NONE

    def sync_beside(self, start: int) -> bool:
        """As `sync`, in another thread; False where it is not known, as the file was synced in the
        first one at the same time."""
        self._beside = start
        try:
            self._sync(start)
            return self._here != start
        finally:
            self._beside = _NONE

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
