"""Asks the controllers for a master: for another SyncStateSet, another election, and who is in its
group."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks

from rocketmq_tw.broker.election.controllers import GroupControllers, without_master
from rocketmq_tw.broker.election.following import ControllerFollower
from rocketmq_tw.broker.election.identity import Identity
from rocketmq_tw.broker.replicas.switching import Switching
from rocketmq_tw.broker.role.holder import RoleHolder
from rocketmq_tw.client.errors import BrokerError
from rocketmq_tw.replication.auto_switch.service import ControllerCalls
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.group_state import GroupState, SyncStateSet


class NotMasterError(Exception):
    """Only a master may do this, and the broker is none, or none any more."""


class MasterRequests:
    """Asks for the broker that `follower` keeps in its role; see `ControllerCalls`."""

    def __init__(
        self,
        controllers: GroupControllers,
        follower: ControllerFollower,
        role: RoleHolder,
        switching: Switching,
    ) -> None:
        self._controllers = controllers
        self._leader = controllers.client
        self._follower = follower
        self._role = role
        self._switching = switching

    def calls(self) -> ControllerCalls:
        """Returns what the links of a master are given of it."""
        return ControllerCalls(propose=self.propose, renounce=self.renounce, members=self.members)

    @inlineCallbacks
    def propose(self, members: Iterable[int]) -> Generator[Any, Any, SyncStateSet]:
        """Asks the controller for another SyncStateSet of this master; fires with the set that
        holds from now on. Fails with `RequestError` where the controller refuses, and otherwise
        where it is not known whether the set was changed."""
        me, epoch = self._follower.identity, self._role.state.epoch
        if epoch is None or me is None or not self._role.is_master:
            raise NotMasterError("only a master changes the SyncStateSet")
        known = self._switching.sync_state_set_epoch
        try:
            decided: SyncStateSet = yield self._leader.alter_sync_state_set(
                me.broker_name, me.broker_id, epoch, members, known
            )
        except BrokerError as refusal:
            raise RequestError(refusal.code, str(refusal)) from refusal
        if self._role.state.epoch != epoch:
            raise NotMasterError(f"epoch {epoch} of this master is over")
        return decided

    def renounce(self) -> Deferred[None]:
        """Has the controllers elect anew, which ends this master's epoch: they elect it again
        unless another one is as good. Never fails."""
        return self._follower.attempt(self._renounce)

    @inlineCallbacks
    def _renounce(self, me: Identity) -> Generator[Any, Any, None]:
        group: GroupState = yield self._leader.replica_info(me.broker_name)
        is_mine = (group.master_id, group.master_epoch) == (me.broker_id, self._role.state.epoch)
        if is_mine and group.in_sync.epoch <= self._switching.sync_state_set_epoch:
            group = yield without_master(self._leader, me, group)
        yield self._follower.follow(me, group)

    @inlineCallbacks
    def members(self) -> Generator[Any, Any, frozenset[tuple[int, str]] | None]:
        """Fires with the ids and addresses of the other brokers that are registered in the group;
        None where the controllers do not know this one. Fails where they cannot be asked."""
        me = self._follower.identity
        if me is None:
            return None
        group = yield self._controllers.replicas(me.broker_name)
        known = {
            (one.broker_id, one.broker_address)
            for one in (*group.in_sync_replicas, *group.not_in_sync_replicas)
            if one.broker_id is not None and one.broker_address
        }
        others = frozenset(each for each in known if each[0] != me.broker_id)
        return others if len(others) < len(known) else None
