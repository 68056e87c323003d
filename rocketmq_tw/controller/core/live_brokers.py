"""The books on heartbeats: which brokers are alive, and how far their logs are."""

from collections import Counter
from collections.abc import Callable, Hashable, Set
from typing import Generic, NamedTuple, TypeVar

import msgspec

from rocketmq_tw.controller.core.election import CandidateStanding

#: Stock's, for a heartbeat that says nothing of it.
DEFAULT_TIMEOUT_MS = 10_000
#: Brokers whose group is unknown here, so that a client may invent them.
MAX_STRANGERS = 1000
#: Between two looks at all of them where there is no room for one more.
SWEEP_MS = 1000


#: A connection.
Owner = TypeVar("Owner", bound=Hashable)


class ReplicaKey(NamedTuple):
    """A broker that sends heartbeats."""

    cluster: str
    name: str
    broker_id: int

    def __str__(self) -> str:
        return f"broker {self.broker_id} of {self.name} in {self.cluster}"


class _Live(msgspec.Struct, Generic[Owner]):
    owner: Owner
    #: When the owner itself was heard last.
    owner_seen_at: int
    seen_at: int
    timeout_ms: int
    standing: CandidateStanding
    #: Where the owner says that the broker is.
    address: str


class LiveBrokers(Generic[Owner]):
    """Times in milliseconds of one clock. A broker belongs to the connection (`owner`) over which
    its first heartbeat came, until that one is lost or silent for too long: as in stock, a
    heartbeat over another one does not make the broker end with that."""

    def __init__(self, now_ms: Callable[[], int], is_known: Callable[[ReplicaKey], bool]) -> None:
        self._now_ms = now_ms
        self._is_known = is_known
        self._live: dict[ReplicaKey, _Live[Owner]] = {}
        self._owned: dict[Owner, set[ReplicaKey]] = {}
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

    def owner(self, key: ReplicaKey) -> Owner | None:
        """Returns the connection that a broker belongs to, also once it is silent for too long and
        `expire` has not taken it out yet; None for a broker that is not known to live."""
        live = self._live.get(key)
        return None if live is None else live.owner

    def heartbeat(
        self,
        key: ReplicaKey,
        owner: Owner,
        standing: CandidateStanding,
        timeout_ms: int | None,
        address: str = "",
    ) -> bool:
        """Takes a heartbeat; False where it is one stranger too many."""
        live, now = self._live.get(key), self._now_ms()
        if live is None:
            if not self._admit(key):
                return False
            live = self._live[key] = _Live(owner, now, now, DEFAULT_TIMEOUT_MS, standing, address)
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

    def lose(self, owner: Owner) -> list[ReplicaKey]:
        """Returns the connection is gone, and its brokers with it."""
        keys = sorted(self._owned.pop(owner, ()))
        for key in keys:
            del self._live[key]
            self._strangers.discard(key)
        return keys

    def expire(self) -> list[tuple[ReplicaKey, Owner]]:
        """Takes out the brokers that were silent for too long; returns each with its connection."""
        now = self._now_ms()
        silent = [key for key, one in self._live.items() if one.seen_at + one.timeout_ms < now]
        gone = []
        for key in silent:
            owner = self._live.pop(key).owner
            self._disown(key, owner)
            self._strangers.discard(key)
            gone.append((key, owner))
        return gone

    def owns_any(self, owner: Owner) -> bool:
        """Returns whether a broker belongs to this connection."""
        return owner in self._owned

    def owned_by(self, owner: Owner) -> Set[ReplicaKey]:
        """Returns the brokers that belong to this connection."""
        return self._owned.get(owner, frozenset())

    def counts(self) -> Counter[tuple[str, str]]:
        """Returns how many brokers are alive, by cluster and name."""
        return Counter((key.cluster, key.name) for key in self._live if self._alive(key))

    def _alive(self, key: ReplicaKey) -> _Live[Owner] | None:
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

    def _disown(self, key: ReplicaKey, owner: Owner) -> None:
        keys = self._owned.get(owner)
        if keys is not None:
            keys.discard(key)
            if not keys:
                del self._owned[owner]
