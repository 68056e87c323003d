"""A clock by which the silence of peers may be judged."""

from __future__ import annotations

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from rocketmq_tw.runtime.standstills import Standstills

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
        self._missed = 0.0
        self._standstills = Standstills(
            clock, tick=_LOOK_SECONDS, longest=STOOD_STILL_SECONDS, ended=self._stood_still
        )

    def start(self) -> None:
        """Looks from now on."""
        self._standstills.start()

    def stop(self) -> None:
        """Looks no more."""
        self._standstills.stop()

    def now_ms(self) -> int:
        """Milliseconds of it."""
        self._standstills.look()
        return int((self._clock.seconds() - self._missed) * 1000)

    def _stood_still(self, seconds: float) -> None:
        self._missed += seconds
        self.log.warn(
            "this process was not at work for {seconds} s: brokers get as much longer",
            seconds=f"{seconds:.1f}",
        )
