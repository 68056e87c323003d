"""The books on heartbeats: which brokers are alive, and how far their logs are."""

from collections import Counter
from collections.abc import Callable, Hashable
from typing import Generic, NamedTuple, TypeVar

from rocketmq_tw.controller.core.election import CandidateStanding
from rocketmq_tw.net.networks import ip_of, is_same_host
from rocketmq_tw.structs import msgspec

#: Stock's, for a heartbeat that says nothing of it.
DEFAULT_TIMEOUT_MS = 10_000
#: Brokers whose group is unknown here, so that a client may invent them.
MAX_STRANGERS = 1000
#: Between two looks at all of them where there is no room for one more.
SWEEP_MS = 1000


#: Milliseconds after which a broker that is alive is known at the host that it speaks from. One in
#: sync that is down for so long is none any more, where its group has a master.
AT_HOME_MS = 600_000


#: A connection.
_Owner = TypeVar("_Owner", bound=Hashable)


class ReplicaKey(NamedTuple):
    """A broker that sends heartbeats."""

    cluster: str
    name: str
    broker_id: int

    def __str__(self) -> str:
        return f"broker {self.broker_id} of {self.name} in {self.cluster}"


class _Live(msgspec.Struct, Generic[_Owner]):
    owner: _Owner
    #: When the owner itself was heard last.
    owner_seen_at: int
    seen_at: int
    timeout_ms: int
    standing: CandidateStanding
    #: Where the owner says that the broker is.
    address: str
    #: The host that the owner speaks from, and the one that it was known at before.
    host: str
    home: str
    #: Since when it is alive.
    since: int


class _Gone(NamedTuple):
    """A registered broker that is not alive: the host that it was known at, and since when."""

    home: str
    at: int


class LiveBrokers(Generic[_Owner]):
    """Times in milliseconds of one clock. A broker belongs to the connection (`owner`) over which
    its first heartbeat came, until that one is lost or silent for too long: as in stock, a
    heartbeat over another one does not make the broker end with that."""

    def __init__(
        self,
        now_ms: Callable[[], int],
        is_known: Callable[[ReplicaKey], bool],
        registered_at: Callable[[ReplicaKey], str] = lambda key: "",
        *,
        hears_strangers: bool = True,
    ) -> None:
        """`registered_at` returns the address, `host:port`, that a broker is registered with; for
        `hears_strangers` see `BrokerLife`."""
        self.hears_strangers = hears_strangers
        self._now_ms = now_ms
        self._is_known = is_known
        self._registered_at = registered_at
        #: Registered brokers that were alive.
        self._gone: dict[ReplicaKey, _Gone] = {}
        self._live: dict[ReplicaKey, _Live[_Owner]] = {}
        self._owned: dict[_Owner, set[ReplicaKey]] = {}
        self._strangers: set[ReplicaKey] = set()
        self._swept_at: int | None = None

    def standing(self, cluster: str, name: str, broker_id: int) -> CandidateStanding | None:
        """Returns what its heartbeats said; None for a broker that is not alive."""
        live = self._alive(ReplicaKey(cluster, name, broker_id))
        return None if live is None else live.standing

    def address(self, cluster: str, name: str, broker_id: int) -> str:
        """See `BrokerLife`."""
        live = self._alive(ReplicaKey(cluster, name, broker_id))
        return "" if live is None else live.address

    def speaks_from_elsewhere(self, cluster: str, name: str, broker_id: int) -> bool:
        """See `BrokerLife`. Of a broker that is registered by a name nobody can tell."""
        key = ReplicaKey(cluster, name, broker_id)
        live = self._alive(key)
        if live is None or live.host == live.home:
            return False
        if self._now_ms() - live.since >= AT_HOME_MS:
            return False
        registered = self._registered_at(key)
        return ip_of(registered) is not None and not is_same_host(registered, live.host)

    def gone_ms(self, cluster: str, name: str, broker_id: int) -> int | None:
        """See `BrokerLife`."""
        key = ReplicaKey(cluster, name, broker_id)
        gone = self._gone.get(key)
        return None if gone is None or self._alive(key) else self._now_ms() - gone.at

    def owner(self, key: ReplicaKey) -> _Owner | None:
        """Returns the connection that a broker belongs to, also once it is silent for too long and
        `expire` has not taken it out yet; None for a broker that is not known to live."""
        live = self._live.get(key)
        return None if live is None else live.owner

    def heartbeat(
        self,
        key: ReplicaKey,
        owner: _Owner,
        standing: CandidateStanding,
        timeout_ms: int | None,
        address: str = "",
        host: str = "",
    ) -> bool:
        """Takes a heartbeat that comes from `host`; False where it is one stranger too many."""
        live, now = self._live.get(key), self._now_ms()
        if live is None:
            if not self._admit(key):
                return False
            gone = self._gone.pop(key, None)
            home = host if gone is None else gone.home
            live = self._live[key] = _Live(
                owner, now, now, DEFAULT_TIMEOUT_MS, standing, address, host, home, now
            )
            self._owned.setdefault(owner, set()).add(key)
        elif live.owner != owner and live.owner_seen_at + live.timeout_ms < now:
            self._disown(key, live.owner)
            live.owner = owner
            self._owned.setdefault(owner, set()).add(key)
        live.seen_at = now
        if live.owner == owner:
            live.owner_seen_at = now
            live.address = address
            # A time-out that no heartbeat can keep counts as none; another connection's would
            # make the owner seem silent.
            live.timeout_ms = max(timeout_ms or 0, 0) or DEFAULT_TIMEOUT_MS
        known = live.standing
        if (standing.epoch, standing.max_offset) > (known.epoch, known.max_offset):
            live.standing = standing
        else:
            live.standing = known._replace(priority=standing.priority)
        return True

    def lose(self, owner: _Owner) -> list[ReplicaKey]:
        """Returns the connection is gone, and its brokers with it."""
        keys = sorted(self._owned.pop(owner, ()))
        for key in keys:
            self._take_out(key)
        return keys

    def give_up(self, key: ReplicaKey) -> None:
        """Takes out a broker that another one speaks for."""
        live = self._live.get(key)
        if live is not None:
            self._disown(key, live.owner)
            self._take_out(key)

    def expire(self) -> list[tuple[ReplicaKey, _Owner]]:
        """Takes out the brokers that were silent for too long; returns each with its connection."""
        now = self._now_ms()
        silent = [key for key, one in self._live.items() if one.seen_at + one.timeout_ms < now]
        gone = []
        for key in silent:
            owner = self._live[key].owner
            self._disown(key, owner)
            self._take_out(key)
            gone.append((key, owner))
        self._gone = {key: one for key, one in self._gone.items() if self._is_known(key)}
        return gone

    def owns_any(self, owner: _Owner) -> bool:
        """Returns whether a broker belongs to this connection."""
        return owner in self._owned

    def counts(self) -> Counter[tuple[str, str]]:
        """Returns how many brokers are alive, by cluster and name."""
        return Counter((key.cluster, key.name) for key in self._live if self._alive(key))

    def _take_out(self, key: ReplicaKey) -> None:
        live = self._live.pop(key)
        self._strangers.discard(key)
        if self._is_known(key):
            registered = self._registered_at(key)
            is_home = is_same_host(registered, live.host)
            is_home = is_home or live.seen_at - live.since >= AT_HOME_MS
            self._gone[key] = _Gone(live.host if is_home else live.home, self._now_ms())

    def _alive(self, key: ReplicaKey) -> _Live[_Owner] | None:
        live = self._live.get(key)
        if live is None or live.seen_at + live.timeout_ms < self._now_ms():
            return None
        return live

    def _admit(self, key: ReplicaKey) -> bool:
        if self._is_known(key):
            return True
        now = self._now_ms()
        is_due = self._swept_at is None or now - self._swept_at >= SWEEP_MS
        if len(self._strangers) >= MAX_STRANGERS and is_due:
            # Some may have become known meanwhile.
            self._swept_at = now
            self._strangers = {one for one in self._strangers if not self._is_known(one)}
        if len(self._strangers) >= MAX_STRANGERS:
            return False
        self._strangers.add(key)
        return True

    def _disown(self, key: ReplicaKey, owner: _Owner) -> None:
        keys = self._owned.get(owner)
        if keys is not None:
            keys.discard(key)
            if not keys:
                del self._owned[owner]
