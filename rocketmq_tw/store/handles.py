"""Open files by path, kept open for the next use."""

from __future__ import annotations

from collections import OrderedDict

from rocketmq_tw.files.interface import IFile, IFiles
from rocketmq_tw.files.reserve import NO_DESCRIPTOR


class HandlePool:
    """With a `limit` the least recently used file is closed first, and one thread may use the pool;
    without one every file stays open, and others may `get` those that are while one thread opens
    or closes.

    `plain` opens without a reserve of descriptors: where it finds none left, the pool first closes
    files of its own, and then asks `files`.
    """

    def __init__(
        self, files: IFiles, limit: int | None = None, *, plain: IFiles | None = None
    ) -> None:
        self.files = files
        self._plain = plain or files
        self._limit = limit
        self._open: OrderedDict[str, IFile] = OrderedDict()

    def get(self, path: str, *, create: bool = False) -> IFile:
        """The open file at `path`; opened where it is not, and made there with `create`."""
        handle = self._open.get(path)
        if handle is not None:
            if self._limit is not None:
                self._open.move_to_end(path)
            return handle
        handle = self.open_another(path, create=create)
        self._open[path] = handle
        if self._limit is not None and len(self._open) > self._limit:
            self._open.popitem(last=False)[1].close()
        return handle

    def open_another(self, path: str, *, create: bool = False) -> IFile:
        """Opens a file that is not the pool's. Where no descriptor is left, the pool closes half
        of its own."""
        try:
            return self._plain.open(path, create=create)
        except OSError as error:
            if error.errno not in NO_DESCRIPTOR:
                raise
        if self._limit is not None:
            for _ in range((len(self._open) + 1) // 2):
                self._open.popitem(last=False)[1].close()
        return self.files.open(path, create=create)

    def forget(self, path: str) -> None:
        """Closes the file at `path` if it is open."""
        handle = self._open.pop(path, None)
        if handle is not None:
            handle.close()

    def close(self) -> None:
        """Closes all."""
        while self._open:
            self._open.popitem()[1].close()
