"""Files that are replaced as a whole: after a crash there is the old content or the new one. And
what makes durable that is only read back so far."""

import contextlib
import posixpath

from rocketmq_tw.files.interface import IFile, IFiles

#: Bytes that are written again at once.
PIECE = 1 << 20


def write_atomic(files: IFiles, path: str, data: bytes, *, former: str | None = None) -> None:
    """Replaces the content of `path`: written aside, synced, renamed, the directory synced. A link
    stays one, the rights and the owner stay those of the old file, and the file `former`, beside
    it, has the old content then.

    Returns once the new content is on stable storage. Raises `OSError`, and leaves nothing aside.
    """
    path = files.real_path(path)
    directory = posixpath.dirname(path) or "."
    files.make_dirs(directory)
    aside = f"{path}.tmp"
    try:
        file = files.open_aside(aside, path)
        try:
            file.truncate(0)
            file.pwrite(data, 0)
            file.fsync()
        finally:
            file.close()
        if former is not None and files.exists(path):
            _keep(files, path, former)
        files.rename(aside, path)
    except OSError:
        # A full disk may not have room for half of it either.
        with contextlib.suppress(OSError):
            files.remove(aside)
        raise
    files.sync_dir(directory)


def _keep(files: IFiles, path: str, former: str) -> None:
    """Has `former` be the present content of `path`, which stays. Its name is durable no later
    than the next name in their directory, which costs no sync of its own."""
    former = files.real_path(former)
    # Not the name of a file that is written aside: this one must never be written to.
    second = f"{former}.link"
    try:
        with contextlib.suppress(FileNotFoundError):
            # A kill may have left it.
            files.remove(second)
        files.link(path, second)
        files.rename(second, former)
        with contextlib.suppress(FileNotFoundError):
            # A name of the same file is left, as where a kill came before the new content.
            files.remove(second)
    except OSError:
        with contextlib.suppress(OSError):
            files.remove(second)
        # The file system may know no second names, or `former` is on another one.
        write_atomic(files, former, files.read(path))


def settle(files: IFiles, path: str) -> None:
    """Makes certain that what is read at `path` outlives a power loss: a file that was renamed is
    read back also where the sync of its directory failed. Raises `OSError`."""
    with contextlib.suppress(FileNotFoundError):
        files.sync_dir(posixpath.dirname(files.real_path(path)) or ".")


def write_again(file: IFile, begin: int, end: int) -> int:
    """Writes the bytes of `file` from `begin` to `end` as they are read; returns where it ended,
    which is in front of `end` where the file is shorter. Raises `OSError`.

    Where a process could not sync what it wrote, Linux keeps it in memory as if it were on the
    disk: it is read and a sync succeeds, but only what is written again reaches the disk.
    """
    at = begin
    while at < end and (piece := file.pread(min(PIECE, end - at), at)):
        file.pwrite(piece, at)
        at += len(piece)
    return at
