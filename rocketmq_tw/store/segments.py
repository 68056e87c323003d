"""A sequence of fixed-size files, each named by the offset of its first byte in 20 digits.

A file has its full size from its creation on (sparse), because stock refuses to load one that has
not. Offsets are positions in the sequence.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from itertools import pairwise

from rocketmq_tw.files.interface import IFile, IFiles
from rocketmq_tw.store.errors import DamagedStoreError, StoreError

NAME_DIGITS = 20


def segment_name(start: int) -> str:
    """The name of the file that starts at an offset."""
    return f"{start:020d}"


class HandlePool:
    """Open files by path, the least recently used closed first; not for several threads."""

    def __init__(self, files: IFiles, limit: int) -> None:
        self.files = files
        self._limit = limit
        self._open: OrderedDict[str, IFile] = OrderedDict()

    def get(self, path: str, *, create: bool = False) -> IFile:
        """The open file at `path`."""
        handle = self._open.get(path)
        if handle is not None:
            self._open.move_to_end(path)
            return handle
        handle = self.files.open(path, create=create)
        self._open[path] = handle
        if len(self._open) > self._limit:
            self._open.popitem(last=False)[1].close()
        return handle

    def forget(self, path: str) -> None:
        """Closes the file at `path` if it is open."""
        handle = self._open.pop(path, None)
        if handle is not None:
            handle.close()

    def forget_below(self, directory: str) -> None:
        """Closes all files below a directory."""
        below = directory + "/"
        for path in [path for path in self._open if path.startswith(below)]:
            self.forget(path)

    def close(self) -> None:
        """Closes all."""
        while self._open:
            self._open.popitem()[1].close()


class Unsynced:
    """What was changed and not synced yet: paths of files, and directories whose names changed;
    at first what `other` has."""

    def __init__(self, other: Unsynced | None = None) -> None:
        self.files: set[str] = set(other.files) if other else set()
        self.dirs: set[str] = set(other.dirs) if other else set()

    def __bool__(self) -> bool:
        return bool(self.files or self.dirs)

    def take(self, other: Unsynced) -> None:
        """Takes over all that the other has."""
        self.files |= other.files
        self.dirs |= other.dirs
        other.files, other.dirs = set(), set()

    def forget_below(self, directory: str) -> None:
        """Forgets a directory that was removed."""
        below = directory + "/"
        self.files = {path for path in self.files if not path.startswith(below)}
        self.dirs = {path for path in self.dirs if not (path + "/").startswith(below)}


class Segments:
    """The files of one directory. `starts` is sorted and without gaps; changes that are not made
    durable at once are noted in `unsynced`."""

    def __init__(
        self, pool: HandlePool, directory: str, file_size: int, unsynced: Unsynced
    ) -> None:
        self.directory = directory
        self.file_size = file_size
        self.starts: list[int] = []
        self.unsynced = unsynced
        self._pool = pool
        self._files = pool.files
        #: The last file asked for by its path, which is nearly always the one asked for next.
        self._path = (-1, "")

    @property
    def end(self) -> int:
        """Behind the last file; 0 without files."""
        return self.starts[-1] + self.file_size if self.starts else 0

    def path(self, start: int) -> str:
        """The path of the file that starts at an offset."""
        if self._path[0] != start:
            self._path = start, f"{self.directory}/{segment_name(start)}"
        return self._path[1]

    def load(self, size_key: str, *, repair: bool = False) -> bool:
        """Lists the files; returns whether one had to be repaired.

        An empty last file is removed: a crash left it between creation and first write. Any other
        wrong size is an error that names `size_key`, unless `repair` lets a file be extended with
        zeros (only for what can be rebuilt).
        """
        starts = sorted(
            int(name)
            for name in self._files.list(self.directory)
            if len(name) == NAME_DIGITS and name.isascii() and name.isdigit()
        )
        repaired = False
        for index, start in enumerate(starts):
            file = self._pool.get(self.path(start))
            size = file.size()
            if size == self.file_size:
                continue
            if size == 0 and index == len(starts) - 1:
                self._remove(start)
                starts.pop()
                break
            if not repair or size > self.file_size:
                raise DamagedStoreError(
                    f"{self.path(start)} has {size} bytes where {size_key} says {self.file_size}: "
                    f"set {size_key} to what the store was written with, or restore the file"
                )
            file.truncate(self.file_size)
            self.unsynced.files.add(self.path(start))
            repaired = True
        for before, after in pairwise(starts):
            if after - before != self.file_size:
                if repair and not (after - before) % self.file_size:
                    for start in starts[starts.index(after) :]:
                        self._remove(start)
                    starts = starts[: starts.index(after)]
                    repaired = True
                    break
                raise DamagedStoreError(
                    f"{self.path(after)} does not follow {segment_name(before)}: a file is "
                    f"missing, or {size_key} is not what the store was written with"
                )
        if starts and starts[0] % self.file_size:
            raise DamagedStoreError(
                f"{self.path(starts[0])} is no multiple of {size_key} = {self.file_size}"
            )
        self.starts = starts
        return repaired

    def start_of(self, offset: int) -> int:
        """The start of the file that an offset falls into, there or not."""
        return offset - offset % self.file_size

    def has(self, start: int) -> bool:
        """Whether the file that starts there exists."""
        if self.starts and self.starts[-1] == start:
            return True
        index = bisect_right(self.starts, start) - 1
        return index >= 0 and self.starts[index] == start

    def file(self, start: int) -> IFile:
        """The open file that starts at `start`."""
        return self._pool.get(self.path(start))

    def add(self, start: int, *, durable: bool) -> IFile:
        """Creates the next file in its full size; `durable`: its size and name are synced."""
        if self.starts and start != self.end:
            raise StoreError(f"{self.path(start)} would leave a gap behind {self.end}")
        path = self.path(start)
        file = self._pool.get(path, create=True)
        file.truncate(self.file_size)
        if durable:
            file.fsync()
            self._files.sync_dir(self.directory)
        else:
            self.unsynced.files.add(path)
            self.unsynced.dirs.add(self.directory)
        self.starts.append(start)
        return file

    def write(self, data: bytes, start: int, position: int) -> None:
        """Writes at `position` of the file that starts at `start`, which is made if it is the next;
        the file is unsynced from now on."""
        if not self.has(start):
            self.add(start, durable=False)
        path = self.path(start)
        self._pool.get(path).pwrite(data, position)
        self.unsynced.files.add(path)

    def remove_first(self) -> None:
        """Removes the oldest file."""
        self._remove(self.starts[0])
        del self.starts[0]

    def pread(self, size: int, offset: int) -> bytes:
        """Up to `size` bytes from `offset`, not past its file's end; empty where no file is."""
        start = offset - offset % self.file_size
        if not self.has(start):
            return b""
        return self.file(start).pread(size, offset - start)

    def clear(self) -> None:
        """Removes all files."""
        while self.starts:
            self._remove(self.starts.pop())

    def cut(self, offset: int, *, durable: bool, keep_first: bool = False) -> None:
        """Removes what lies at and behind `offset`: later files go, the rest of its file is zeros.

        `keep_first`: the oldest file stays even where it is empty then.
        """
        while self.starts and self.starts[-1] >= offset:
            if keep_first and len(self.starts) == 1:
                break
            self._remove(self.starts.pop())
        if self.starts and offset < self.end:
            start = self.starts[-1]
            file = self.file(start)
            file.truncate(max(offset - start, 0))
            file.truncate(self.file_size)
            if durable:
                file.fsync()
            else:
                self.unsynced.files.add(self.path(start))
        if durable and self._files.exists(self.directory):
            self._files.sync_dir(self.directory)

    def _remove(self, start: int) -> None:
        path = self.path(start)
        self._pool.forget(path)
        self._files.remove(path)
        self.unsynced.files.discard(path)
        self.unsynced.dirs.add(self.directory)
