"""The state of a group of brokers as a controller tells it in the headers and bodies of 1001 to
1008."""

from __future__ import annotations

from typing import NamedTuple


class SyncStateSet(NamedTuple):
    """The lasting ids of the brokers that have all of the master's log, the master's among them;
    `epoch` counts the changes of the set."""

    members: frozenset[int]
    epoch: int


class GroupState(NamedTuple):
    """The brokers of one name: which of them is the master, and which are in sync with it.

    `master_id` is the lasting id of the master, None while the group has none; its address,
    `host:port`, is empty then. `master_epoch` counts the elections; both epochs only grow.
    """

    master_id: int | None
    master_address: str
    master_epoch: int
    in_sync: SyncStateSet
