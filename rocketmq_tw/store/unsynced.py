"""What was changed on a disk and is not durable yet."""

from __future__ import annotations


class Unsynced:
    """Paths of files, and of directories whose names changed."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.dirs: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self.files or self.dirs)

    def taken(self) -> Unsynced:
        """All that is here, and is not any more."""
        taken = Unsynced()
        taken.files, self.files = self.files, taken.files
        taken.dirs, self.dirs = self.dirs, taken.dirs
        return taken
