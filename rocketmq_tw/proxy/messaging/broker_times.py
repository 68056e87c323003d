"""Estimates what time it is at the brokers, which alone judge when a message comes back."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from twisted.internet.interfaces import IReactorTime

from rocketmq_tw.proxy.messaging.receipt_handles import ReceiptHandle

#: Seconds of a window: answers of the latest one and of the one before it count.
_WINDOW_SECONDS = 30.0
#: A broker's clock was set back where an answer tells so much less, in ms, than former ones and
#: what it may have taken itself: clocks run apart a little.
_SET_BACK_MS = 1_000


class _Ahead(NamedTuple):
    """By how many ms a broker's time is ahead of the clock, as answers say of the window that began
    at `since`, in seconds of the clock, and of the one before."""

    since: float
    latest: int
    former: int

    @property
    def ms(self) -> int:
        return max(self.latest, self.former)


class BrokerTimes:
    """Knows the time of day of each broker that has answered a pop, or changed a message's time.
    The proxy's own may differ from it by any time.

    A broker is ahead at least by what an answer says that comes now, and by no more than if it had
    come at once. So of some answers the one counts by which it is ahead most: it took least."""

    def __init__(
        self, clock: IReactorTime, stood_still: Callable[[float], bool] = lambda _: False
    ) -> None:
        """`stood_still` tells whether this process did since a time, in seconds of the clock: then
        answers tell nothing that was asked for before."""
        self._clock = clock
        self.stood_still = stood_still
        #: By the broker's name.
        self._ahead: dict[str, _Ahead] = {}

    @property
    def now(self) -> float:
        """What the clock says now, in seconds."""
        return self._clock.seconds()

    def heard(self, broker_name: str, time_ms: int, asked_at: float) -> None:
        """Notes what time it was, in ms since 1970, when a broker made the answer that comes now,
        for which it was asked at `asked_at` or later, in seconds of the clock."""
        now = self._clock.seconds()
        least, most = time_ms - int(now * 1000), time_ms - int(asked_at * 1000)
        known = self._ahead.get(broker_name)
        if known is None or known.ms > most + _SET_BACK_MS:
            self._ahead[broker_name] = _Ahead(now, least, least)
        elif now - known.since >= _WINDOW_SECONDS:
            self._ahead[broker_name] = _Ahead(now, least, known.latest)
        elif least > known.latest:
            self._ahead[broker_name] = known._replace(latest=least)

    def has_heard_of(self, broker_name: str) -> bool:
        """Returns whether the time of day of a broker is known."""
        return broker_name in self._ahead

    def left_ms(self, handle: ReceiptHandle) -> int:
        """Returns for how many ms the message of a handle is hidden still, as far as is known here;
        less than 0 where that is over."""
        invisible_ms = handle.info.invisible_time
        ahead = self._ahead.get(handle.info.broker_name)
        if ahead is None:
            # Another proxy received it, and our time of day may differ from the broker's.
            return invisible_ms
        now = int(self._clock.seconds() * 1000) + ahead.ms
        # A handle of a time when the broker's clock was ahead is good for no longer either.
        return min(handle.visible_at - now, invisible_ms)
