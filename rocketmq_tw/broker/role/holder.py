"""The one place that knows which role the broker has now, and how a part asks for another one."""

from __future__ import annotations

from collections.abc import Callable

import attrs
from twisted.internet.defer import Deferred, fail

from rocketmq_tw.broker.role.state import TRANSITIONS, Role, RoleState
from rocketmq_tw.runtime.listeners import Listeners
from rocketmq_tw.runtime.scope import Scope
from rocketmq_tw.wire.group_state import GroupState


class RoleHolder:
    """Holds the state and lets it change only as `TRANSITIONS` allows.

    What the role means stands in plain attributes, since each request looks at them: `is_master`;
    `is_slave`, that it acts for nobody; `copies_log` and `delivers` as in `Role`.
    """

    def __init__(self, state: RoleState | None = None) -> None:
        #: Told of each change of the role or of its epoch, which the confirmed offset is not, with
        #: the state before and the state now.
        self.changed = Listeners[RoleState, RoleState]("the broker's role changed")
        self._take(state or RoleState(Role.ISOLATED, 0))
        #: Over as soon as the present role is, before anybody is told or does what the next role
        #: wants. A master that is elected again keeps its role. A slave's goes on while it is the
        #: acting master, which has one of its own inside it.
        self.scope = Scope()
        self._slave_scope = self.scope

    def _take(self, state: RoleState) -> None:
        self.state = state
        self.is_master = state.role is Role.MASTER
        self.is_slave = state.role is Role.SLAVE
        self.copies_log = state.role.copies_log
        self.delivers = state.role.delivers

    @property
    def role(self) -> Role:
        """The role that the broker has now."""
        return self.state.role

    @property
    def state_version(self) -> int:
        """What a table's version says of the master that changed it: its epoch, 0 without a
        controller."""
        return self.state.epoch or 0

    def change(self, state: RoleState) -> None:
        """Takes the new state, ends the former role's `scope` and tells the listeners of `changed`;
        raises `ValueError` where the role may not follow the present one."""
        former = self.state
        if state.role not in TRANSITIONS[former.role]:
            raise ValueError(f"a broker that is {former.role.value} cannot be {state.role.value}")
        self._set(state)

    def confirm(self, offset: int) -> None:
        """Moves the confirmed offset on; raises `ValueError` where it would go back, or where there
        is no controller that counts epochs."""
        known = self.state.confirmed_offset
        if known is None and self.state.epoch is not None:
            known = -1
        if known is None:
            raise ValueError(f"a broker that is {self.role.value} has no confirmed offset")
        if offset < known:
            raise ValueError(f"the confirmed offset {known} cannot go back to {offset}")
        if offset > known:
            self.state = attrs.evolve(self.state, confirmed_offset=offset)

    def cut(self, end: int) -> None:
        """Moves the confirmed offset back to `end`, where the log was cut."""
        known = self.state.confirmed_offset
        if known is not None and known > end:
            self.state = attrs.evolve(self.state, confirmed_offset=end)

    def renew(self, group: GroupState) -> None:
        """Begins another epoch of the same master, whom the controller has elected once more;
        raises `ValueError` where the epoch does not grow."""
        known, epoch = self.state.epoch, group.master_epoch
        if known is None or epoch <= known:
            raise ValueError(f"epoch {epoch} cannot follow {known}")
        self._set(attrs.evolve(self.state, group=group))

    def _set(self, state: RoleState) -> None:
        former, scope = self.state, self.scope
        self._take(state)
        if state.role is Role.ACTING_MASTER and former.role is Role.SLAVE:
            self._slave_scope, self.scope = scope, Scope()
        elif former.role is not state.role:
            acted = former.role is Role.ACTING_MASTER
            self.scope = self._slave_scope if acted else Scope()
            scope.end()
        self.changed.tell(former, state)


def _no_broker_yet(state: RoleState) -> Deferred[None]:
    return fail(ValueError("no broker leads its parts into a role yet"))


class RoleChanges:
    """The broker sets `change`, parts call it; see `Broker.change_role` for what it does."""

    def __init__(self) -> None:
        self.change: Callable[[RoleState], Deferred[None]] = _no_broker_yet
        #: Leads towards a configured role where the group is to be asked first; what asks it sets
        #: this (`broker/acting/pre_online.py`).
        self.ask_group_first: Callable[[RoleState], Deferred[None]] | None = None

    def begin(self, state: RoleState) -> Deferred[None]:
        """Leads towards a configured role; it may fire before the broker has it, where the group is
        asked first."""
        return (self.ask_group_first or self.change)(state)
