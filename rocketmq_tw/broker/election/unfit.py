"""A master that cannot lead: its disk refuses, it is too full, or it could not enter the role.

It leaves the role to another member, unless it is the only one in sync: then nobody could be
elected, and no other one put in sync. Rules: docs/durability.md, "A broker that cannot write".
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.logger import Logger

from rocketmq_tw.broker.election.controllers import GroupControllers, without_master
from rocketmq_tw.broker.election.epochs import KnownEpochs
from rocketmq_tw.broker.election.identity import Identity
from rocketmq_tw.broker.role.holder import RoleHolder
from rocketmq_tw.runtime.named_log import named
from rocketmq_tw.wire.group_state import GroupState

log = Logger()


class UnfitMaster:
    """Looks after a broker that the controllers take for the master while it may not lead.
    `beat` sends them a heartbeat."""

    def __init__(
        self,
        controllers: GroupControllers,
        role: RoleHolder,
        epochs: KnownEpochs,
        beat: Callable[[], None],
    ) -> None:
        self._controllers = controllers
        self._logger = named(log, controllers.candidacy.log_name)
        self._candidacy = controllers.candidacy
        self._leader = controllers.client
        self._role = role
        self._epochs = epochs
        self._beat = beat
        #: The epoch in which this broker, whose disk is too full, saw others that could lead.
        self._with_room: tuple[int, set[int]] | None = None
        #: Whether it is the master though it cannot lead, as the only one in sync.
        self._holds_on = False

    @inlineCallbacks
    def check(self, me: Identity, group: GroupState) -> Generator[Any, Any, GroupState]:
        """Ends the epoch of this broker, the master of `group`, where it may not lead and need not
        hold on; fires with the group as it is then."""
        if not (self._candidacy.refusal or group.master_epoch == self._epochs.given_up):
            return group
        if self._is_alone_in_sync(me, group):
            self._say_that_it_holds_on()
            return group
        # The controllers would take it for a master that is alive.
        group = yield self._give_up(me, group)
        return group

    @inlineCallbacks
    def look_for_room(self, me: Identity, epoch: int) -> Generator[Any, Any, None]:
        """Where this broker leads though its disk is too full, makes room for another member in
        sync that lives: whose disk is too full sends no heartbeats while another one leads. What
        was seen once may be one that has not heard yet who does."""
        if not self._candidacy.leads_full:
            return
        replicas = yield self._controllers.replicas(me.broker_name)
        others = {one.broker_id for one in replicas.in_sync_replicas if one.alive} - {me.broker_id}
        former, self._with_room = self._with_room, (epoch, others)
        if former is not None and former[0] == epoch and former[1] & others:
            self._logger.warn(
                "another member of the group has room on its disk, and gets the master's role of"
                " this broker"
            )
            self._with_room = None
            self._candidacy.another_leads()

    def _is_alone_in_sync(self, me: Identity, group: GroupState) -> bool:
        """Returns whether this broker is the master in this epoch and the only one in sync."""
        is_master = self._role.is_master and self._role.state.epoch == group.master_epoch
        return is_master and group.in_sync.members == {me.broker_id}

    def _say_that_it_holds_on(self) -> None:
        if not self._holds_on:
            self._logger.warn(
                "this broker is the only one in sync and stays the master until another one is,"
                " though it cannot lead: {why}",
                why=self._candidacy.refusal,
            )
        self._holds_on = True

    def _give_up(self, me: Identity, group: GroupState) -> Deferred[GroupState]:
        """Ends the epoch of this broker; fires with the group as it is then. Where it did not begin
        that epoch, the others are elected as if it had not been."""
        self._holds_on = False
        never_begun = self._epochs.end(group.master_epoch, self._role.state.epoch)
        # It says that it does not stand, and is not elected again.
        self._beat()
        return without_master(self._leader, me, group, never_begun=never_begun)
