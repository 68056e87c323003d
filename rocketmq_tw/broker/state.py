"""What the tables of the broker ask of the files that they are kept in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

T = TypeVar("T")


class StateFile(Protocol):
    """One of the files in `config/`, with its `.bak`."""

    def read(self, parse: Callable[[bytes], T]) -> T | None:
        """What `parse` makes of the file, or of the backup where the file is damaged; None
        where there is neither."""
        ...

    def write(self, data: bytes) -> None:
        """Replaces the content durably."""
        ...
