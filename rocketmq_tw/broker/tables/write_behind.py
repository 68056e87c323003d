"""Tables that are written to their files at intervals, not at each change."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable


class WriteBehindTable(ABC):
    """Knows whether a table changed since it was last written.

    `write_file` gets the file's new content, in any thread, and raises `OSError`. A subclass sets
    `_dirty` with each change.
    """

    def __init__(self, write_file: Callable[[bytes], None]) -> None:
        self._write_file = write_file
        self._dirty = False

    @abstractmethod
    def _encoder(self) -> Callable[[], bytes]:
        """What gives the file's bytes, to be called in any thread, also while the table changes."""

    def pending_write(self) -> Callable[[], bytes] | None:
        """What gives the bytes to `write`, to be called in any thread; None where nothing changed.

        Where one of them fails, `write_failed` makes it due again.
        """
        if not self._dirty:
            return None
        self._dirty = False
        return self._encoder()

    def write(self, data: bytes) -> None:
        """Writes the file, in any thread; raises `OSError`."""
        self._write_file(data)

    def write_failed(self) -> None:
        """The write is due again."""
        self._dirty = True
