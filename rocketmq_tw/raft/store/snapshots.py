"""The latest snapshot in `snapshot/`, one file: a header with its own CRC and the data."""

from struct import Struct
from zlib import crc32

from rocketmq_tw.files.atomic import write_atomic
from rocketmq_tw.files.interface import IFiles
from rocketmq_tw.raft.core.snapshot import Snapshot, SnapshotMeta
from rocketmq_tw.raft.store.format import StoreError

#: magic, index, term, next position, bytes of data, CRC-32 of the data.
_HEADER = Struct(">IqqqqI")
_MAGIC = 0x44534E50


class SnapshotFile:
    """Only the latest snapshot counts; the one before is removed once the new one is durable."""

    def __init__(self, files: IFiles, directory: str) -> None:
        self._files = files
        self._directory = directory
        self._path: str | None = None
        self.meta: SnapshotMeta | None = None
        self._load()

    def _load(self) -> None:
        names = [name for name in self._files.list(self._directory) if name.isdigit()]
        if not names:
            return
        path = f"{self._directory}/{names[-1]}"
        content = self._files.read(path)
        if len(content) < _HEADER.size:
            raise StoreError(f"{path} is cut short; remove this store to copy it from the leader")
        magic, index, term, next_pos, size, crc = _HEADER.unpack_from(content)
        data = content[_HEADER.size :]
        if magic != _MAGIC or len(data) != size or crc32(data) != crc:
            raise StoreError(f"{path} is damaged; remove this store to copy it from the leader")
        self.meta = SnapshotMeta(index, term, next_pos, size)
        self._path = path

    def save(self, snapshot: Snapshot) -> None:
        """Durable on return."""
        meta, data = snapshot.meta, snapshot.data
        path = f"{self._directory}/{meta.index:020d}"
        header = _HEADER.pack(_MAGIC, meta.index, meta.term, meta.next_pos, len(data), crc32(data))
        write_atomic(self._files, path, header + data)
        old, self._path, self.meta = self._path, path, meta
        if old is not None and old != path:
            self._files.remove(old)

    def read(self, offset: int, size: int) -> bytes:
        """A part of the data."""
        if self._path is None or self.meta is None:
            return b""
        file = self._files.open(self._path)
        try:
            wanted = max(0, min(size, self.meta.size - offset))
            return file.pread(wanted, _HEADER.size + offset)
        finally:
            file.close()
