"""Open files by path, kept open for the next use."""

from __future__ import annotations

from collections import OrderedDict

from rocketmq_tw.files.interface import IFile, IFiles


class HandlePool:
    """With a `limit` the least recently used file is closed first, and one thread may use the pool;
    without one every file stays open, and others may `get` those that are while one thread opens
    or closes."""

    def __init__(self, files: IFiles, limit: int | None = None) -> None:
        self.files = files
        self._limit = limit
        self._open: OrderedDict[str, IFile] = OrderedDict()

    def get(self, path: str, *, create: bool = False) -> IFile:
        """The open file at `path`; opened where it is not, and made there with `create`."""
        handle = self._open.get(path)
        if handle is not None:
            if self._limit is not None:
                self._open.move_to_end(path)
            return handle
        handle = self.files.open(path, create=create)
        self._open[path] = handle
        if self._limit is not None and len(self._open) > self._limit:
            self._open.popitem(last=False)[1].close()
        return handle

    def forget(self, path: str) -> None:
        """Closes the file at `path` if it is open."""
        handle = self._open.pop(path, None)
        if handle is not None:
            handle.close()

    def forget_below(self, directory: str) -> None:
        """Closes all files below a directory."""
        below = directory + "/"
        for path in [path for path in self._open if path.startswith(below)]:
            self.forget(path)

    def close(self) -> None:
        """Closes all."""
        while self._open:
            self._open.popitem()[1].close()
