"""Estimates what time it is at the brokers, which alone judge when a message comes back."""

from __future__ import annotations

from twisted.internet.interfaces import IReactorTime


class BrokerTimes:
    """Knows the time of day of each broker that has answered a pop, less what the answer took. The
    proxy's own may differ from it by any time."""

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        #: Broker name -> by how many ms its time is ahead of `clock`.
        self._ahead: dict[str, int] = {}

    def heard(self, broker_name: str, time_ms: int) -> None:
        """Notes what time it was when a broker gave the answer that comes now, in ms since 1970."""
        self._ahead[broker_name] = time_ms - self._now()

    def now_ms(self, broker_name: str) -> int | None:
        """Returns the time at a broker in ms since 1970; None where it has not been heard of."""
        ahead = self._ahead.get(broker_name)
        return None if ahead is None else self._now() + ahead

    def _now(self) -> int:
        return int(self._clock.seconds() * 1000)
