"""The next file of a log, made while the last one still has room.

A file has to be durable, with its name and size, before anything is written into it: two syncs,
which the thread that syncs the log makes in advance. A write that finds none makes it itself, also
while the thread is at it: nothing that the thread does then harms what is there already.
"""

from __future__ import annotations

from contextlib import suppress

from rocketmq_tw.files.interface import IFile, IFiles
from rocketmq_tw.store.handles import HandlePool
from rocketmq_tw.store.segments import Segments


class NextFile:
    """The file behind `segments`, each of which is durable from the beginning. One thread uses it;
    only `make` may run in another one meanwhile, and opens files by `files`."""

    def __init__(self, segments: Segments, pool: HandlePool, files: IFiles) -> None:
        self._segments = segments
        self._pool = pool
        self._files = files
        #: Where the file starts that was made in advance, and it opened: set where there is none by
        #: the thread that makes it, taken away by the other one only.
        self._ready: tuple[int, IFile] | None = None
        #: Where the last one starts that could not be made; it may be there in part.
        self._failed = -1

    def make(self, written: int) -> None:
        """Makes the file where the last one is half full, as the log's written end `written` tells.
        Where that fails it is not tried again."""
        # In this order: what was taken away is one of the segments before.
        if self._ready is not None:
            return
        start = self._segments.end
        if not start or start == self._failed:
            return
        if written >= start - self._segments.file_size // 2:
            self._failed = start
            with suppress(OSError):
                self._ready = start, self._create(self._segments.path(start))
                self._failed = -1

    def _create(self, path: str) -> IFile:
        file = self._files.open(path, create=True)
        try:
            # A write may have made and filled it meanwhile: it is never made shorter here.
            file.truncate(self._segments.file_size)
            file.fsync()
            self._files.sync_dir(self._segments.directory)
        except OSError:
            file.close()
            raise
        return file

    def take(self, start: int) -> IFile:
        """Returns the open file that starts at `start`, which is one of the segments from now on;
        made here where it is not there yet. Raises `OSError`."""
        segments, ready = self._segments, self._ready
        path = segments.path(start)
        # It is not there any more where one that was made here at the same time had to go again.
        if ready and ready[0] == start and ready[1].is_at(path):
            segments.take_in(start)
            self._ready = None
            return ready[1]
        self.close()
        segments.add(start, durable=True)
        # A handle of its own: the pool may close its one while another thread syncs.
        return self._pool.open_another(path)

    def join(self) -> None:
        """Makes the file one of the segments before these are cut: it would be behind a gap. Not
        while another thread makes it."""
        start = self._ready[0] if self._ready else self._failed
        self.close()
        if start == self._segments.end and self._files.exists(self._segments.path(start)):
            self._segments.take_in(start)
        self._failed = -1

    def close(self) -> None:
        """Closes the file; a start takes it for an empty one of the segments."""
        ready, self._ready = self._ready, None
        if ready:
            ready[1].close()
