"""As of which place of the log groups' offsets are: what was popped in front of it is counted.

A broker that becomes the master finds the check points of what was popped behind it in the log
(`broker/pop/popped_since.py`).
"""

from __future__ import annotations

from collections.abc import Callable


class AsOf:
    """The place while the broker does not pop; `now` tells it while it does. None: it is not known,
    since another program wrote the offsets, or some went back and the log does not say so."""

    def __init__(self) -> None:
        self.place: int | None = None
        self._now: Callable[[], int | None] | None = None

    def now(self) -> int | None:
        """Returns the place of the offsets as they are now."""
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

    def went_back(self) -> None:
        """Notes that an offset went back."""
        if self._now is None:
            self.place = None
