"""The place of the log as of which a table is known that follows from what was stored. A broker
that becomes the master, or is started again, knows by it which records the table does not count
yet. A place of the log is the same on all members of a group, which the time of day is not.
"""

from __future__ import annotations

from collections.abc import Callable


class LogPlace:
    """The place, in bytes, while the broker does not change the table; `now` tells it while it
    does. None: it is not known, since another program wrote the table, or it was changed in a way
    that the log does not tell."""

    def __init__(self) -> None:
        self.place: int | None = None
        self._now: Callable[[], int | None] | None = None

    @property
    def is_kept(self) -> bool:
        """Whether the place is one of before, and not asked for."""
        return self._now is None

    def now(self) -> int | None:
        """Returns the place of the table as it is now."""
        return self.place if self._now is None else self._now()

    def begin(self, now: Callable[[], int | None]) -> None:
        """Asks `now` from here on."""
        self._now = now

    def end(self) -> None:
        """Ends what `begin` began."""
        self.place = self.now()
        self._now = None

    def cut(self, end: int) -> None:
        """Notes that the log ends at `end` from here on."""
        if self.place is not None:
            self.place = min(self.place, end)
