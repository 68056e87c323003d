"""Standstills of this process: it was stopped by a signal, or had so much to do that nothing else
was done meanwhile. What comes then may have been made long before."""

from __future__ import annotations

from math import inf

from twisted.internet.interfaces import IReactorTime

from rocketmq_tw.runtime.periodic import PeriodicCall

#: Seconds between two looks at the clock, and after how many without one it stood still.
_TICK = 1.0
_LONG = 3.0


class Standstills:
    """Tells from looks at the clock that should come each second."""

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._looked = clock.seconds()
        self._ended = -inf
        self._ticks = PeriodicCall(clock, "looking at the clock", _TICK, self._look)

    def start(self) -> None:
        """Looks at the clock from now on."""
        self._looked = self._clock.seconds()
        self._ticks.start()

    def stop(self) -> None:
        """Looks no more."""
        self._ticks.stop()

    def since(self, time: float) -> bool:
        """Returns whether the process stood still for some seconds that ended after `time`, in
        seconds of the clock; while it is not started, that it did not."""
        if self._ticks.is_running:
            self._look()
        return self._ended > time

    def _look(self) -> None:
        now = self._clock.seconds()
        if now - self._looked > _LONG:
            self._ended = now
        self._looked = now
