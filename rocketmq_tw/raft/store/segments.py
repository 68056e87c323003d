"""A long run of bytes in files of one size, each named by its first offset in 20 digits.

The files are as long as stock makes them, sparse behind what was written; positions count over
all of them. Written ranges become durable with `sync`, cuts at once.
"""

from collections.abc import Sequence
from itertools import pairwise

from rocketmq_tw.files.interface import IFile, IFiles
from rocketmq_tw.raft.store.format import COPY_AGAIN, StoreError

#: A sync of bytes that overwrite zeros needs no entry in the file system's journal, so zeros are
#: written this far ahead.
AHEAD = 256 * 1024


class SegmentedFile:
    """The files in `directory`, all of `file_size` bytes.

    With `ahead`, zeros are written in front of what is written, as they read anyway.
    """

    def __init__(self, files: IFiles, directory: str, file_size: int, *, ahead: int = 0) -> None:
        self._files = files
        self._directory = directory
        self.file_size = file_size
        self._open: dict[int, IFile] = {}
        self._dirty: set[int] = set()
        self._ahead = ahead
        self._zeroed: dict[int, int] = {}
        files.make_dirs(directory)
        self.offsets = self._list()
        # All are open from here on, so that one thread may read while another one writes.
        for offset in self.offsets:
            self._open[offset] = files.open(self._path(offset))

    def _list(self) -> list[int]:
        offsets = []
        for name in self._files.list(self._directory):
            if len(name) != 20 or not name.isdigit() or int(name) % self.file_size:
                raise StoreError(
                    f"{self._directory}/{name} is no file of {self.file_size} bytes each:"
                    " set the file size that this store was made with"
                )
            offsets.append(int(name))
        for before, after in pairwise(offsets):
            if after - before != self.file_size:
                raise StoreError(
                    f"{self._directory} lacks a file between {before:020d} and {after:020d}:"
                    f" {COPY_AGAIN}"
                )
        return offsets

    def check_sizes(self) -> None:
        """Gives every file its full length. Raises `StoreError` where one is longer."""
        for offset in self.offsets:
            file = self._open[offset]
            size = file.size()
            if size > self.file_size:
                raise StoreError(
                    f"{self._path(offset)} has {size} bytes, not {self.file_size}:"
                    " set the file size that this store was made with"
                )
            if size < self.file_size:
                file.truncate(self.file_size)
                self._dirty.add(offset)

    def _path(self, offset: int) -> str:
        return f"{self._directory}/{offset:020d}"

    def _create(self, offset: int) -> None:
        file = self._files.open(self._path(offset), create=True)
        file.truncate(self.file_size)
        self._files.sync_dir(self._directory)
        self._open[offset] = file
        self.offsets.append(offset)

    def read(self, pos: int, size: int) -> bytes:
        """Up to `size` bytes from `pos`, not beyond the end of its file."""
        offset = pos - pos % self.file_size
        file = self._open.get(offset)
        if file is None:
            return b""
        return file.pread(min(size, offset + self.file_size - pos), pos - offset)

    def write(self, pos: int, buffers: Sequence[bytes]) -> None:
        """All buffers from `pos`, within one file, which is created where it is the next one."""
        offset = pos - pos % self.file_size
        if not self.offsets or offset > self.offsets[-1]:
            self._create(offset)
        self._open[offset].pwritev(buffers, pos - offset)
        self._dirty.add(offset)
        if self._ahead:
            self._write_zeros(offset, pos - offset + sum(map(len, buffers)))

    def _write_zeros(self, offset: int, end: int) -> None:
        if end <= self._zeroed.get(offset, -1):
            return
        zeroed = min(self.file_size, end + self._ahead)
        self._open[offset].pwrite(bytes(zeroed - end), end)
        self._zeroed[offset] = zeroed

    def sync(self) -> None:
        """Makes all that was written durable."""
        for offset in sorted(self._dirty):
            self._open[offset].fsync()
        self._dirty.clear()

    def cut(self, pos: int) -> None:
        """Removes all from `pos` on: what remains reads as zeros. Durable on return."""
        for offset in [offset for offset in self.offsets if offset > pos]:
            self._remove(offset)
        offset = pos - pos % self.file_size
        if offset in self.offsets:
            file = self._open[offset]
            file.truncate(pos - offset)
            file.truncate(self.file_size)
            file.fsync()
            self._dirty.discard(offset)
            self._zeroed.pop(offset, None)
        self._files.sync_dir(self._directory)

    def clear(self) -> None:
        """Removes every file."""
        for offset in list(self.offsets):
            self._remove(offset)
        self._files.sync_dir(self._directory)

    def drop_before(self, pos: int) -> None:
        """Removes the files that end at or before `pos`."""
        gone = [offset for offset in self.offsets if offset + self.file_size <= pos]
        for offset in gone:
            self._remove(offset)
        if gone:
            self._files.sync_dir(self._directory)

    def _remove(self, offset: int) -> None:
        self._open.pop(offset).close()
        self._files.remove(self._path(offset))
        self.offsets.remove(offset)
        self._dirty.discard(offset)
        self._zeroed.pop(offset, None)

    def close(self) -> None:
        for file in self._open.values():
            file.close()
        self._open.clear()
