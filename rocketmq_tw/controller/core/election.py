"""The rules by which a master is elected, as in stock's only policy
(docs/formats/controller.md)."""

from collections.abc import Container, Iterable
from typing import NamedTuple, Protocol


class CandidateStanding(NamedTuple):
    """What a broker's heartbeats have said of its log; -1 where they say nothing."""

    epoch: int = -1
    max_offset: int = -1
    #: The lower, the better.
    priority: int = 2**31 - 1

    def __str__(self) -> str:
        return f"epoch {self.epoch}, log end {self.max_offset}, priority {self.priority}"


class BrokerLife(Protocol):
    """Tells which brokers are alive at the moment of a decision, by their heartbeats.
    `hears_strangers`: anybody may speak for a broker, and not the cluster's own hosts only."""

    hears_strangers: bool

    def standing(self, cluster: str, name: str, broker_id: int) -> CandidateStanding | None:
        """Returns None for a broker that is not alive."""

    def address(self, cluster: str, name: str, broker_id: int) -> str:
        """Returns the `host:port` that a broker that is alive tells; empty for one that is not."""

    def speaks_from_elsewhere(self, cluster: str, name: str, broker_id: int) -> bool:
        """Returns whether the heartbeats of a broker that is alive come from another host than
        before, which is not the one that it is registered at."""

    def gone_ms(self, cluster: str, name: str, broker_id: int) -> int | None:
        """Returns for how many milliseconds a broker is gone; None where it is alive or was never
        seen here."""


#: Milliseconds for which a member that is gone is waited for, where those that are there are
#: members by the word of another host only: a broker is started again within that.
WAIT_FOR_KNOWN_MS = 30_000


def elect(
    life: BrokerLife,
    cluster: str,
    name: str,
    circles: Iterable[Iterable[int]],
    old_master: int | None,
    designated: int | None,
    moved: Container[int] = (),
) -> int | None:
    """Returns the new master, or None.

    `circles` are ids, tried one after the other: the SyncStateSet, then, where unclean elections
    are allowed, all replicas. Only those alive count. The old master stays unless another one is
    designated; then that one is elected or none is. Otherwise the newest epoch wins, then the
    longest log, then the lowest priority, then the lowest id.

    Those in `moved`, and those whose heartbeats come from elsewhere, may be strangers that took
    the id of a broker that was down. They are elected where nobody else is alive, and none of the
    others was a moment ago.
    """

    def is_awaited(broker_id: int) -> bool:
        gone_ms = life.gone_ms(cluster, name, broker_id)
        return gone_ms is not None and gone_ms < WAIT_FOR_KNOWN_MS

    for circle in map(list, circles):
        alive = {
            broker_id: standing
            for broker_id in circle
            if (standing := life.standing(cluster, name, broker_id)) is not None
        }
        if designated is not None:
            if designated in alive:
                return designated
            continue
        known = {
            key: one
            for key, one in alive.items()
            if not is_doubtful(life, cluster, name, key, moved)
        }
        others = [key for key in circle if key not in alive and key not in moved]
        if alive and not known and any(map(is_awaited, others)):
            return None
        known = known or alive
        if old_master in known:
            return old_master
        if known:
            return min(known, key=lambda broker_id: (*_rank(known[broker_id]), broker_id))
    return None


def is_doubtful(
    life: BrokerLife, cluster: str, name: str, broker_id: int, moved: Container[int]
) -> bool:
    """Returns whether a broker that is alive may be a stranger with the id of one that was down:
    it is one of `moved`, or speaks from elsewhere."""
    if not life.hears_strangers:
        return False
    return broker_id in moved or life.speaks_from_elsewhere(cluster, name, broker_id)


def _rank(standing: CandidateStanding) -> tuple[int, int, int]:
    return -standing.epoch, -standing.max_offset, standing.priority
