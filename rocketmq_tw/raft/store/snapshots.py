"""The latest snapshot in `snapshot/`, one file: a header with its own CRC and the data."""

from struct import Struct
from zlib import crc32

from rocketmq_tw.files.atomic import settle, write_atomic
from rocketmq_tw.files.interface import IFile, IFiles
from rocketmq_tw.raft.core.snapshot import Snapshot, SnapshotMeta
from rocketmq_tw.raft.store.format import COPY_AGAIN
from rocketmq_tw.store.errors import StoreError

#: magic, index, term, next position, bytes of data, CRC-32 of the data.
_HEADER = Struct(">IqqqqI")
_MAGIC = 0x44534E50


class SnapshotFile:
    """The latest snapshot of a member on disk. A new one is written by `save`, read from `use` on,
    and `drop_others` removes the former one, so that a reader always finds one. Its file stays
    open: a leader reads it for a member that is behind, also where no descriptor is left."""

    def __init__(self, files: IFiles, directory: str) -> None:
        self._files = files
        self._directory = directory
        self.meta: SnapshotMeta | None = None
        self._file: IFile | None = None
        #: The file that `save` has written.
        self._saved: IFile | None = None
        self._load()

    def _names(self) -> list[str]:
        return [name for name in self._files.list(self._directory) if name.isdigit()]

    def _load(self) -> None:
        names = self._names()
        if not names:
            return
        path = f"{self._directory}/{names[-1]}"
        # Entries that it covers will be dropped.
        settle(self._files, path)
        content = self._files.read(path)
        if len(content) < _HEADER.size:
            raise StoreError(f"{path} is cut short; {COPY_AGAIN}")
        magic, index, term, next_pos, size, crc = _HEADER.unpack_from(content)
        data = content[_HEADER.size :]
        if magic != _MAGIC or len(data) != size or crc32(data) != crc:
            raise StoreError(f"{path} is damaged; {COPY_AGAIN}")
        self.meta = SnapshotMeta(index, term, next_pos, size)
        self._file = self._files.open(path)

    def _path_of(self, meta: SnapshotMeta) -> str:
        return f"{self._directory}/{meta.index:020d}"

    def save(self, snapshot: Snapshot) -> None:
        """Writes the snapshot's file; durable on return."""
        meta, data = snapshot.meta, snapshot.data
        header = _HEADER.pack(_MAGIC, meta.index, meta.term, meta.next_pos, len(data), crc32(data))
        path = self._path_of(meta)
        write_atomic(self._files, path, header + data)
        if self._saved is not None:
            self._saved.close()
        self._saved = self._files.open(path)

    def use(self, meta: SnapshotMeta) -> None:
        """Makes the saved snapshot at this place the current one, which `read` reads."""
        former = self._file
        self.meta, self._file, self._saved = meta, self._saved, None
        if former is not None:
            former.close()

    def drop_others(self) -> None:
        """Removes all but the one in use."""
        for name in self._names():
            if self.meta is not None and int(name) != self.meta.index:
                self._files.remove(f"{self._directory}/{name}")

    def read(self, offset: int, size: int) -> bytes:
        """Returns at most `size` bytes from `offset` of the snapshot in use; empty where there is
        none."""
        if self.meta is None or self._file is None:
            return b""
        wanted = max(0, min(size, self.meta.size - offset))
        return self._file.pread(wanted, _HEADER.size + offset)

    def close(self) -> None:
        """Closes the files."""
        for file in (self._file, self._saved):
            if file is not None:
                file.close()
        self._file = self._saved = None
