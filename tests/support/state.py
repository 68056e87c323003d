"""A file of `config/` in memory, for tests of the broker's tables."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class MemoryStateFile:
    """Keeps what was written last; `writes` counts how often. `full`: there is no room;
    `fails_late`: writes fail once the file is replaced."""

    path = "/store/config/table.json"

    def __init__(self, content: bytes | None = None) -> None:
        self.content = content
        self.writes = 0
        self.full = False
        self.fails_late = False

    def read(self, parse: Callable[[bytes], T]) -> T | None:
        return None if self.content is None else parse(self.content)

    def write(self, data: bytes) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.content = data
        self.writes += 1
        if self.fails_late:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
