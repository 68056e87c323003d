"""The file `abort`: there while a store is open, to tell the next start whether it was closed."""

from __future__ import annotations

import os

from rocketmq_tw.files.interface import IFiles


class AbortFile:
    """The file at `path`; it has the process id, as stock writes it."""

    def __init__(self, files: IFiles, path: str) -> None:
        self._files = files
        self._path = path

    @property
    def exists(self) -> bool:
        """Whether the store is open, or its last stop was no clean one."""
        return self._files.exists(self._path)

    def write(self) -> None:
        """Makes the file; durable when it returns."""
        file = self._files.open(self._path, create=True)
        try:
            file.truncate(0)
            file.pwrite(str(os.getpid()).encode(), 0)
            file.fsync()
        finally:
            file.close()
        self._files.sync_dir(os.path.dirname(self._path))

    def remove(self) -> None:
        """Removes the file; durable when it returns."""
        self._files.remove(self._path)
        self._files.sync_dir(os.path.dirname(self._path))
