"""Requests to brokers that nobody waits for, a bounded number to each broker at a time."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from rocketmq_tw.proxy.messaging.broker_round_robin import BrokerRoundRobin

#: What is begun in one turn of the reactor.
_MOST_IN_TURN = 500

_log = Logger()

#: Makes a request; what it fails with is logged.
MakeRequest = Callable[[], Coroutine[Any, Any, None]]


class BrokerWork:
    """Makes so many requests to each broker at a time. `wake` has `go_on` called soon."""

    def __init__(self, most: int, wake: Callable[[], None]) -> None:
        self._requests = BrokerRoundRobin[tuple[str, MakeRequest]](most)
        self._wake = wake

    def __len__(self) -> int:
        """How many requests wait or are under way."""
        return len(self._requests)

    def add(self, broker: str, make: MakeRequest, *, urgent: bool) -> None:
        """Adds a request; what is urgent goes before what is not."""
        self._requests.add(broker, (broker, make), urgent=urgent)
        self._wake()

    def go_on(self) -> None:
        """Begins what may be begun, a bounded number."""
        for _ in range(_MOST_IN_TURN):
            item = self._requests.next()
            if item is None:
                return
            self._begin(*item)
        self._wake()

    def clear(self) -> None:
        """Drops what waits."""
        self._requests.clear()

    def _begin(self, broker: str, make: MakeRequest) -> None:
        def over(_: None) -> None:
            self._requests.over(broker)
            self._wake()

        done = Deferred.fromCoroutine(make())
        done.addErrback(
            lambda failure: _log.failure(
                "a request to broker {name} failed", failure=failure, name=broker
            )
        )
        done.addCallback(over)
