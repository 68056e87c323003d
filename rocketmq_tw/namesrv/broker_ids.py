"""Keeps who has the ids of groups of brokers, who had them, and who may take them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from rocketmq_tw.namesrv.brokers import BrokerKey, LiveBroker, Registration
from rocketmq_tw.namesrv.living_brokers import LivingBrokers
from rocketmq_tw.net.host_shares import HostShares

#: Milliseconds for which a broker that is gone may take its place back, and how many of them are
#: remembered.
RETURN_MS = 600_000
MAX_FORMER = 20_000
#: By how much the controllers' epoch of a place may grow from one address to the next. Each
#: election adds one, and some may pass while a name server hears of none; what a stranger makes up
#: must not make all epochs to come count as old.
MAX_EPOCH_STEP = 100


class BrokerPlace(NamedTuple):
    """The name and id that a broker asks for, its address, and the host that it asks from."""

    broker_name: str
    broker_id: int
    address: str
    host: str


class Holder(NamedTuple):
    """A living broker that has the name and id which another one asks for.

    `gives_way`: the other one may have them. It is of the group, of this one's host, and changes
    its id; it has the next epoch of the controllers that this one has one of; or it had them a
    short time ago.
    """

    address: str
    gives_way: bool


class FormerHolder(NamedTuple):
    """A broker that is gone, when it was heard of last, its epoch of the controllers, and the host
    that registered it."""

    address: str
    heard_at: int
    epoch: int
    host: str


class FormerHolders:
    """The broker that had a name and id last and is gone: for `RETURN_MS` it gets them back from
    others that took them meanwhile. A stranger that waits for a broker's restart must not keep it
    out."""

    def __init__(self) -> None:
        #: By name and id; the last that left last.
        self._left: dict[tuple[str, int], FormerHolder] = {}
        self._of_host = HostShares()

    def left(self, name: str, broker_id: int, holder: FormerHolder) -> None:
        """Notes that a broker is gone; one that only had the place of a former one is not noted.
        Where there are too many, one of the host that has most of them is forgotten."""
        key = name, broker_id
        former = self._left.get(key)
        if former is not None and holder.heard_at - former.heard_at <= RETURN_MS:
            return
        self._forget(key)
        self._left[key] = holder
        self._of_host.add(holder.host)
        while holder.heard_at - self._oldest() > RETURN_MS:
            self._forget(next(iter(self._left)))
        if len(self._left) > MAX_FORMER:
            host = self._of_host.largest()
            self._forget(next(key for key, one in self._left.items() if one.host == host))

    def _forget(self, key: tuple[str, int]) -> None:
        former = self._left.pop(key, None)
        if former is not None:
            self._of_host.remove(former.host)

    def _oldest(self) -> int:
        """Returns when the first of them was heard of last."""
        return next(iter(self._left.values())).heard_at

    def of(self, name: str, broker_id: int, now_ms: int) -> FormerHolder | None:
        """Returns who had the name and id a short time ago and is gone."""
        former = self._left.get((name, broker_id))
        return former if former and now_ms - former.heard_at <= RETURN_MS else None

    def may_return(self, name: str, broker_id: int, address: str, now_ms: int) -> bool:
        """Returns whether this address had the name and id a short time ago."""
        former = self.of(name, broker_id, now_ms)
        return former is not None and former.address == address

    def came(self, name: str, broker_id: int, address: str) -> None:
        """Notes that a broker is registered."""
        former = self._left.get((name, broker_id))
        if former is not None and former.address == address:
            self._forget((name, broker_id))


class BrokerIds:
    """Judges between brokers that ask for one name and id.

    `addresses` of its methods are those of a group by id, `clusters` those that it is registered
    for.
    """

    def __init__(self, living: LivingBrokers) -> None:
        self._living = living
        self._former = FormerHolders()
        #: Name and id -> the living broker that had them and did not answer when another one asked
        #: for them, while a former holder has them.
        self._displaced: dict[tuple[str, int], BrokerKey] = {}

    def holder(
        self,
        new: Registration,
        addresses: Mapping[int, str],
        clusters: Collection[str],
        now_ms: int,
    ) -> Holder | None:
        """Returns the other living broker that has the name and id of `new`; None where there is
        none, or where its controller epoch is newer."""
        live = self._holder_of(new.broker_id, new.address, addresses, clusters, now_ms)
        if live is None or self.is_outdated(new, live, now_ms):
            return None
        epoch = self._epoch_of(live, new.broker_id, now_ms)
        may = new.address in addresses.values() and new.host == live.host
        may = may or 0 < epoch < new.epoch <= epoch + MAX_EPOCH_STEP
        may = may or self._former.may_return(new.broker_name, new.broker_id, new.address, now_ms)
        return Holder(live.key.address, gives_way=may)

    def contested(
        self,
        member: BrokerPlace,
        addresses: Mapping[int, str],
        clusters: Collection[str],
        now_ms: int,
    ) -> LiveBroker | None:
        """Returns the living broker of another host that has the id to which a member of the group
        changes; None where there is none, where the epochs of controllers judge between the two, or
        where the member had it before."""
        name, broker_id, address, host = member
        live = self._holder_of(broker_id, address, addresses, clusters, now_ms)
        if live is None or live.host == host or self._epoch_of(live, broker_id, now_ms):
            return None
        if address not in addresses.values():
            return None
        return None if self._former.may_return(name, broker_id, address, now_ms) else live

    def is_outdated(self, new: Registration, holder: LiveBroker, now_ms: int) -> bool:
        """Returns whether the epoch of `new` is over, as that of another one at its place says. A
        former holder without an epoch is of a group without controllers, where none says so."""
        name, broker_id = new.broker_name, new.broker_id
        if holder.key == new.key or new.epoch >= self._epoch_of(holder, broker_id, now_ms):
            return False
        return new.epoch != 0 or not self._former.may_return(name, broker_id, new.address, now_ms)

    def take(self, new: Registration, addresses: dict[int, str], clusters: Collection[str]) -> None:
        """Gives `new` its id, and notes whose it was, where no epoch of controllers is the
        reason."""
        holder = addresses.get(new.broker_id)
        if holder is not None and holder != new.address:
            self._displace(new, self._living.at(holder, clusters))
        addresses[new.broker_id] = new.address
        self._former.came(new.broker_name, new.broker_id, new.address)

    def give_up(
        self, name: str, broker_id: int, addresses: dict[int, str], gone: LiveBroker | None = None
    ) -> None:
        """Frees an id, which a broker that is `gone` may take back. It goes to the living broker
        that had it before and has said nothing since, where a former holder took it from that."""
        address = addresses.pop(broker_id)
        if gone is not None:
            former = FormerHolder(address, gone.last_update, gone.epoch, gone.host)
            self._former.left(name, broker_id, former)
        key = self._displaced.pop((name, broker_id), None)
        live = None if key is None else self._living.get(key)
        if live is None or live.displaced_from != broker_id or live.broker_name != name:
            return
        if live.key.address not in addresses.values():
            live.displaced_from = None
            addresses[broker_id] = live.key.address

    def forget_displaced(self, live: LiveBroker) -> None:
        """Forgets that an id was taken from a broker, which it would get back."""
        if live.displaced_from is not None:
            place = live.broker_name, live.displaced_from
            if self._displaced.get(place) == live.key:
                del self._displaced[place]

    def _holder_of(
        self,
        broker_id: int,
        address: str,
        addresses: Mapping[int, str],
        clusters: Collection[str],
        now_ms: int,
    ) -> LiveBroker | None:
        """Returns the living broker that has an id, where it is not the one at `address`."""
        holder = addresses.get(broker_id)
        if holder is None or holder == address:
            return None
        return self._living.living_at(holder, clusters, now_ms)

    def _epoch_of(self, holder: LiveBroker, broker_id: int, now_ms: int) -> int:
        """Returns the epoch of the controllers at which the holder of an id counts. One that is far
        ahead of the former holder's is no election's, and makes no other one count as old."""
        former = self._former.of(holder.broker_name, broker_id, now_ms)
        if former is None or former.address == holder.key.address:
            return holder.epoch
        return holder.epoch if holder.epoch <= former.epoch + MAX_EPOCH_STEP else former.epoch

    def _displace(self, new: Registration, live: LiveBroker | None) -> None:
        if live is None or live.broker_name != new.broker_name:
            # The address is another one's in another cluster.
            return
        if live.epoch == new.epoch == 0:
            self.forget_displaced(live)
            live.displaced_from = new.broker_id
            self._displaced[new.broker_name, new.broker_id] = live.key
