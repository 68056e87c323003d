"""A long run of bytes in files of one size, each named by its first offset in 20 digits.

A commit log, a consume queue, and entries and index of a DLedger member are such runs. A file has
its full size from its creation on (sparse), because stock refuses to load one that has not. Offsets
count over all files.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from itertools import pairwise

from rocketmq_tw.files.atomic import PIECE, write_again
from rocketmq_tw.files.interface import IFile
from rocketmq_tw.store.errors import DamagedStoreError, StoreError
from rocketmq_tw.store.handles import HandlePool, Unsynced
from rocketmq_tw.store.place import OpenedAt

NAME_DIGITS = 20


class ShortFiles(Enum):
    """The ways in which `Segments.load` takes files that are too short; one that is extended gets
    zeros."""

    REFUSE = "refuse"
    EXTEND = "extend"


def segment_name(start: int) -> str:
    """Returns the name of the file that starts at an offset."""
    return f"{start:020d}"


class Segments:
    """The files of one directory. `starts` is sorted and without gaps; changes that are not made
    durable at once are noted in `unsynced`.

    With `ahead`, so many zeros are written behind what is written, as they read anyway: a sync of
    bytes that overwrite zeros needs no entry in the file system's journal.
    """

    def __init__(
        self,
        pool: HandlePool,
        directory: str,
        file_size: int,
        unsynced: Unsynced,
        *,
        ahead: int = 0,
    ) -> None:
        self.directory = directory
        self.file_size = file_size
        self.starts: list[int] = []
        self.unsynced = unsynced
        self._pool = pool
        self._files = pool.files
        #: `starts` as a set, for readers while another thread changes them.
        self._present: set[int] = set()
        #: The last file asked for by its path, which is nearly always the one asked for next.
        self._path = (-1, "")
        self._ahead = ahead
        #: Up to where a file has zeros behind what was written, by its start.
        self._zeroed: dict[int, int] = {}
        #: How many files were removed, and how many of these removals are durable: a power loss may
        #: bring back some of the others.
        self.removals = self._durable_removals = 0

    @property
    def end(self) -> int:
        """Behind the last file; 0 without files."""
        return self.starts[-1] + self.file_size if self.starts else 0

    def path(self, start: int) -> str:
        """Returns the path of the file that starts at an offset."""
        known, path = self._path
        if known != start:
            path = f"{self.directory}/{segment_name(start)}"
            self._path = start, path
        return path

    def load(
        self, size_key: str, *, short: ShortFiles = ShortFiles.REFUSE, drop_behind_gap: bool = False
    ) -> bool:
        """Lists the files; returns whether one had to be repaired.

        An empty last file behind others is removed: a crash left it before its first write. Raises
        `DamagedStoreError` that names `size_key` where sizes or names are wrong in a way that
        `short` and `drop_behind_gap` (only for what can be had again) do not allow.
        """
        starts = sorted(
            int(name)
            for name in self._files.list(self.directory)
            if len(name) == NAME_DIGITS and name.isascii() and name.isdigit()
        )
        repaired = False
        # Before any file is changed: a wrong size in the configuration shows here.
        for before, after in pairwise(starts):
            if after - before != self.file_size:
                if drop_behind_gap and not (after - before) % self.file_size:
                    for start in starts[starts.index(after) :]:
                        self._remove(start)
                    starts = starts[: starts.index(after)]
                    repaired = True
                    break
                raise DamagedStoreError(
                    f"{self.path(after)} does not follow {segment_name(before)}: a file is "
                    f"missing, or set {size_key} to what the store was written with"
                )
        if starts and starts[0] % self.file_size:
            raise DamagedStoreError(
                f"{self.path(starts[0])} is no multiple of {size_key} = {self.file_size}: set "
                f"{size_key} to what the store was written with"
            )
        for start in list(starts):
            file = self._pool.get(self.path(start))
            size, is_last = file.size(), start == starts[-1]
            if size == self.file_size:
                continue
            # The only one says where all of them are; a crash while it was emptied left it so.
            if size == 0 and is_last and (len(starts) > 1 or short is ShortFiles.REFUSE):
                self._remove(start)
                starts.pop()
                break
            if short is ShortFiles.REFUSE or size > self.file_size:
                raise DamagedStoreError(
                    f"{self.path(start)} has {size} bytes where {size_key} says {self.file_size}: "
                    f"set {size_key} to what the store was written with, or restore the file"
                )
            file.truncate(self.file_size)
            self.unsynced.files.add(self.path(start))
            repaired = True
        self.starts = starts
        self._present = set(starts)
        return repaired

    def start_of(self, offset: int) -> int:
        """Returns the start of the file that an offset falls into, there or not."""
        return offset - offset % self.file_size

    def has(self, start: int) -> bool:
        """Returns whether the file that starts there exists."""
        return start in self._present

    def file(self, start: int) -> IFile:
        """Returns the open file that starts at `start`."""
        return self._pool.get(self.path(start))

    def places(self) -> list[OpenedAt]:
        """Returns the last file, by which to see that all are where they were opened. Touches no
        disk, in any thread."""
        paths = [self.path(start) for start in self.starts[-1:]]
        return [OpenedAt(self._pool.opened(path), path) for path in paths]

    def add(self, start: int, *, durable: bool) -> IFile:
        """Creates the next file in its full size; `durable`: its size and name are synced."""
        if self.starts and start != self.end:
            raise StoreError(f"{self.path(start)} would leave a gap behind {self.end}")
        try:
            file = self._create(start, durable)
        except OSError:
            self._take_back(start)
            raise
        self.take_in(start)
        return file

    def take_in(self, start: int) -> None:
        """Takes in the next file, which somebody made in its full size and durable."""
        self.starts.append(start)
        self._present.add(start)

    def _create(self, start: int, durable: bool) -> IFile:
        path = self.path(start)
        file = self._pool.get(path, create=True)
        if file.size():
            # Left over by something that failed.
            file.truncate(0)
        file.truncate(self.file_size)
        if durable:
            file.fsync()
            self._files.sync_dir(self.directory)
        else:
            self.unsynced.files.add(path)
            self.unsynced.dirs.add(self.directory)
        return file

    def _take_back(self, start: int) -> None:
        """Removes a file that could not be made whole: it must not be found behind a gap later."""
        try:
            if self._files.exists(self.path(start)):
                self._remove(start)
        except OSError:
            # A cut removes it with the other files.
            self.starts.append(start)

    def write(self, buffers: Sequence[bytes], offset: int, *, durable_name: bool = False) -> None:
        """Writes the buffers, one after the other, from `offset`; all must fit in its file, which
        is made if it is the next one. The file is unsynced from now on; with `durable_name` the
        name and size of a new one are not."""
        start = offset - offset % self.file_size
        if start not in self._present:
            self.add(start, durable=durable_name)
        path = self.path(start)
        file = self._pool.get(path)
        if len(buffers) == 1:
            file.pwrite(buffers[0], offset - start)
        else:
            file.pwritev(buffers, offset - start)
        self.unsynced.files.add(path)
        if self._ahead:
            self._write_zeros(file, start, offset - start + sum(map(len, buffers)))

    def _write_zeros(self, file: IFile, start: int, end: int) -> None:
        if end > self._zeroed.get(start, -1):
            zeroed = min(self.file_size, end + self._ahead)
            file.pwrite(bytes(zeroed - end), end)
            self._zeroed[start] = zeroed

    def write_again(self, since: int) -> None:
        """Writes what the files have from `since` on as it is read; durable when it returns."""
        for start in self.starts:
            at = max(since - start, 0)
            if at >= self.file_size:
                continue
            file = self.file(start)
            while at < self.file_size and file.may_have_data(at):
                at = write_again(file, at, min(at + PIECE, self.file_size))
            # By what it was written through, see `handles`.
            file.fsync()

    def sync(self) -> None:
        """Makes all durable that `unsynced` has, where no others note their changes in it."""
        files, dirs = sorted(self.unsynced.files), sorted(self.unsynced.dirs)
        for path in files:
            self._pool.get(path).fsync()
        for directory in dirs:
            self._files.sync_dir(directory)
        self.unsynced.files.difference_update(files)
        self.unsynced.dirs.difference_update(dirs)

    def sync_names(self) -> None:
        """Makes durable which files there are, where that is not."""
        if self.directory in self.unsynced.dirs and self._files.exists(self.directory):
            self.sync_removals()
        self.unsynced.dirs.discard(self.directory)

    @property
    def removed_may_return(self) -> bool:
        """Whether the next removal syncs first, so that no power loss brings back what went before
        it."""
        return self.removals > self._durable_removals

    def sync_removals(self) -> None:
        """Makes durable that files are removed; in any thread, meanwhile others may be."""
        removals = self.removals
        self._files.sync_dir(self.directory)
        self.removals_are_durable(removals)

    def removals_are_durable(self, removals: int) -> None:
        """Notes that so many of the removals, the first ones, are durable."""
        self._durable_removals = max(self._durable_removals, removals)

    def remove_first(self) -> None:
        """Removes the oldest file."""
        self._settle_removals()
        self._remove(self.starts[0])
        del self.starts[0]

    def remove_before(self, offset: int) -> None:
        """Removes the files that end at or before `offset`; durable when it returns."""
        while self.starts and self.starts[0] + self.file_size <= offset:
            self.remove_first()
            self.sync_names()

    def pread(self, size: int, offset: int) -> bytes:
        """Returns up to `size` bytes from `offset`, not past its file's end; empty where no file
        is."""
        start = offset - offset % self.file_size
        if start not in self._present:
            return b""
        room = start + self.file_size - offset
        return self.file(start).pread(size if size < room else room, offset - start)

    def clear(self, *, durable: bool = False) -> None:
        """Removes all files."""
        while self.starts:
            self._remove_last(durable)

    def cut(
        self,
        offset: int,
        *,
        durable: bool,
        keep_first: bool = False,
        opened: IFile | None = None,
        synced: bool = False,
    ) -> None:
        """Removes what lies at and behind `offset`: later files go, the rest of its file is zeros.

        `keep_first`: the oldest file stays even where it is empty then. `opened`: the file that
        `offset` falls into, where the caller has it open. `synced`: all that there is now is
        durable.
        """
        while self.starts and self.starts[-1] >= offset:
            if keep_first and len(self.starts) == 1:
                break
            self._remove_last(durable)
        if self.starts and offset < self.end:
            start = self.starts[-1]
            file = opened or self.file(start)
            at, is_changed = max(offset - start, 0), False
            # A truncation costs each sync a commit of the file system's journal.
            if durable or file.may_have_data(at):
                self._zeroed.pop(start, None)
                file.truncate(at)
                file.truncate(self.file_size)
                is_changed = True
            if durable:
                file.fsync()
                self.unsynced.files.discard(self.path(start))
            elif is_changed or not synced:
                self.unsynced.files.add(self.path(start))
        if durable:
            self.sync_names()

    def close(self) -> None:
        """Closes the files, and all others of the pool."""
        self._pool.close()

    def _remove_last(self, durable: bool) -> None:
        self._settle_removals()
        self._remove(self.starts[-1])
        self.starts.pop()
        if durable:
            self.sync_names()

    def _settle_removals(self) -> None:
        """Before another file goes: where that one were gone and a former one back, there would be
        a gap."""
        if self.removed_may_return:
            self.sync_removals()

    def _remove(self, start: int) -> None:
        path = self.path(start)
        # First, so that no other thread opens it again.
        self._present.discard(start)
        self._pool.forget(path)
        try:
            self._files.remove(path)
        except OSError:
            self._present.add(start)
            raise
        self._zeroed.pop(start, None)
        self.removals += 1
        self.unsynced.files.discard(path)
        self.unsynced.dirs.add(self.directory)
