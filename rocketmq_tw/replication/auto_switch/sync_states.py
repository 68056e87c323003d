"""Keeps which replicas are in sync with the master: pure book-keeping
(docs/formats/auto-switch-ha.md).

The SyncStateSet names the replicas of which one is elected when the master is gone. The controller
keeps it; the master proposes changes, and waits for the old members and the new ones until it knows
which of the two sets the controller has.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable

import attrs

from rocketmq_tw.runtime.retries import GrowingPause
from rocketmq_tw.wire.group_state import SyncStateSet

#: A slave this near to the log's end is waited for from then on, so that it can join while senders
#: never rest; bytes, and for how long.
JOINING_GAP = 1 << 20
JOINING_MS = 1000

#: One that the controller refused, or that did not move while it was waited for, is left alone for
#: so long before its next try, twice as long after each further one, and up to so long.
FIRST_PAUSE_MS = 1000
MAX_PAUSE_MS = 30_000
#: A connection may claim any id, so these books have an end; the oldest pauses are forgotten.
MAX_PAUSES = 1000
#: Stands for all ids that were never members: a new id for each try brings no shorter pause.
_STRANGERS = None


@attrs.define(kw_only=True)
class _Slave:
    """A connected slave. It had all of the master's log at `caught_up_ms`, and will have had all of
    `mark_ms` once it reports `mark_end`."""

    is_learner: bool
    caught_up_ms: int
    mark_ms: int
    mark_end: int
    acknowledged: int = -1
    #: Not in the set yet but waited for, until this time; joins once it has `join_end`.
    joining_until_ms: int | None = None
    join_end: int = 0
    #: What it had when it began to join.
    join_start: int = 0


@attrs.define
class _Pause:
    """Counts how often in a row an id failed to join, and keeps when it may try again."""

    growing: GrowingPause = attrs.field(factory=lambda: GrowingPause(FIRST_PAUSE_MS, MAX_PAUSE_MS))
    until_ms: float = 0


class SyncStates:
    """Keeps what the master `own_id` knows of its group; times are milliseconds of any clock.

    `proposed` are members that the controller was asked for and may have taken; waiting for one
    that was not taken loses nothing. `not_caught_up_ms` tells for how long a member may lag.
    """

    def __init__(
        self, own_id: int, applied: SyncStateSet, *, not_caught_up_ms: Callable[[], int]
    ) -> None:
        self.applied = applied
        self.proposed: frozenset[int] | None = None
        #: A question about `proposed` was not answered, and may reach the controller even now.
        self.may_be_taken = False
        self._own_id = own_id
        self._not_caught_up_ms = not_caught_up_ms
        self._slaves: dict[int, _Slave] = {}
        # By ids, not links: a new connection ends no pause.
        self._pauses: dict[int | None, _Pause] = {}
        self._were_members = set(applied.members)
        self._waited_for: frozenset[int] = frozenset()
        self._update_waited_for()

    @property
    def waited_for(self) -> frozenset[int]:
        """The slaves that must have a message before it is confirmed: members, proposed ones, and
        those that join."""
        return self._waited_for

    @property
    def count(self) -> int:
        """Returns how many replicas are in sync, the master included; of the present and the
        proposed set the larger number."""
        return max(len(self.applied.members), len(self.proposed or ()))

    # What happens to links

    def connected(self, broker_id: int, log_end: int, now_ms: int, *, is_learner: bool) -> None:
        """Adds a slave; a learner never becomes a member."""
        self._remove_slave(broker_id, now_ms)
        self._slaves[broker_id] = _Slave(
            is_learner=is_learner, caught_up_ms=now_ms, mark_ms=now_ms, mark_end=log_end
        )
        self._update_waited_for()

    def lost(self, broker_id: int, now_ms: int) -> None:
        """Removes a slave."""
        self._remove_slave(broker_id, now_ms)
        self._update_waited_for()

    def reported(
        self,
        broker_id: int,
        offset: int,
        log_end: int,
        now_ms: int,
        *,
        epoch_start: int,
        promised_end: int,
    ) -> None:
        """Takes a slave's report that it has the log up to `offset`. The master's epoch began at
        `epoch_start`; senders in front of `promised_end` may be answered without this slave."""
        slave = self._slaves[broker_id]
        slave.acknowledged = offset
        if offset >= slave.mark_end:
            slave.caught_up_ms = now_ms if offset >= log_end else slave.mark_ms
            slave.mark_ms, slave.mark_end = now_ms, log_end
        if (
            broker_id not in self._waited_for
            and not slave.is_learner
            and offset >= epoch_start
            and log_end - offset <= JOINING_GAP
            and self._may_try(broker_id, now_ms)
            # No send waits for a slave that has all that it needs.
            and (offset >= promised_end or self._may_be_waited_for(broker_id, now_ms))
        ):
            slave.join_start = offset
            slave.join_end, slave.joining_until_ms = promised_end, now_ms + JOINING_MS
            self._update_waited_for()

    # What is known of all

    def everyone(self) -> int:
        """Returns up to where all slaves that are waited for have the log: -1 where one is missing
        or has not reported, the largest number where there is none but the master."""
        lowest = sys.maxsize
        for broker_id in self._waited_for:
            slave = self._slaves.get(broker_id)
            lowest = min(lowest, -1 if slave is None else slave.acknowledged)
        return lowest

    def copies(self, replicas: int) -> int:
        """Returns up to where that many replicas have the log, the master included; learners do not
        count."""
        offsets = sorted(
            (each.acknowledged for each in self._slaves.values() if not each.is_learner),
            reverse=True,
        )
        return offsets[replicas - 2] if replicas <= len(offsets) + 1 else -1

    # Proposals

    def expansion(self) -> frozenset[int] | None:
        """Returns the members to propose because some slave has all that it needs to be one; None
        while there is nothing new, or a proposal whose end is not known.

        One slave at a time, since the controller refuses a set for a single bad id: first the one
        that was refused least often, of these the one that is connected longest."""
        if self.proposed is not None:
            return None
        ready = [
            broker_id
            for broker_id, slave in self._slaves.items()
            if slave.joining_until_ms is not None and slave.acknowledged >= slave.join_end
        ]
        return self.applied.members | {min(ready, key=self._failures)} if ready else None

    def check(self, log_end: int, now_ms: int) -> frozenset[int] | None:
        """Returns the members to propose without those that are gone, are learners now or have not
        caught up for too long; what was proposed once more where its end is not known; None where
        nothing is to be said."""
        if self.proposed is not None:
            return self.proposed
        left = frozenset(
            member
            for member in self.applied.members
            if member == self._own_id or self._keeps_up(member, log_end, now_ms)
        )
        return left | {self._own_id} if left != self.applied.members else None

    def propose(self, members: Iterable[int]) -> None:
        """Notes that the controller is being asked for these members, perhaps once more."""
        self.proposed = frozenset(members)
        for member in self.proposed:
            if member in self._slaves:
                self._slaves[member].joining_until_ms = None
        self._update_waited_for()

    def unanswered(self) -> None:
        """Notes that it is not known whether the controller has taken the proposal, or will; none
        is open where a newer set was applied meanwhile."""
        self.may_be_taken = self.proposed is not None

    def refused(self, now_ms: int) -> None:
        """Notes that the controller kept the members that it had; those that the proposal would
        have added have to wait for the next try."""
        for broker_id in (self.proposed or frozenset()) - self.applied.members:
            self._pause(broker_id, now_ms)
        self._forget_proposal()
        self._update_waited_for()

    def apply(self, applied: SyncStateSet) -> bool:
        """Applies the controller's set; returns False where its epoch is not newer. With a newer
        epoch proposals made under the former one cannot be taken any more."""
        if applied.epoch <= self.applied.epoch:
            return False
        self.applied = applied
        if applied.members - self._were_members:
            self._pauses.pop(_STRANGERS, None)
        self._were_members |= applied.members
        self._forget_proposal()
        for member in applied.members:
            self._pauses.pop(member, None)
        self._update_waited_for()
        return True

    @property
    def lacks_proposed(self) -> bool:
        """Whether a slave is waited for that is only proposed, and not connected."""
        return not (self.proposed or frozenset()) - self.applied.members <= self._slaves.keys()

    def tick(self, now_ms: int) -> None:
        """Slaves that did not manage to join in time are waited for no more."""
        for broker_id, slave in self._slaves.items():
            if slave.joining_until_ms is not None and now_ms >= slave.joining_until_ms:
                self._end_joining(broker_id, slave, now_ms)
                self._update_waited_for()

    def _forget_proposal(self) -> None:
        self.proposed = None
        self.may_be_taken = False

    def _keeps_up(self, member: int, log_end: int, now_ms: int) -> bool:
        slave = self._slaves.get(member)
        if slave is None or slave.is_learner:
            return False
        return (
            slave.acknowledged >= log_end or now_ms - slave.caught_up_ms <= self._not_caught_up_ms()
        )

    def _may_try(self, broker_id: int | None, now_ms: int) -> bool:
        pause = self._pauses.get(broker_id)
        return pause is None or now_ms >= pause.until_ms

    def _may_be_waited_for(self, broker_id: int, now_ms: int) -> bool:
        return broker_id in self._were_members or self._may_try(_STRANGERS, now_ms)

    def _remove_slave(self, broker_id: int, now_ms: int) -> None:
        slave = self._slaves.pop(broker_id, None)
        if slave is not None and slave.joining_until_ms is not None:
            self._end_joining(broker_id, slave, now_ms)

    def _end_joining(self, broker_id: int, slave: _Slave, now_ms: int) -> None:
        slave.joining_until_ms = None
        if slave.acknowledged < slave.join_end and slave.acknowledged <= slave.join_start:
            self._pause(broker_id, now_ms)
            if broker_id not in self._were_members:
                self._pause(_STRANGERS, now_ms)

    def _failures(self, broker_id: int) -> int:
        pause = self._pauses.get(broker_id)
        return 0 if pause is None else pause.growing.failures

    def _pause(self, broker_id: int | None, now_ms: int) -> None:
        pause = self._pauses.pop(broker_id, None) or _Pause()
        pause.until_ms = now_ms + pause.growing.failed()
        self._pauses[broker_id] = pause
        if len(self._pauses) > MAX_PAUSES:
            del self._pauses[next(iter(self._pauses))]

    def _update_waited_for(self) -> None:
        joining = {
            broker_id
            for broker_id, slave in self._slaves.items()
            if slave.joining_until_ms is not None
        }
        everyone = self.applied.members.union(self.proposed or (), joining)
        self._waited_for = everyone - {self._own_id}
