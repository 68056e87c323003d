"""A file system that fails on demand, around another one.

A `Fault` says which call on which path fails, and how. Power loss is `MemoryFiles.crash`;
`PowerLoss` here marks the call at which the power went away, so that a test can try every one.
Around `MemoryFiles` an fsync that fails loses what was to be synced, as on Linux:
`MemoryFile.lose_unsynced`.
"""

import errno
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from zope.interface import implementer

from rocketmq_tw.files.interface import DiskUsage, IFile, IFiles
from rocketmq_tw.files.memory import MemoryFile


class PowerLoss(Exception):
    """The machine went away at this call."""


@dataclass
class Fault:
    """Fails `operation` on paths that contain `path`, after letting `skip` calls pass.

    `kept`: how many bytes of a failing write reach the file first (a torn write); None: none.
    `silent`: an fsync that says yes and does nothing (a disk that lies).
    `times`: how often it fails; None: for ever.
    """

    operation: str
    path: str = ""
    error: int = errno.EIO
    skip: int = 0
    times: int | None = None
    kept: int | None = None
    silent: bool = False
    hits: int = field(default=0, init=False)

    def strikes(self, operation: str, path: str) -> bool:
        """Counts a call; whether it is to fail."""
        if operation != self.operation or self.path not in path:
            return False
        if self.skip > 0:
            self.skip -= 1
            return False
        if self.times is not None and self.hits >= self.times:
            return False
        self.hits += 1
        return True


_CHANGES = frozenset(
    {"pwrite", "fsync", "truncate", "create", "remove", "rename", "link", "sync_dir"}
)


@implementer(IFiles)
class FaultyFiles:
    """`room` is how many more bytes may be written before ENOSPC; `lose_power_at` counts the
    changing calls and raises `PowerLoss` at that one and at all behind it; `before_change` is
    called in front of each; `descriptors` is how many files may be open before EMFILE, and
    `open_files` how many are. `asked` are the operations that were asked for, each with its path;
    `struck` counts those that a fault struck, by error, operation and path."""

    def __init__(self, inner: IFiles, struck: Counter[tuple[int, str, str]] | None = None) -> None:
        self.inner = inner
        self.struck = Counter() if struck is None else struck
        self.asked: set[tuple[str, str]] = set()
        self.faults: list[Fault] = []
        self.room: int | None = None
        self.descriptors: int | None = None
        self.open_files = 0
        self.lose_power_at: int | None = None
        self.before_change: Callable[[], None] = lambda: None
        self.changes = 0

    def check(self, operation: str, path: str) -> Fault | None:
        """Counts the call; returns the fault that strikes it."""
        self.asked.add((operation, path))
        if operation in _CHANGES:
            self.before_change()
            self.changes += 1
            if self.lose_power_at is not None and self.changes >= self.lose_power_at:
                raise PowerLoss(f"{operation} {path}")
        for fault in self.faults:
            if fault.strikes(operation, path):
                self.struck[fault.error, operation, path] += 1
                return fault
        return None

    def _call(self, operation: str, path: str) -> None:
        fault = self.check(operation, path)
        if fault is not None:
            raise OSError(fault.error, os.strerror(fault.error), path)

    def _need_descriptor(self, path: str) -> None:
        if self.descriptors is not None and self.open_files >= self.descriptors:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)

    def open(self, path: str, *, create: bool = False) -> "FaultyFile":
        self._need_descriptor(path)
        self._call("create" if create and not self.inner.exists(path) else "open", path)
        return FaultyFile(self, self.inner.open(path, create=create), path)

    def open_aside(self, path: str, target: str) -> "FaultyFile":
        self._need_descriptor(path)
        self._call("open" if self.inner.exists(path) else "create", path)
        return FaultyFile(self, self.inner.open_aside(path, target), path)

    def read(self, path: str) -> bytes:
        self._need_descriptor(path)
        self._call("read", path)
        return self.inner.read(path)

    def exists(self, path: str) -> bool:
        return self.inner.exists(path)

    def real_path(self, path: str) -> str:
        return self.inner.real_path(path)

    def list(self, path: str) -> list[str]:
        self._need_descriptor(path)
        self._call("list", path)
        return self.inner.list(path)

    def make_dirs(self, path: str, *, durable: bool = True) -> None:
        self._call("make_dirs", path)
        self.inner.make_dirs(path, durable=durable)

    def remove(self, path: str) -> None:
        self._call("remove", path)
        self.inner.remove(path)

    def remove_tree(self, path: str) -> None:
        self._call("remove", path)
        self.inner.remove_tree(path)

    def rename(self, source: str, target: str) -> None:
        self._call("rename", target)
        self.inner.rename(source, target)

    def link(self, path: str, name: str) -> None:
        self._call("link", name)
        self.inner.link(path, name)

    def sync_dir(self, path: str) -> None:
        self._need_descriptor(path)
        self._call("sync_dir", path)
        self.inner.sync_dir(path)

    def usage(self, path: str) -> DiskUsage:
        return self.inner.usage(path)

    def lock(self, path: str) -> "FaultyFile":
        self._need_descriptor(path)
        self._call("lock", path)
        return FaultyFile(self, self.inner.lock(path), path)


@implementer(IFile)
class FaultyFile:
    """One open file of `FaultyFiles`."""

    def __init__(self, files: FaultyFiles, inner: IFile, path: str) -> None:
        self._files = files
        self._inner = inner
        self._path = path
        self._is_open = True
        files.open_files += 1

    def pread(self, size: int, offset: int) -> bytes:
        fault = self._files.check("pread", self._path)
        if fault is None:
            return self._inner.pread(size, offset)
        if fault.kept is None:
            raise OSError(fault.error, os.strerror(fault.error), self._path)
        return self._inner.pread(min(size, fault.kept), offset)

    def pwrite(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        self.pwritev([data], offset)

    def pwritev(self, buffers: Sequence[bytes | bytearray | memoryview], offset: int) -> None:
        fault = self._files.check("pwrite", self._path)
        data = b"".join(buffers)
        room = self._files.room
        if fault is not None:
            self._inner.pwrite(data[: fault.kept or 0], offset)
            raise OSError(fault.error, os.strerror(fault.error), self._path)
        if room is not None:
            self._files.room = max(room - len(data), 0)
            if len(data) > room:
                self._inner.pwrite(data[:room], offset)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._path)
        self._inner.pwrite(data, offset)

    def fsync(self) -> None:
        fault = self._files.check("fsync", self._path)
        if fault is None:
            self._inner.fsync()
        elif not fault.silent:
            if isinstance(self._inner, MemoryFile):
                self._inner.lose_unsynced()
            raise OSError(fault.error, os.strerror(fault.error), self._path)

    def truncate(self, size: int) -> None:
        fault = self._files.check("truncate", self._path)
        if fault is not None:
            raise OSError(fault.error, os.strerror(fault.error), self._path)
        self._inner.truncate(size)

    def size(self) -> int:
        return self._inner.size()

    def modified_ms(self) -> int:
        return self._inner.modified_ms()

    def is_at(self, path: str) -> bool:
        return self._inner.is_at(path)

    def may_have_data(self, offset: int) -> bool:
        fault = self._files.check("pread", self._path)
        if fault is not None:
            raise OSError(fault.error, os.strerror(fault.error), self._path)
        return self._inner.may_have_data(offset)

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._files.open_files -= 1
        self._inner.close()
