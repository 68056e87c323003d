"""A clock by which the silence of peers may be judged."""

from __future__ import annotations

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from rocketmq_tw.runtime.periodic import PeriodicCall

#: Seconds between two looks at the clock.
_LOOK_SECONDS = 0.5
#: Seconds between two looks from which on the process counts as stopped meanwhile.
STOOD_STILL_SECONDS = 2.0


class WakingTime:
    """A clock that stands still while the process is paused, its machine asleep or its reactor
    held. What brokers said meanwhile is not read yet when the process goes on; by any other clock
    all of them have been silent for too long then.

    It looks at `clock` from `start` to `stop`.
    """

    log = Logger()

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._looked_at = clock.seconds()
        self._missed = 0.0
        self._looks = PeriodicCall(clock, "looking at the clock", _LOOK_SECONDS, self.now_ms)

    def start(self) -> None:
        """Looks from now on."""
        self._looked_at = self._clock.seconds()
        self._looks.start()

    def stop(self) -> None:
        """Looks no more."""
        self._looks.stop()

    def now_ms(self) -> int:
        """Milliseconds of it."""
        now = self._clock.seconds()
        passed, self._looked_at = now - self._looked_at, now
        if self._looks.is_running and passed > STOOD_STILL_SECONDS:
            self._missed += passed
            self.log.warn(
                "this process was not at work for {seconds} s: brokers get as much longer",
                seconds=f"{passed:.1f}",
            )
        return int((now - self._missed) * 1000)
