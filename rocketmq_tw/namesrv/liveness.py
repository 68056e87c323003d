"""Finds the brokers that are gone: at once with their connection, or by their silence."""

from collections.abc import Callable, Iterator
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from rocketmq_tw.namesrv.brokers import LiveBroker
from rocketmq_tw.namesrv.route_table import RouteTable
from rocketmq_tw.net.interfaces import IPeer
from rocketmq_tw.runtime.periodic import PeriodicCall
from rocketmq_tw.runtime.slices import Slices

#: Brokers that one step takes out: each may have a step of topics.
_STEP = 20


class Liveness:
    """Takes brokers out of the route table, some of many at a time."""

    log = Logger()

    def __init__(
        self,
        clock: Any,
        table: RouteTable,
        now_ms: Callable[[], int],
        interval: float,
        in_slices: Slices,
    ) -> None:
        self._in_slices = in_slices
        self._table = table
        self._now_ms = now_ms
        self._watched: set[IPeer] = set()
        self._scan = PeriodicCall(clock, "the look for silent brokers", interval, self.scan)
        self.start, self.stop = self._scan.start, self._scan.stop

    def watch(self, peer: IPeer) -> None:
        """Watches `peer`, which registered a broker, and forgets it when the connection is lost."""
        if peer not in self._watched:
            self._watched.add(peer)
            peer.when_lost(self._lost)

    def scan(self) -> Deferred[Any]:
        """Forgets the silent brokers and closes their connections; fires once that is done."""
        return self._in_slices(self._take_out(self._table.expire(self._now_ms()), self._close))

    def _close(self, live: LiveBroker) -> None:
        self.log.warn(
            "broker {name} {address} was silent for more than {timeout} ms: removed",
            name=live.broker_name,
            address=live.key.address,
            timeout=live.heartbeat_timeout,
        )
        live.owner.close("its broker was silent for too long")

    def _lost(self, peer: IPeer) -> None:
        self._watched.discard(peer)
        self._in_slices.unwatched(
            self._take_out(self._table.lose(peer), self._say_lost),
            "forgetting the brokers of a lost connection",
        )

    def _say_lost(self, live: LiveBroker) -> None:
        self.log.info(
            "broker {name} {address} lost its connection: removed",
            name=live.broker_name,
            address=live.key.address,
        )

    @staticmethod
    def _take_out(gone: Iterator[LiveBroker], then: Callable[[LiveBroker], None]) -> Iterator[None]:
        for number, live in enumerate(gone):
            then(live)
            if number % _STEP == _STEP - 1:
                yield
