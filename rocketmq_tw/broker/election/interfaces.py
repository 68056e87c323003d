"""What this room asks of the controllers."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

import attrs
from twisted.internet.defer import Deferred

from rocketmq_tw.wire.group_state import SyncStateSet


@attrs.frozen
class GroupState:
    """What a controller knows of a group of replicas. `master_id` is None while it has no master;
    both epochs only grow: one with each choice of a master, one with each change of the set."""

    master_id: int | None
    master_address: str
    master_epoch: int
    sync_state_set: frozenset[int]
    sync_state_set_epoch: int


@attrs.frozen(kw_only=True)
class HeartbeatReport:
    """What a heartbeat says: how far the log of a broker is, and how long its silence may last."""

    broker_id: int
    address: str
    epoch: int
    max_offset: int
    confirm_offset: int
    election_priority: int
    timeout_ms: int


class IController(Protocol):
    """The controllers as a broker of one group sees them: requests go to the one that leads. All
    fail with `RequestError` where it refuses, with a `ConnectionError` or `TimeoutError` where
    nobody answers."""

    def next_broker_id(self) -> Deferred[int]:
        """The smallest id that no broker of the group was given (1012)."""

    def apply_broker_id(self, broker_id: int, check_code: str) -> Deferred[None]:
        """Takes an id (1013); succeeds again for who took it with the same code."""

    def register(self, broker_id: int, address: str) -> Deferred[GroupState]:
        """Tells where the broker is today (1003)."""

    def group(self) -> Deferred[GroupState]:
        """What is known of the group (1004)."""

    def elect(self, broker_id: int) -> Deferred[GroupState]:
        """Asks for a master where there is none; the asker is ready to be it (1002)."""

    def depose(self, epoch: int) -> Deferred[None]:
        """Ends a master's epoch, if it is not over: the group has none then (1002 for nobody).
        Where stock's controllers lead, it ends the one that there is when it comes."""

    def alter_sync_state_set(
        self,
        broker_id: int,
        master_epoch: int,
        members: Collection[int],
        sync_state_set_epoch: int,
    ) -> Deferred[SyncStateSet]:
        """The master's proposal for the set; what holds from now on (1001)."""

    def heartbeat(self, liveness: HeartbeatReport) -> None:
        """Tells every controller that the broker is alive (904); an answer is not waited for."""
