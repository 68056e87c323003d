"""Files that are replaced as a whole: after a crash there is the old content or the new one."""

import contextlib
import posixpath

from rocketmq_tw.files.interface import IFiles


def write_atomic(files: IFiles, path: str, data: bytes) -> None:
    """Replaces the content of `path`: written aside, synced, renamed, the directory synced.

    Returns once the new content is on stable storage. Raises `OSError`.
    """
    directory = posixpath.dirname(path) or "."
    files.make_dirs(directory)
    aside = f"{path}.tmp"
    file = files.open(aside, create=True)
    try:
        file.truncate(0)
        file.pwrite(data, 0)
        file.fsync()
    finally:
        file.close()
    files.rename(aside, path)
    files.sync_dir(directory)


def settle(files: IFiles, path: str) -> None:
    """Makes certain that what is read at `path` outlives a power loss: a file that was renamed is
    read back also where the sync of its directory failed. Raises `OSError`."""
    with contextlib.suppress(FileNotFoundError):
        files.sync_dir(posixpath.dirname(path) or ".")
