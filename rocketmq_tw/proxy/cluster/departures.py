"""Tells brokers of groups that nobody on a lane is in any more (35)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from rocketmq_tw.net.errors import RemotingError
from rocketmq_tw.proxy.broker_lines import BrokerLines
from rocketmq_tw.proxy.cluster.lanes import Departure, Lanes
from rocketmq_tw.proxy.memberships import unregistration_of
from rocketmq_tw.runtime.fairness import SerialQueue
from rocketmq_tw.wire.command import RemotingCommand

#: Groups that one broker has not been told of. Of further ones it is not told at all, and closes
#: the connection when they have been silent for long.
MAX_PENDING = 100_000

log = Logger()

#: Asks a broker over a lane.
AskOverLane = Callable[[str, int, RemotingCommand], Deferred[RemotingCommand]]


class Departures:
    """Tells each broker one after the other over each lane; a broker that hangs holds up nobody but
    itself."""

    def __init__(self, clock: IReactorTime, lanes: Lanes, ask: AskOverLane) -> None:
        self._lanes = lanes
        self._ask = ask
        self._queue: SerialQueue[tuple[str, int]] = SerialQueue()
        #: Broker name -> groups that it has not been told of.
        self._pending: Counter[str] = Counter()
        self._is_over = False
        self._said_slow = BrokerLines(clock)
        self._said_untold = BrokerLines(clock)

    def stop(self) -> None:
        """Tells no more."""
        self._is_over = True

    def tell(self, departure: Departure | None) -> None:
        """Has all brokers that know the client be told."""
        if departure is None:
            return
        for name in departure.brokers:
            count = len(departure.memberships)
            if self._pending[name] + count > MAX_PENDING:
                if self._said_slow.is_due(name):
                    log.warn(
                        "broker {name} answers too slowly: it is not told that {client} left its"
                        " groups",
                        name=name,
                        client=departure.client_id,
                    )
                continue
            self._pending[name] += count
            self._queue.run((name, departure.lane), self._telling(name, departure))

    def _telling(self, name: str, departure: Departure) -> Callable[[], Deferred[None]]:
        return lambda: Deferred.fromCoroutine(self._tell(name, departure))

    def _no_longer_pending(self, name: str) -> None:
        self._pending[name] -= 1
        if not self._pending[name]:
            # Brokers come and go.
            del self._pending[name]

    async def _tell(self, name: str, departure: Departure) -> None:
        for membership in departure.memberships:
            self._no_longer_pending(name)
            if self._is_over:
                return
            if self._lanes.has_member(departure.lane, membership, name):
                # The broker would forget a client that came meanwhile.
                continue
            request = unregistration_of(departure.client_id, membership)
            try:
                await self._ask(name, departure.lane, request)
            except RemotingError as error:
                if self._said_untold.is_due(name):
                    log.info(
                        "broker {name} is not told that {client} left {group!r}: {error}",
                        name=name,
                        client=departure.client_id,
                        group=membership.group,
                        error=error,
                    )
            except Exception:
                log.failure(
                    "telling broker {name} that {client} left {group!r} failed",
                    name=name,
                    client=departure.client_id,
                    group=membership.group,
                )
