"""The narrow file interface: all that the store, the configs and Raft ask of a disk.

Paths are plain strings. Every call blocks; the reactor's thread leaves it to another thread.
Three versions: `posix.PosixFiles`, `memory.MemoryFiles` (a crash drops what was not synced) and
`faulty.FaultyFiles` (wraps one and tears, shortens, refuses or fills up on demand).
"""

from collections.abc import Sequence
from typing import NamedTuple

from zope.interface import Interface


class DiskUsage(NamedTuple):
    """Bytes of the file system that holds a path: what this user may fill in all, and what is
    used."""

    total: int
    used: int


class NoFileError(OSError):
    """Something else, as a directory or a pipe, has the name of a file."""


class IFile(Interface):
    """One open file. Errors are `OSError` with the errno that POSIX gives."""

    def pread(size: int, offset: int) -> bytes:
        """Returns up to `size` bytes from `offset`; fewer only at the end of the file."""

    def pwrite(data: bytes | bytearray | memoryview, offset: int) -> None:
        """Writes all of `data` at `offset`; continues a short write or raises."""

    def pwritev(buffers: Sequence[bytes | bytearray | memoryview], offset: int) -> None:
        """Writes all buffers, one after the other, with one system call where the system allows."""

    def fsync() -> None:
        """Returns once data and size are on stable storage."""

    def truncate(size: int) -> None:
        """Sets the size; growth reads as zeros (a sparse file)."""

    def size() -> int:
        """Returns the size in bytes."""

    def modified_ms() -> int:
        """Returns when the content was changed last, in milliseconds since 1970 of this machine's
        clock; 0 where that is not known."""

    def is_at(path: str) -> bool:
        """Returns whether `path` is this very file: it was not removed, moved or replaced. Raises
        `OSError` where that cannot be known."""

    def may_have_data(offset: int) -> bool:
        """Returns False only where it is certain that nothing but zeros is at `offset` and behind;
        reads a page at most."""

    def close() -> None:
        """Closes the file; a second call does nothing."""


class IFiles(Interface):
    """A file system."""

    def open(path: str, *, create: bool = False) -> IFile:
        """Opens for reading and writing; `create` makes it where it is missing. Raises
        `NoFileError` for what is no file, and waits for no pipe."""

    def open_aside(path: str, target: str) -> IFile:
        """Opens, or makes, the file that is to replace `target`: with its rights and its owner, as
        far as this process may give them, before anything is written."""

    def read(path: str) -> bytes:
        """Returns the whole content; raises FileNotFoundError, and `NoFileError` as `open`."""

    def exists(path: str) -> bool:
        """Returns whether a file or directory is there."""

    def real_path(path: str) -> str:
        """Returns the path of the file behind a link; a path that is no link as it is."""

    def list(path: str) -> list[str]:
        """Returns the sorted names in a directory; empty where there is none."""

    def make_dirs(path: str, *, durable: bool = True) -> None:
        """Makes the directory and its parents; `durable`: syncs them in their parents."""

    def remove(path: str) -> None:
        """Removes a file; raises FileNotFoundError."""

    def remove_tree(path: str) -> None:
        """Removes a directory and all below it; nothing where it is missing."""

    def rename(source: str, target: str) -> None:
        """Replaces `target` atomically."""

    def link(path: str, name: str) -> None:
        """Gives a file a second name; raises FileExistsError, and `OSError` where the file system
        knows no such names, or has the other one elsewhere."""

    def sync_dir(path: str) -> None:
        """Makes the names in a directory durable."""

    def usage(path: str) -> DiskUsage:
        """Returns the file system's size and use."""

    def lock(path: str) -> IFile:
        """Takes an exclusive lock for the life of the returned file; raises BlockingIOError."""
