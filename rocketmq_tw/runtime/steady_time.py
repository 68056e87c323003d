"""Reactors whose time goes on evenly, also where the clock of the machine is set."""

import time
from collections.abc import Callable
from typing import Any


def use_monotonic_time(reactor: Any) -> None:
    """Lets a reactor that counts by the wall clock, as Twisted's own do, count by the monotonic
    clock. Otherwise all waits would be an hour longer after the clock is set back by an hour. It
    stands still while the machine sleeps: what peers said meanwhile is read before they count as
    silent. Where something waits already, its reactor keeps its clock."""
    if reactor.seconds is time.time and not reactor.getDelayedCalls():
        reactor.seconds = time.monotonic


def go_on_steadily(reactor: Any) -> None:
    """Lets a reactor that counts by the wall clock go on from the time that it is, but change no
    more where that is set. Unlike `use_monotonic_time` it is for reactors of others: they may run,
    what waits is called in time, and the time that the machine sleeps counts as before."""
    if reactor.seconds is not time.time:
        return
    elapsed = _time_with_sleep()
    began = time.time() - elapsed()

    def seconds() -> float:
        return began + elapsed()

    reactor.seconds = seconds
    for call in reactor.getDelayedCalls():
        # Each has the reactor's clock of before, by which it would be put off.
        call.seconds = seconds


def _time_with_sleep() -> Callable[[], float]:
    """Returns what tells the seconds since the machine's start; only Linux counts its sleep."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic if clock is None else lambda: time.clock_gettime(clock)
