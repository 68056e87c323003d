"""The operating system's own files: `IFiles` on plain system calls.

Nothing is ever mapped into memory: mapped pages would count as the broker's resident memory, and
an I/O error in one would be a signal instead of an exception.
"""

import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar, TypeVarTuple

from zope.interface import implementer

from rocketmq_tw.files.interface import DiskUsage, IFile, IFiles, NoFileError

#: Have lseek(2) find the next byte that a hole does not give, and the next one that a hole does.
#: PyPy has no names for these numbers, which are Linux's.
SEEK_DATA, SEEK_HOLE = getattr(os, "SEEK_DATA", 3), getattr(os, "SEEK_HOLE", 4)
#: Of directories that are made: messages are nothing for every user of the machine.
DIRECTORY_MODE = 0o750

_Args = TypeVarTuple("_Args")
_T = TypeVar("_T")

_PAGE = 4096
_MAX_VECTORS = min(os.sysconf("SC_IOV_MAX"), 1024)
_sync_data = getattr(os, "fdatasync", os.fsync)


def _write_joined(
    descriptor: int, buffers: Sequence[bytes | bytearray | memoryview], offset: int
) -> int:
    return os.pwrite(descriptor, b"".join(buffers), offset)


#: PyPy has it since 8.0.
_write_vectors = getattr(os, "pwritev", _write_joined)
#: Directories that this process has made and whose names are not durable yet.
_unsynced_dirs: set[str] = set()


def _naming(path: str, call: Callable[[*_Args], _T], *args: *_Args) -> _T:
    """Makes a system call; its error names `path`, which the system leaves out where a descriptor
    is used."""
    try:
        return call(*args)
    except OSError as error:
        error.filename = path
        raise


@implementer(IFile)
class PosixFile:
    """One descriptor; all access is by position, so one object serves several threads. What fails
    to change it names `path`."""

    def __init__(self, descriptor: int, path: str) -> None:
        self._fd = descriptor
        self._path = path

    def pread(self, size: int, offset: int) -> bytes:
        data = os.pread(self._fd, size, offset)
        if len(data) == size or not data:
            return data
        parts = [data]
        got = len(data)
        while got < size:
            data = os.pread(self._fd, size - got, offset + got)
            if not data:
                break
            parts.append(data)
            got += len(data)
        return b"".join(parts)

    def pwrite(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        written = _naming(self._path, os.pwrite, self._fd, data, offset)
        total = len(data)
        while written < total:
            rest = memoryview(data)[written:]
            step = _naming(self._path, os.pwrite, self._fd, rest, offset + written)
            if step == 0:
                raise OSError(errno.EIO, "the system wrote nothing", self._path)
            written += step

    def pwritev(self, buffers: Sequence[bytes | bytearray | memoryview], offset: int) -> None:
        for start in range(0, len(buffers), _MAX_VECTORS):
            group = buffers[start : start + _MAX_VECTORS]
            total = sum(map(len, group))
            written = _naming(self._path, _write_vectors, self._fd, group, offset)
            if written < total:
                self.pwrite(b"".join(group)[written:], offset + written)
            offset += total

    def fsync(self) -> None:
        # fdatasync also writes what is needed to find the data again: the size and the blocks.
        _naming(self._path, _sync_data, self._fd)

    def truncate(self, size: int) -> None:
        _naming(self._path, os.ftruncate, self._fd, size)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def modified_ms(self) -> int:
        return os.fstat(self._fd).st_mtime_ns // 1_000_000

    def is_at(self, path: str) -> bool:
        return is_open_at(path, self._fd)

    def may_have_data(self, offset: int) -> bool:
        page_end = offset - offset % -_PAGE
        if os.pread(self._fd, page_end - offset, offset).strip(b"\0"):
            return True
        try:
            # Nobody uses the position that this moves.
            os.lseek(self._fd, page_end, SEEK_DATA)
        except OSError as error:
            return error.errno != errno.ENXIO
        return True

    def close(self) -> None:
        descriptor, self._fd = self._fd, -1
        if descriptor >= 0:
            os.close(descriptor)


def is_open_at(path: str, descriptor: int) -> bool:
    """Returns whether what is open as `descriptor` is what is at `path` now. Raises `OSError` where
    the system does not tell."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except (FileNotFoundError, NotADirectoryError):
        return False


def _open_file(path: str, flags: int, mode: int = 0o644) -> int:
    """Returns a descriptor of a file; raises `NoFileError` for anything else, without waiting for
    it."""
    try:
        descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK, mode)
    except IsADirectoryError as error:
        raise NoFileError(error.errno, error.strerror, path) from error
    found = os.fstat(descriptor).st_mode
    if stat.S_ISREG(found):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(found):
        raise NoFileError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    raise NoFileError(errno.EINVAL, "it is no file, and one belongs there: move it away", path)


def _take_rights(descriptor: int, old: os.stat_result) -> None:
    """Gives an open file the owner and the rights of `old`. Where this process may not give it to
    the owner it keeps it; a group that was not the old one's gets no rights."""
    rights = stat.S_IMODE(old.st_mode) & 0o777
    new = os.fstat(descriptor)
    if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
        try:
            os.fchown(descriptor, old.st_uid, old.st_gid)
        except OSError:
            try:
                os.fchown(descriptor, -1, old.st_gid)
            except OSError:
                if new.st_gid != old.st_gid:
                    rights &= ~stat.S_IRWXG
    if stat.S_IMODE(os.fstat(descriptor).st_mode) != rights:
        os.fchmod(descriptor, rights)


@implementer(IFiles)
class PosixFiles:
    """The real file system."""

    def open(self, path: str, *, create: bool = False) -> PosixFile:
        return PosixFile(_open_file(path, os.O_RDWR | (os.O_CREAT if create else 0)), path)

    def open_aside(self, path: str, target: str) -> PosixFile:
        try:
            old = os.stat(target)
        except FileNotFoundError:
            return self.open(path, create=True)
        descriptor = _open_file(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            _take_rights(descriptor, old)
        except OSError:
            os.close(descriptor)
            raise
        return PosixFile(descriptor, path)

    def read(self, path: str) -> bytes:
        with open(_open_file(path, os.O_RDONLY), "rb") as source:
            return source.read()

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def real_path(self, path: str) -> str:
        return os.path.realpath(path) if os.path.islink(path) else path

    def list(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(path))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def make_dirs(self, path: str, *, durable: bool = True) -> None:
        missing = []
        current = os.path.abspath(path)
        while not os.path.isdir(current):
            missing.append(current)
            current = os.path.dirname(current)
        if durable and _unsynced_dirs:
            # An earlier call made them, and could not sync their names.
            there = map(str, (Path(current), *Path(current).parents))
            missing += [directory for directory in there if directory in _unsynced_dirs]
        for directory in reversed(missing):
            if durable:
                _unsynced_dirs.add(directory)
            try:
                os.mkdir(directory, DIRECTORY_MODE)
            except FileExistsError:
                if not os.path.isdir(directory):
                    raise
            if durable:
                self.sync_dir(os.path.dirname(directory))
                _unsynced_dirs.discard(directory)

    def remove(self, path: str) -> None:
        os.remove(path)

    def remove_tree(self, path: str) -> None:
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            return

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def link(self, path: str, name: str) -> None:
        os.link(path, name)

    def sync_dir(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _naming(path, os.fsync, descriptor)
        finally:
            os.close(descriptor)

    def usage(self, path: str) -> DiskUsage:
        _, used, free = shutil.disk_usage(path)
        # As stock, and df's percentage: what is kept for root, or beyond a quota, cannot be used.
        return DiskUsage(used + free, used)

    def lock(self, path: str) -> PosixFile:
        descriptor = _open_file(path, os.O_RDWR | os.O_CREAT)
        try:
            # Record locks keep a Java process out but are shared inside one process; flock keeps
            # out a second lock in this process too.
            _naming(path, fcntl.flock, descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _naming(path, fcntl.lockf, descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except OSError as error:
            os.close(descriptor)
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise BlockingIOError(error.errno, "locked by another process", path) from error
            raise
        return PosixFile(descriptor, path)
