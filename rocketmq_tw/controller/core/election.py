"""The rules by which a master is elected, as in stock's only policy
(docs/formats/controller.md)."""

from collections.abc import Iterable
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
    """Which brokers are alive at the moment of a decision, by their heartbeats."""

    def standing(self, cluster: str, name: str, broker_id: int) -> CandidateStanding | None:
        """Returns None for a broker that is not alive."""

    def address(self, cluster: str, name: str, broker_id: int) -> str:
        """Returns the `host:port` that a broker that is alive tells; empty for one that is not."""


def elect(
    life: BrokerLife,
    cluster: str,
    name: str,
    circles: Iterable[Iterable[int]],
    old_master: int | None,
    designated: int | None,
) -> int | None:
    """Returns the new master, or None.

    `circles` are ids, tried one after the other: the SyncStateSet, then, where unclean elections
    are allowed, all replicas. Only those alive count. The old master stays unless another one is
    designated; then that one is elected or none is. Otherwise the newest epoch wins, then the
    longest log, then the lowest priority, then the lowest id.
    """
    for circle in circles:
        alive = {
            broker_id: standing
            for broker_id in circle
            if (standing := life.standing(cluster, name, broker_id)) is not None
        }
        if old_master in alive and designated in (None, old_master):
            return old_master
        if designated is not None:
            if designated in alive:
                return designated
        elif alive:
            return min(alive, key=lambda broker_id: (*_rank(alive[broker_id]), broker_id))
    return None


def _rank(standing: CandidateStanding) -> tuple[int, int, int]:
    return -standing.epoch, -standing.max_offset, standing.priority
