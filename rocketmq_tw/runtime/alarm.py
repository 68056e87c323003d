"""One call that is due later."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.interfaces import IDelayedCall, IReactorTime

#: Seconds that what waits for a time of day sleeps at most: the clock may be set.
LONGEST_SLEEP = 10.0
#: Seconds that anything sleeps at most that may wait for days: the network's wait cannot be as
#: long.
LONGEST_WAIT = 3600.0


class Alarm:
    """Calls `call` once, a while after it was set; it may be set again and again. A time that is
    past is now. With `longest` it rings after so many seconds at the latest, and `call` looks
    whether the time for which it waits has come."""

    __slots__ = ("_call", "_clock", "_longest", "_pending")

    def __init__(
        self,
        clock: IReactorTime,
        call: Callable[[], object],
        longest: float = float("inf"),
    ) -> None:
        self._clock = clock
        self._call = call
        self._longest = longest
        self._pending: IDelayedCall | None = None

    @property
    def is_set(self) -> bool:
        """Whether the call is due later."""
        return self._pending is not None

    @property
    def due(self) -> float | None:
        """The clock's time, in seconds, at which the call is due; None where it is not set."""
        return None if self._pending is None else self._pending.getTime()

    def set(self, seconds: float) -> None:
        """Makes the call due in `seconds`, whatever was set before."""
        self.cancel()
        self._begin(seconds)

    def set_if_unset(self, seconds: float) -> None:
        """Makes the call due in `seconds`, unless it is due at some time already."""
        if self._pending is None:
            self._begin(seconds)

    def set_no_later(self, seconds: float) -> None:
        """Makes the call due in `seconds`, unless it is due before that already."""
        if self._pending is None or self._pending.getTime() > self._clock.seconds() + seconds:
            self.set(seconds)

    def cancel(self) -> None:
        """Makes the call due no more."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.cancel()

    def _begin(self, seconds: float) -> None:
        self._pending = self._clock.callLater(min(max(seconds, 0), self._longest), self._ring)

    def _ring(self) -> None:
        self._pending = None
        self._call()
