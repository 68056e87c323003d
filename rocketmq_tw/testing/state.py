"""A file of `config/` in memory, for tests of the broker's tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class MemoryStateFile:
    """Keeps what was written last; `writes` counts how often."""

    def __init__(self, content: bytes | None = None) -> None:
        self.content = content
        self.writes = 0

    def read(self, parse: Callable[[bytes], T]) -> T | None:
        return None if self.content is None else parse(self.content)

    def write(self, data: bytes) -> None:
        self.content = data
        self.writes += 1
