"""The one place that knows which role the broker has now."""

from __future__ import annotations

from collections.abc import Callable

import attrs
from twisted.logger import Logger

from rocketmq_tw.broker.role.state import COPYING_ROLES, TRANSITIONS, Role, RoleState

#: Called with the state before and the state now, at once when the role or its epoch changes.
RoleListener = Callable[[RoleState, RoleState], None]

log = Logger()


class RoleHolder:
    """Holds the state, lets it change only as `TRANSITIONS` allows, and tells who subscribed.

    `is_master` and `is_copy` are plain attributes, since each request looks at them; `is_copy`: the
    log is another broker's.
    """

    def __init__(self, state: RoleState | None = None) -> None:
        self._listeners: list[RoleListener] = []
        self.state = state or RoleState(Role.ISOLATED, 0)
        self._look()

    @property
    def role(self) -> Role:
        return self.state.role

    @property
    def state_version(self) -> int:
        """What a table's version says of the master that changed it: its epoch, 0 without a
        controller."""
        return self.state.epoch or 0

    def change(self, state: RoleState) -> None:
        """Takes the new state and tells the subscribers in the order in which they came; raises
        `ValueError` where the role may not follow the present one."""
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
        """The log was cut at `end`: no more of it is confirmed."""
        known = self.state.confirmed_offset
        if known is not None and known > end:
            self.state = attrs.evolve(self.state, confirmed_offset=end)

    def renew(self, epoch: int) -> None:
        """The controller has elected this broker once more; raises `ValueError` where the epoch
        does not grow."""
        if self.state.epoch is None or epoch <= self.state.epoch:
            raise ValueError(f"epoch {epoch} cannot follow {self.state.epoch}")
        self._set(attrs.evolve(self.state, epoch=epoch))

    def subscribe(self, listener: RoleListener) -> Callable[[], None]:
        """Calls `listener` at each change of the role or of its epoch from now on, which the
        confirmed offset is not; what is returned ends that."""
        self._listeners.append(listener)

        def unsubscribe() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return unsubscribe

    def on_end(self, end: Callable[[], None]) -> None:
        """Calls `end` whenever a role is over, before anybody does what the next one wants; a
        master that is elected again stays one."""

        def changed(former: RoleState, now: RoleState) -> None:
            if former.role is not now.role:
                end()

        self.subscribe(changed)

    def _set(self, state: RoleState) -> None:
        former, self.state = self.state, state
        self._look()
        for listener in tuple(self._listeners):
            try:
                listener(former, state)
            except Exception:
                # The others must not keep a role that is over.
                log.failure("a listener to the broker's role failed")

    def _look(self) -> None:
        self.is_master = self.state.role is Role.MASTER
        self.is_copy = self.state.role in COPYING_ROLES
