"""The brokers of the cluster by name, as name servers have them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from rocketmq_tw.client.errors import ClientError
from rocketmq_tw.client.name_servers import NameServers
from rocketmq_tw.client.routes import address_of
from rocketmq_tw.runtime.alarm import Alarm
from rocketmq_tw.runtime.fairness import Coalesced
from rocketmq_tw.runtime.periodic import PeriodicCall
from rocketmq_tw.wire.bodies.base import decode_body
from rocketmq_tw.wire.bodies.route import BrokerData, ClusterInfo, TopicRouteData
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import WireError

#: Seconds between two looks at the brokers.
_LOOK_SECONDS = 5.0
#: Seconds between two looks that failures ask for.
_BETWEEN_LOOKS = 1.0
#: Seconds for which brokers and routes stay in use that name servers have no more: one that starts
#: knows a broker when that one registers, which each does every 30 s.
KEEP_SECONDS = 60.0


class KnownBrokers:
    """Asks name servers for all brokers, again and again."""

    log = Logger()

    def __init__(self, clock: IReactorTime, names: NameServers) -> None:
        #: Whether a name server has told of brokers.
        self.is_told = False
        self._names = names
        self._clock = clock
        #: Name of a known broker -> since when name servers do not have it.
        self._gone: dict[str, float] = {}
        self._brokers: dict[str, BrokerData] = {}
        self._refresh = Coalesced(lambda: Deferred.fromCoroutine(self._ask()))
        self._looked_at = -inf
        self._next_refresh = Alarm(clock, self._refresh.request)
        self._periodic = PeriodicCall(
            clock, "asking for brokers", _LOOK_SECONDS, self._refresh.request, may_hang=True
        )

    def start(self) -> None:
        """Asks from now on."""
        self._periodic.start(now=True)

    def stop(self) -> None:
        """Asks no more."""
        self._periodic.stop()
        self._next_refresh.cancel()

    def refresh(self) -> None:
        """Asks anew, as where a broker could not be reached: now, or when the last look is
        `_BETWEEN_LOOKS` seconds old, since clients may cause this as often as they like."""
        if not self._periodic.is_running:
            return
        wait = self._looked_at + _BETWEEN_LOOKS - self._clock.seconds()
        if wait > 0:
            self._next_refresh.set_if_unset(wait)
        else:
            self._refresh.request()

    def names(self) -> Sequence[str]:
        """Returns the names of all brokers."""
        return list(self._brokers)

    def address(self, name: str) -> str | None:
        """Returns the address of the broker of a name that serves; None where none is known."""
        data = self._brokers.get(name)
        return None if data is None else address_of([data], name)

    def name_at(self, address: str) -> str | None:
        """Returns the name of the broker at an address; None where none is known there."""
        for name, data in self._brokers.items():
            if address in data.broker_addrs.values():
                return name
        return None

    def learn(self, route: TopicRouteData) -> None:
        """Takes the brokers of a route that came."""
        found = {data.broker_name: data for data in route.broker_datas}
        for name in found:
            self._gone.pop(name, None)
        self._brokers = {**self._brokers, **found}

    async def _ask(self) -> None:
        self._next_refresh.cancel()
        self._looked_at = self._clock.seconds()
        try:
            info = await self._cluster_info()
        except (ClientError, WireError) as error:
            # Those that are known stay in use: they may well be there.
            self.log.warn(
                "no name server tells the brokers of the cluster, the known ones stay: {error}",
                error=error,
            )
            return
        # One that has just started knows of none.
        self.is_told = self.is_told or bool(info.broker_addr_table)
        self._brokers = {**self._kept(info.broker_addr_table), **info.broker_addr_table}

    async def _cluster_info(self) -> ClusterInfo:
        """Returns what a name server knows. One that knows no broker has just started, perhaps, and
        the next ones are asked, for routes as well from then on."""
        for _ in self._names.addresses:
            address, answer = await self._names.ask(
                lambda: RemotingCommand.request(RequestCode.GET_BROKER_CLUSTER_INFO)
            )
            info = decode_body(ClusterInfo, answer.body)
            if info.broker_addr_table:
                break
            self._names.pass_over(address)
        return info

    def _kept(self, found: Mapping[str, BrokerData]) -> dict[str, BrokerData]:
        """Returns the known brokers that stay in use where a name server has those of `found`."""
        now = self._clock.seconds()
        self._gone = {
            name: self._gone.get(name, now) for name in self._brokers if name not in found
        }
        return {
            name: data
            for name, data in self._brokers.items()
            if now - self._gone.get(name, now) < KEEP_SECONDS
        }
