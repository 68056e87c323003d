"""Files that keep some descriptors in reserve.

Sockets and files share one limit. Where connections have taken all that is left, a log that needs
its next file, or a checkpoint, could not be written any more.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from typing import TypeVar

from zope.interface import implementer

from rocketmq_tw.files.interface import DiskUsage, IFile, IFiles

#: What the system says when a process, or the machine, has no descriptor left.
NO_DESCRIPTOR = frozenset({errno.EMFILE, errno.ENFILE})
#: The same, or that the disk is full: what may pass without a restart.
NO_ROOM = NO_DESCRIPTOR | {errno.ENOSPC, errno.EDQUOT}

T = TypeVar("T")


@implementer(IFile)
class _Borrowed:
    """An open file whose descriptor goes back to the reserve."""

    def __init__(self, inner: IFile, refill: Callable[[], None]) -> None:
        self._inner = inner
        self._refill = refill

    def pread(self, size: int, offset: int) -> bytes:
        return self._inner.pread(size, offset)

    def pwrite(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        self._inner.pwrite(data, offset)

    def pwritev(self, buffers: Sequence[bytes | bytearray | memoryview], offset: int) -> None:
        self._inner.pwritev(buffers, offset)

    def fsync(self) -> None:
        self._inner.fsync()

    def truncate(self, size: int) -> None:
        self._inner.truncate(size)

    def size(self) -> int:
        return self._inner.size()

    def modified_ms(self) -> int:
        return self._inner.modified_ms()

    def is_at(self, path: str) -> bool:
        return self._inner.is_at(path)

    def may_have_data(self, offset: int) -> bool:
        return self._inner.may_have_data(offset)

    def close(self) -> None:
        self._inner.close()
        self._refill()


@implementer(IFiles)
class ReservingFiles:
    """`inner`, with `count` descriptors on top of those in use from `keep` on. A call that finds
    none left gives one of these back and is made again; they are taken anew when there are."""

    def __init__(self, inner: IFiles, count: int = 8) -> None:
        self._inner = inner
        self._count = count
        self._path = ""
        self._spare: list[IFile] = []

    def keep(self, path: str) -> None:
        """Takes the reserve; `path` is any file that is there and stays. It must not be one that
        is locked: POSIX gives up a process's locks with any descriptor of the file."""
        self._path = path
        self._refill()

    def give_up(self) -> None:
        """Closes the reserve."""
        self._path = ""
        while self._spare:
            self._spare.pop().close()

    def _refill(self) -> None:
        try:
            while self._path and len(self._spare) < self._count:
                self._spare.append(self._inner.open(self._path))
        except OSError:
            # Too few descriptors, or the file is gone: the reserve is what there is.
            return

    def _call(self, function: Callable[[], T]) -> T:
        while True:
            try:
                result = function()
            except OSError as error:
                if error.errno not in NO_DESCRIPTOR:
                    raise
                try:
                    spare = self._spare.pop()
                except IndexError:
                    raise error from None
                spare.close()
                continue
            if len(self._spare) < self._count:
                self._refill()
            return result

    def open(self, path: str, *, create: bool = False) -> IFile:
        return self._opened(lambda: self._inner.open(path, create=create))

    def open_aside(self, path: str, target: str) -> IFile:
        return self._opened(lambda: self._inner.open_aside(path, target))

    def _opened(self, function: Callable[[], IFile]) -> IFile:
        before = len(self._spare)
        file = self._call(function)
        return file if len(self._spare) >= before else _Borrowed(file, self._refill)

    def read(self, path: str) -> bytes:
        return self._call(lambda: self._inner.read(path))

    def exists(self, path: str) -> bool:
        return self._inner.exists(path)

    def real_path(self, path: str) -> str:
        return self._inner.real_path(path)

    def list(self, path: str) -> list[str]:
        return self._call(lambda: self._inner.list(path))

    def make_dirs(self, path: str, *, durable: bool = True) -> None:
        self._call(lambda: self._inner.make_dirs(path, durable=durable))

    def remove(self, path: str) -> None:
        self._inner.remove(path)

    def remove_tree(self, path: str) -> None:
        self._call(lambda: self._inner.remove_tree(path))

    def rename(self, source: str, target: str) -> None:
        self._inner.rename(source, target)

    def link(self, path: str, name: str) -> None:
        self._inner.link(path, name)

    def sync_dir(self, path: str) -> None:
        self._call(lambda: self._inner.sync_dir(path))

    def usage(self, path: str) -> DiskUsage:
        return self._inner.usage(path)

    def lock(self, path: str) -> IFile:
        return self._call(lambda: self._inner.lock(path))
