"""How many replicas a synchronous send of a SYNC_MASTER waits for: stock's inSyncReplicas family.

SYNC_MASTER promises a second copy. Stock 5.3.3 gives up that promise with its default
`inSyncReplicas=1`; here, as in stock 4.9, SYNC_MASTER means one slave at the least.
"""

from collections.abc import Iterable
from typing import NamedTuple


class Requirement(NamedTuple):
    """`replicas` copies are wanted (the master's own counts); `available` are in sync now."""

    replicas: int
    available: int

    @property
    def met(self) -> bool:
        return self.available >= self.replicas


def in_sync(slave_offsets: Iterable[int], log_end: int, max_gap: int) -> int:
    """Replicas, with the master, that are less than `max_gap` bytes behind `log_end`."""
    return 1 + len([at for at in slave_offsets if at >= 0 and log_end - at < max_gap])


def required(
    available: int, *, in_sync_replicas: int, min_in_sync_replicas: int, automatic: bool
) -> Requirement:
    """What a send must wait for with `available` replicas in sync.

    `automatic` (enableAutoInSyncReplicas) lowers the demand to what is there, never below
    `min_in_sync_replicas`.
    """
    wanted = max(in_sync_replicas, 2)
    if automatic:
        wanted = max(min(wanted, available), min_in_sync_replicas)
    return Requirement(wanted, available)
