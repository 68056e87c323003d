"""What was changed on a disk and is not durable yet."""

from __future__ import annotations


class Unsynced:
    """Paths of files, and of directories whose names changed; at first what `other` has."""

    def __init__(self, other: Unsynced | None = None) -> None:
        self.files: set[str] = set(other.files) if other else set()
        self.dirs: set[str] = set(other.dirs) if other else set()

    def __bool__(self) -> bool:
        return bool(self.files or self.dirs)

    def take(self, other: Unsynced) -> None:
        """Takes over all that the other has."""
        self.files |= other.files
        self.dirs |= other.dirs
        other.files, other.dirs = set(), set()
