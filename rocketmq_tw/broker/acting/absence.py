"""A master that was paused or cut off, and was not started again: its slave may have acted."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Set
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketmq_tw.broker.acting.away import Standstill, forgotten_ms
from rocketmq_tw.broker.acting.pre_online import PreOnline
from rocketmq_tw.broker.acting.taking_back import TakingBack
from rocketmq_tw.broker.assembly.host import Host
from rocketmq_tw.broker.assembly.part import Part, Periodic
from rocketmq_tw.broker.cluster.group_members import LivingMembers
from rocketmq_tw.broker.cluster.part import Cluster
from rocketmq_tw.broker.role.holder import RoleChanges, RoleHolder
from rocketmq_tw.broker.role.state import Role, RoleState
from rocketmq_tw.net.errors import RemotingError, RequestTimeout
from rocketmq_tw.runtime.log_throttle import LogThrottle
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.errors import RequestError, WireError

log = Logger()


class Absence(Part):
    """Has a master come back as one that starts does (`PreOnline`) where a slave acted meanwhile.

    A name server that has not listed this master for so long that it may have taken it for gone
    gets no registration before it is known whether a slave acted: the registration would end that,
    and the slave would copy the older progress of its master. A slave that name servers have
    forgotten too is waited for as long as they take to forget one.
    """

    def __init__(
        self,
        host: Host,
        role: RoleHolder,
        changes: RoleChanges,
        cluster: Cluster,
        pre_online: PreOnline,
        taking_back: TakingBack,
    ) -> None:
        self._config = host.config
        self._logger = host.named(log)
        self._clock = host.reactor
        #: Seconds that a slave has to answer: if it acts, both deliver so long.
        self._patience = host.config.broker_not_active_timeout_millis / 2000
        self._role = role
        self._changes = changes
        self._membership = cluster.membership
        self._pre_online = pre_online
        self._taking_back = taking_back
        #: Seconds when each name server listed this broker last.
        self._listed_at: dict[str, float] = {}
        self._standstill = Standstill(host.config, host.reactor.seconds)
        self._is_asking = False
        self._slaves = pre_online.slaves
        #: Of these, the missing ones that the log names.
        self._said_missing = LogThrottle[Set[int]]()
        self._membership.group.answered.add(self._heard)

    def periodic(self) -> Iterable[Periodic]:
        if self._pre_online.is_wanted and not self._config.enable_controller_mode:
            period = self._config.sync_broker_member_group_period / 1000
            yield Periodic(
                "looking whether it was away", period, self._check_absence, (Role.MASTER,)
            )

    def ready(self, state: RoleState) -> None:
        self._standstill.looked()
        now = self._clock.seconds()
        self._listed_at = dict.fromkeys(self._membership.group.name_servers, now)

    def _heard(self, answers: Mapping[str, LivingMembers | None]) -> None:
        now, own = self._clock.seconds(), self._role.state.broker_id
        listed: set[int] = set()
        for name_server, members in answers.items():
            if members is not None and own in members:
                self._listed_at[name_server] = now
                listed.update(members)
        if listed:
            self._said_missing.forget()
            if self._role.is_master:
                self._slaves.listed(frozenset(listed - {own}))

    def _check_absence(self) -> None:
        now, gone_ms = self._clock.seconds(), forgotten_ms(self._config)
        # A question may have come before.
        period = self._config.sync_broker_member_group_period
        stood_still = self._standstill.seconds(period)
        self._standstill.looked()
        for name_server, listed_at in self._listed_at.items():
            if (now - listed_at) * 1000 >= max(gone_ms - period, gone_ms / 2):
                self._membership.hold_from(name_server)
            else:
                self._membership.release_to([name_server])
        if stood_still and not self._is_asking:
            # What is overdue must not be delivered before.
            self._come_back(f"it stood still for {stood_still:.0f} s")
        elif self._membership.is_held_from_some and not self._is_asking:
            self._is_asking = True
            asking = self._ask().addErrback(
                lambda why: self._logger.failure(
                    "asking whether a slave acted for this master failed", why
                )
            )
            asking.addCallback(self._asked)

    def _asked(self, _: object) -> None:
        self._is_asking = False

    @inlineCallbacks
    def _ask(self) -> Generator[Deferred[Any], Any, None]:
        """Lets this broker be registered where no slave acted, else has it come back."""
        scope = self._role.scope
        answers = yield self._membership.group.ask()
        own = self._role.state.broker_id
        told = {its: members for its, members in answers.items() if members is not None}
        slaves = {
            its: address
            for members in told.values()
            for its, address in members.items()
            if its != own
        }
        if not told:
            self._slaves.nobody_answers()
        elif missing := self._slaves.waited_for(set().union(*told.values())):
            self._say_missing(missing)
            return
        try:
            for address in slaves.values():
                if (yield self._has_newer(address)):
                    if not scope.is_over:
                        self._come_back("a slave has acted for it")
                    return
        except (RemotingError, RequestError, WireError) as why:
            is_listed = any(own in members for members in told.values())
            if scope.is_over or is_listed or (yield self._pre_online.is_followed_by(slaves)):
                self._logger.warn(
                    "this master is not registered yet: whether a slave acted is not known: {why}",
                    why=why,
                )
            elif not scope.is_over:
                # Name servers show them no master, and they hear nothing of this one.
                self._come_back(f"name servers list its slaves alone, and one does not tell: {why}")
            return
        if not scope.is_over:
            self._listed_at.update(dict.fromkeys(told, self._clock.seconds()))
            self._membership.release_to(told)

    def _has_newer(self, slave: str) -> Deferred[bool]:
        late = RequestTimeout(slave, RequestCode.GET_ALL_CONSUMER_OFFSET, self._patience)
        asked = self._taking_back.has_newer(slave)
        return asked.addTimeout(self._patience, self._clock, lambda _, __: Failure(late))

    def _say_missing(self, missing: Set[int]) -> None:
        if self._said_missing.is_due(missing):
            self._logger.warn(
                "this master is not registered yet: no name server lists its slaves {missing},"
                " which were there before it was away",
                missing=sorted(missing),
            )

    def _come_back(self, why: str) -> None:
        self._logger.warn(
            "this master was away ({why}): it takes over from its slaves what they have, and is"
            " the master again then",
            why=why,
        )
        state = self._role.state
        left = self._changes.change(RoleState(Role.ISOLATED, state.broker_id))
        left.addErrback(
            lambda failure: self._logger.warn(
                "leaving the master's role failed: {why}", why=failure.getErrorMessage()
            )
        )
        begun = left.addCallback(lambda _: self._changes.begin(state))
        begun.addErrback(
            lambda failure: self._logger.failure("this broker cannot be the master again", failure)
        )
