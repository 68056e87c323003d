"""Time for timers."""

import time
from typing import Any


def use_monotonic_time(reactor: Any) -> None:
    """Lets a reactor that counts by the wall clock, as Twisted's own do, count by one that nobody
    sets. Otherwise whatever waits would wait an hour longer when the time is set back by an hour.

    To be called before anything waits.
    """
    if reactor.seconds is time.time and not reactor.getDelayedCalls():
        reactor.seconds = time.monotonic
