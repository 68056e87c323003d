"""How a part asks for another role."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred, fail

from rocketmq_tw.broker.role.state import RoleState


def _nobody(state: RoleState) -> Deferred[None]:
    return fail(ValueError("no broker leads its parts into a role yet"))


class RoleChanges:
    """The broker sets `change`, parts call it; see `Broker.change_role` for what it does."""

    def __init__(self) -> None:
        self.change: Callable[[RoleState], Deferred[None]] = _nobody
