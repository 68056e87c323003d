"""Brokers that failed lately: others are asked before them."""

from __future__ import annotations

from collections.abc import Collection

from twisted.internet.interfaces import IReactorTime

#: Seconds for which a broker that failed is passed over where there are others.
AVOID_SECONDS = 10.0


class AvoidedBrokers:
    """The names of brokers that could not be reached or did not answer."""

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        #: Name of a broker -> until when it is avoided, in seconds of the clock.
        self._until: dict[str, float] = {}

    def add(self, broker_name: str) -> None:
        """Has a broker be avoided for `AVOID_SECONDS`."""
        self._forget_over()
        self._until[broker_name] = self._clock.seconds() + AVOID_SECONDS

    def now(self) -> Collection[str]:
        """Returns which ones are avoided."""
        if self._until:
            self._forget_over()
        return self._until.keys()

    def _forget_over(self) -> None:
        now = self._clock.seconds()
        self._until = {name: until for name, until in self._until.items() if until > now}
