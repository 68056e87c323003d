"""A master that cannot write leaves its group to a slave that acts for it.

Rules: docs/durability.md, "A broker that cannot write".
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.logger import Logger

from rocketmq_tw.broker.cluster.membership import ClusterMembership
from rocketmq_tw.broker.role.health import Health
from rocketmq_tw.broker.role.holder import RoleChanges, RoleHolder
from rocketmq_tw.broker.role.state import Role, RoleState
from rocketmq_tw.runtime.named_log import named

log = Logger()


class SteppingDown:
    """Gives up the configured role of a master while it cannot write and another broker of its
    group lives; takes it again once it can, or where no other lives any more and its disk is
    only too full: then it refuses messages and serves readers."""

    def __init__(
        self,
        role: RoleHolder,
        changes: RoleChanges,
        membership: ClusterMembership,
        health: Health,
        log_name: str = "",
    ) -> None:
        self._role = role
        self._logger = named(log, log_name)
        self._changes = changes
        self._membership = membership
        self._health = health
        #: The role that was given up.
        self._given_up: RoleState | None = None

    @inlineCallbacks
    def adjust_role(self) -> Generator[Deferred[Any], Any, None]:
        """Fires once the role is the one that the disk allows; fails as `RoleChanges.change`
        does."""
        health, state = self._health, self._role.state
        if self._given_up is not None:
            if not health.cannot_lead:
                self._logger.info("this broker can write again and takes its role again")
            elif health.unfit_to_lead or not (yield self._is_alone()):
                return
            else:
                self._logger.warn(
                    "no other broker of the group lives: this one takes its role again, though it"
                    " stores no messages: {why}",
                    why=health.cannot_lead,
                )
            yield self._changes.begin(self._given_up)
            # Not before: what fails now is tried again at the next look.
            self._given_up = None
        elif state.role is Role.MASTER and health.cannot_write:
            answers = yield self._membership.group.ask()
            if any(len(members or ()) > 1 for members in answers.values()):
                self._logger.error(
                    "this broker gives up being the master: {why}", why=health.cannot_write
                )
                self._given_up = state
                # What is under way fails, and so do the parts that wait for the disk.
                left = self._changes.change(RoleState(Role.ISOLATED, state.broker_id))
                left.addErrback(
                    lambda failure: self._logger.warn(
                        "leaving the master's role failed: {why}", why=failure.getErrorMessage()
                    )
                )
                yield left
                yield self._membership.unregister()

    @inlineCallbacks
    def _is_alone(self) -> Generator[Deferred[Any], Any, bool]:
        """Fires with whether name servers, of which one at least answered, know of no broker of the
        group; this one is registered with none."""
        answers = yield self._membership.group.ask()
        return not any(answers.values()) and any(each is not None for each in answers.values())
