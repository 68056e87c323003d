"""Lines of the log about requests that a broker does not carry out: of a broker that is away there
would be as many as clients ask."""

from __future__ import annotations

from twisted.internet.interfaces import IReactorTime

from rocketmq_tw.runtime.log_throttle import LogThrottleByKey

#: Seconds between two lines about one broker, and brokers that are remembered for that: clients may
#: name any.
SAY_BROKER_AGAIN_SECONDS = 60.0
_MOST_BROKERS = 1_000


class BrokerLines:
    """Has one kind of line written about each broker every `SAY_BROKER_AGAIN_SECONDS` at most."""

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._said = LogThrottleByKey[str](SAY_BROKER_AGAIN_SECONDS, _MOST_BROKERS)

    def is_due(self, broker_name: str) -> bool:
        """Returns whether a line about a broker is to be written now, and takes it for written."""
        return self._said.is_due(broker_name, self._clock.seconds())
