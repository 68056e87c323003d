"""The registered brokers: by cluster and address, by connection, and how many of each name and
host."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from rocketmq_tw.namesrv.brokers import BrokerKey, LiveBroker
from rocketmq_tw.net.host_shares import HostShares


def newest_of_crowd(brokers: Sequence[LiveBroker], host: str) -> LiveBroker | None:
    """Returns the last of these `brokers` that the host with most of them registered; None where
    `host` has as many as that one, less one: nobody takes all the room from others."""
    crowd = HostShares(live.host for live in brokers).giving_way(host)
    return next((live for live in reversed(brokers) if live.host == crowd), None)


class LivingBrokers:
    """Brokers that registered and were not taken out, the last that registered last."""

    def __init__(self) -> None:
        self._by_key: dict[BrokerKey, LiveBroker] = {}
        #: Connection -> the brokers that registered over it.
        self._owned: dict[Any, dict[BrokerKey, None]] = {}
        #: How many there are of a name in a cluster.
        self._of_name = Counter[tuple[str, str]]()
        #: How many each host registered.
        self._of_host = HostShares()

    def __len__(self) -> int:
        return len(self._by_key)

    def __contains__(self, key: BrokerKey) -> bool:
        return key in self._by_key

    def get(self, key: BrokerKey) -> LiveBroker | None:
        """Returns the broker at this address of a cluster; None where there is none."""
        return self._by_key.get(key)

    def at(self, address: str, clusters: Iterable[str]) -> LiveBroker | None:
        """Returns the broker at this address of the first of these clusters that has one."""
        known = (self._by_key.get(BrokerKey(cluster, address)) for cluster in clusters)
        return next((live for live in known if live), None)

    def living_at(self, address: str, clusters: Iterable[str], now_ms: int) -> LiveBroker | None:
        """Returns what `at` does, where it is not silent for too long."""
        live = self.at(address, clusters)
        return live if live and not live.is_silent(now_ms) else None

    def put(self, live: LiveBroker) -> None:
        """Adds a broker whose key is not there."""
        self._by_key[live.key] = live
        self._owned.setdefault(live.owner, {})[live.key] = None
        self._of_name[live.broker_name, live.key.cluster] += 1
        self._of_host.add(live.host)

    def remove(self, key: BrokerKey) -> LiveBroker | None:
        """Takes out, and returns, a broker; None where it is not there."""
        live = self._by_key.pop(key, None)
        if live is not None:
            self._of_host.remove(live.host)
            place = live.broker_name, live.key.cluster
            self._of_name[place] -= 1
            if not self._of_name[place]:
                del self._of_name[place]
            keys = self._owned[live.owner]
            del keys[key]
            if not keys:
                del self._owned[live.owner]
        return live

    def of(self, owner: object) -> list[LiveBroker]:
        """Returns the brokers of a connection."""
        return [self._by_key[key] for key in self._owned.get(owner, ())]

    def has(self, broker_name: str, cluster: str) -> bool:
        """Returns whether a cluster has a broker of this name."""
        return (broker_name, cluster) in self._of_name

    def silent(self, now_ms: int) -> list[LiveBroker]:
        """Returns the brokers that have been silent for too long."""
        return [live for live in self._by_key.values() if live.is_silent(now_ms)]

    def newest_of_crowd(self, host: str) -> LiveBroker | None:
        """Returns the newest broker of the host that has most of all; None where `host` has as many
        as that one, less one."""
        crowd = self._of_host.giving_way(host)
        return next((live for live in reversed(self._by_key.values()) if live.host == crowd), None)
