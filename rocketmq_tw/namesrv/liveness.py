"""Finds the brokers that are gone: at once with their connection, or by their silence."""

from collections.abc import Callable
from typing import Any

from twisted.logger import Logger

from rocketmq_tw.namesrv.route_table import RouteTable
from rocketmq_tw.net.interfaces import IPeer
from rocketmq_tw.runtime.periodic import PeriodicCall


class Liveness:
    """Takes brokers out of the route table."""

    log = Logger()

    def __init__(
        self, clock: Any, table: RouteTable, now_ms: Callable[[], int], interval: float
    ) -> None:
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

    def scan(self) -> None:
        """Forgets the silent brokers and closes their connections."""
        for live in self._table.expire(self._now_ms()):
            self.log.warn(
                "broker {name} {address} was silent for more than {timeout} ms: removed",
                name=live.broker_name,
                address=live.key.address,
                timeout=live.heartbeat_timeout,
            )
            live.owner.close("its broker was silent for too long")

    def _lost(self, peer: IPeer) -> None:
        self._watched.discard(peer)
        for live in self._table.lose(peer):
            self.log.info(
                "broker {name} {address} lost its connection: removed",
                name=live.broker_name,
                address=live.key.address,
            )
