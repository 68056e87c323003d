"""Whose a store is, and whether its last owner closed it: the files `lock` and `abort`."""

from __future__ import annotations

import os

from rocketmq_tw.files.interface import IFile, IFiles
from rocketmq_tw.store.errors import StoreError
from rocketmq_tw.store.paths import StorePaths


class Ownership:
    """One opening of the store below `paths.root`, by this process."""

    def __init__(self, files: IFiles, paths: StorePaths) -> None:
        self._files = files
        self._paths = paths
        self._lock: IFile | None = None

    @property
    def is_taken(self) -> bool:
        """Between `take` and `release`."""
        return self._lock is not None

    def take(self) -> None:
        """Locks the store, making its directory where it is new; raises `StoreError` where another
        process has it."""
        paths = self._paths
        self._files.make_dirs(paths.root)
        try:
            self._lock = self._files.lock(paths.lock)
        except BlockingIOError as error:
            raise StoreError(
                f"{paths.root} is in use by another broker: stop it, or set storePathRootDir"
            ) from error
        self._lock.pwrite(b"lock", 0)

    def release(self) -> None:
        """Gives the lock back, if it was taken."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    @property
    def was_closed(self) -> bool:
        """Whether the last owner closed the store; asked before `mark_open`."""
        return not self._files.exists(self._paths.abort)

    def mark_open(self) -> None:
        """Leaves `abort` behind, with the process id, until `mark_closed`; durable."""
        abort = self._files.open(self._paths.abort, create=True)
        abort.truncate(0)
        abort.pwrite(str(os.getpid()).encode(), 0)
        abort.fsync()
        abort.close()
        self._files.sync_dir(self._paths.root)

    def mark_closed(self) -> None:
        """Takes `abort` away; durable."""
        self._files.remove(self._paths.abort)
        self._files.sync_dir(self._paths.root)
