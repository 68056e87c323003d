"""What a controller tells of a group of brokers in the headers and bodies of 1001 to 1008."""

from __future__ import annotations

from typing import NamedTuple


class SyncStateSet(NamedTuple):
    """The lasting ids of the brokers that have all of the master's log, the master's among them;
    `epoch` counts the changes of the set."""

    members: frozenset[int]
    epoch: int
