"""Standstills of this process: it was stopped by a signal, its machine was asleep, or it had so
much to do that nothing else was done meanwhile. What comes then may have been made long before."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from twisted.internet.interfaces import IReactorTime

from rocketmq_tw.runtime.periodic import PeriodicCall


class Standstills:
    """Tells from looks at the clock, which come every `tick` seconds from `start` to `stop`: the
    process stood still where more than `longest` seconds passed between two of them. `ended` is
    called with these seconds."""

    def __init__(
        self,
        clock: IReactorTime,
        *,
        tick: float = 1.0,
        longest: float = 3.0,
        ended: Callable[[float], object] = lambda _: None,
    ) -> None:
        self._clock = clock
        self._longest = longest
        self._told = ended
        self._looked_at = clock.seconds()
        self._ended_at = -inf
        self._looks = PeriodicCall(clock, "looking at the clock", tick, self.look)

    def start(self) -> None:
        """Looks at the clock from now on."""
        self._looked_at = self._clock.seconds()
        self._looks.start()

    def stop(self) -> None:
        """Looks no more."""
        self._looks.stop()

    def look(self) -> None:
        """Looks at the clock now, unless it is not started."""
        now = self._clock.seconds()
        passed, self._looked_at = now - self._looked_at, now
        if self._looks.is_running and passed > self._longest:
            self._ended_at = now
            self._told(passed)

    def since(self, time: float) -> bool:
        """Returns whether the process stood still up to some moment after `time`, in seconds of
        the clock."""
        self.look()
        return self._ended_at > time
