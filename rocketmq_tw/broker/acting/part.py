"""The slave that stands in for its master, as a part of the broker."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Any

import attrs
from twisted.internet.defer import Deferred, inlineCallbacks, succeed
from twisted.logger import Logger

from rocketmq_tw.broker.acting.away import Away, Standstill
from rocketmq_tw.broker.acting.escape import EscapeBridge
from rocketmq_tw.broker.acting.living import LivingGroup
from rocketmq_tw.broker.acting.stepping_down import SteppingDown
from rocketmq_tw.broker.assembly.host import Host
from rocketmq_tw.broker.assembly.part import Part, Periodic
from rocketmq_tw.broker.cluster.broker_client import BrokerClient
from rocketmq_tw.broker.cluster.group_members import LivingMembers
from rocketmq_tw.broker.cluster.part import Cluster
from rocketmq_tw.broker.replicas.part import Replicas
from rocketmq_tw.broker.role.holder import RoleChanges, RoleHolder
from rocketmq_tw.broker.role.state import Role
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.metrics.instruments import Metric, counter
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.runtime.shared_results import SharedResults
from rocketmq_tw.wire.bodies.route import MASTER_ID
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.namesrv import NotifyMinBrokerIdChangeRequestHeader

log = Logger()


class Acting(Part):
    """With enableSlaveActingMaster: makes a slave the acting master while it has the smallest id of
    the brokers of its group that live, and hears nothing of its master.

    A master that its slave still hears, and only name servers do not, does its own work: both
    would deliver the same messages.
    """

    def __init__(
        self,
        host: Host,
        role: RoleHolder,
        changes: RoleChanges,
        cluster: Cluster,
        replicas: Replicas,
        writing: Writing,
        brokers: BrokerClient,
    ) -> None:
        self._config = host.config
        self._logger = host.named(log)
        self._role = role
        self._changes = changes
        self._membership = cluster.membership
        self._replicas = replicas
        self._group = cluster.membership.group
        self.living = LivingGroup()
        self.bridge = EscapeBridge(host, brokers)
        writing.sink.sinks[Role.ACTING_MASTER] = self.bridge
        self._checks = SharedResults(host.in_slices)
        #: When a master said that it is about to be back, in seconds.
        self._announced_at: float | None = None
        #: Whether somebody has said since the last question that the smallest id changed.
        self._is_told = False
        #: Takes over what other slaves, id -> address, have done; fires with whether all told.
        self.take_over: Callable[[LivingMembers], Deferred[bool]] = lambda others: succeed(True)
        self._away = Away(host.config, host.reactor.seconds)
        self._standstill = Standstill(host.config, host.reactor.seconds)
        replicas.returning.before_return = self.end_acting
        self._reactor = host.reactor
        self._stepping_down = SteppingDown(
            role, changes, cluster.membership, writing.health, host.log_name
        )

    @property
    def is_enabled(self) -> bool:
        """Whether brokers of this group stand in for each other."""
        return self._config.enable_slave_acting_master and bool(self._group.name_servers)

    def periodic(self) -> Iterable[Periodic]:
        if not self.is_enabled:
            return
        config = self._config
        yield Periodic(
            "the heartbeat to name servers",
            lambda: config.broker_heartbeat_interval / 1000,
            self._beat,
        )
        period = config.sync_broker_member_group_period / 1000
        yield Periodic("asking for the group", period, self.check_group, may_hang=True)

    def handlers(self, role: Role) -> Mapping[int, Handler]:
        return {RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE: self.min_id_changed}

    def min_id_changed(self, request: RemotingCommand, peer: IPeer) -> RemotingCommand:
        """Answers 905: a name server says that another broker has the smallest id of the group now.
        What they all say counts, so they are asked at once; anybody may send this request, so no
        address is taken from it."""
        said = request.header(NotifyMinBrokerIdChangeRequestHeader)
        if self.is_enabled and said.broker_name in (None, self._config.broker_name):
            self._is_told = True
            self.check_group()
        return request.response()

    def check_group(self) -> Deferred[None]:
        """Asks the name servers which brokers of the group live, and acts, or ends that, by what
        they say; never fails."""
        looked = self._checks.get("the group", self._check_group)
        return looked.addErrback(
            lambda failure: self._logger.failure(
                "finding out whether to act for the master failed", failure
            )
        )

    def end_acting(self, master: IPeer) -> Deferred[None]:
        """Acts no more, and not again until `master`, which says that it is about to be back, had
        the time for its link, or is lost again; fires once this broker does not act."""
        self._announced_at = announced_at = self._reactor.seconds()

        def lost(_: IPeer) -> None:
            if self._announced_at == announced_at:
                self._announced_at = None

        master.when_lost(lost)
        return self._checks.get("the end", self._end_acting)

    def metrics(self) -> Iterable[Metric]:
        if self.is_enabled:
            yield counter("rocketmq_escaped_messages_total", self.bridge.escaped)

    def _beat(self) -> None:
        if self._membership.is_begun:
            self._group.beat()

    @inlineCallbacks
    def _check_group(self) -> Generator[Deferred[Any], Any, None]:
        period = self._config.sync_broker_member_group_period
        stood_still = self._standstill.seconds(period) > 0
        self._standstill.looked()
        try:
            yield self._follow_group(stood_still)
        finally:
            self._standstill.looked()

    @inlineCallbacks
    def _follow_group(self, stood_still: bool) -> Generator[Deferred[Any], Any, None]:
        if not self._config.enable_controller_mode:
            yield self._stepping_down.adjust_role()
        copies = self._role.copies_log
        is_told, self._is_told = self._is_told, False
        # A master wants to know too whether name servers list it, and who grants locks with it.
        self.living.heard((yield self._group.ask()))
        # What they say may be from before this broker stood still.
        within_ms = self._config.send_heartbeat_timeout_millis
        stood_still = stood_still or self._standstill.seconds(within_ms) > 0
        if not copies or not self._role.copies_log:
            return
        state = self._role.state
        # A slave that stood still does not know yet which one acts by now.
        smallest = None if stood_still else self.living.smallest()
        self._away.note(smallest, state.broker_id)
        if smallest == MASTER_ID:
            # It is registered, so it has taken back what it wanted of this broker's tables.
            self._replicas.returning.follow_tables()
            if is_told and not self._replicas.clients_find_master():
                # The answers tell where the master is.
                self._membership.register(force=True)
        if state.role is Role.SLAVE and self._may_act(smallest):
            if (yield self._replicas.returning.find()):
                # The next look hears it over its link, or acts.
                return
            if not (yield self._is_up_to_date()) or self._role.state is not state:
                return
            self._logger.info(
                "no master lives, and this broker has the smallest id: it acts for the master"
            )
            self._replicas.returning.hold_tables()
            self._replicas.close_silent_link()
            yield self._changes.change(attrs.evolve(state, role=Role.ACTING_MASTER))
        elif state.role is Role.ACTING_MASTER and not self._may_act(smallest):
            self._logger.info(
                "this broker acts for the master no more: the smallest id that lives is {id}",
                id="unknown" if smallest is None else smallest,
            )
            yield self._changes.change(attrs.evolve(state, role=Role.SLAVE))

    @inlineCallbacks
    def _is_up_to_date(self) -> Generator[Deferred[Any], Any, bool]:
        """Fires with whether this broker has what other slaves did that may have acted, so that it
        may act."""
        if self._away.was_away:
            others = self.living.members()
            others.pop(self._role.state.broker_id, None)
            if (yield self.take_over(others)) or self._away.waited():
                self._away.is_back()
        return not self._away.was_away

    @inlineCallbacks
    def _end_acting(self) -> Generator[Deferred[Any], Any, None]:
        state = self._role.state
        if state.role is Role.ACTING_MASTER:
            self._logger.info("this broker acts for the master no more, which is about to be back")
            yield self._changes.change(attrs.evolve(state, role=Role.SLAVE))

    def _may_act(self, smallest: int | None) -> bool:
        within_ms, announced_at = self._config.broker_not_active_timeout_millis, self._announced_at
        is_announced = (
            announced_at is not None and (self._reactor.seconds() - announced_at) * 1000 < within_ms
        )
        hears_master = self._replicas.hears_master(within_ms)
        return smallest == self._role.state.broker_id and not (hears_master or is_announced)
