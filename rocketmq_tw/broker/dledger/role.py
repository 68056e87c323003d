"""The broker's role as the group's elections give it: the leader is master, all others slaves.

Rules: docs/replication.md, "A log in a DLedger group".
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger

from rocketmq_tw.broker.dledger.member import DLedgerMember
from rocketmq_tw.broker.role.candidacy import Candidacy
from rocketmq_tw.broker.role.holder import RoleHolder
from rocketmq_tw.broker.role.state import Role, RoleState
from rocketmq_tw.broker.writing.dispatcher import Dispatcher
from rocketmq_tw.raft.core.codes import RaftRole
from rocketmq_tw.runtime.alarm import Alarm
from rocketmq_tw.runtime.named_log import named
from rocketmq_tw.runtime.retries import RETRY_USUAL
from rocketmq_tw.runtime.scope import Scope

#: Seconds between two looks whether a new leader's log is committed and in its queues.
SETTLE_SECONDS = 0.02

log = Logger()


class RoleOfGroup:
    """Leads the broker into the role that follows from its Raft member's, one change after the
    other; a role that was overtaken meanwhile is left out. As a slave the broker has the id
    `broker_id`."""

    def __init__(
        self,
        clock: IReactorTime,
        member: DLedgerMember,
        dispatcher: Dispatcher,
        holder: RoleHolder,
        change: Callable[[RoleState], Deferred[None]],
        broker_id: int,
        candidacy: Candidacy,
    ) -> None:
        self._clock = clock
        self._logger = named(log, candidacy.log_name)
        self._member = member
        self._dispatcher = dispatcher
        self._holder = holder
        self._change = change
        self._broker_id = broker_id
        self._candidacy = candidacy
        self._wanted = RoleState(Role.SLAVE, broker_id)
        #: Lasts as long as `_wanted` is wanted.
        self._wish = Scope()
        #: The wish that is fulfilled.
        self._taken: Scope | None = None
        self._steering = False
        self._running = False
        self._retry = Alarm(clock, self._start_changing)
        member.node.role_listeners.append(self._elected)

    def start(self) -> None:
        """Takes the role of a slave until there is an election."""
        self._running = True
        self._start_changing()

    def stop(self) -> None:
        """Takes no role any more."""
        self._running = False
        self._wish.end()
        self._retry.cancel()

    def give_up(self) -> None:
        """Isolates the broker, whose member has failed."""
        self._member.follow()
        self._set_wanted(RoleState(Role.ISOLATED, self._broker_id))

    def _elected(self, role: RaftRole, term: int) -> None:
        if role is RaftRole.LEADER:
            self._set_wanted(RoleState(Role.MASTER, 0, synchronous=True))
            return
        self._member.follow()
        # A member that looks for a leader goes on as a slave: what is committed may be read.
        if self._wanted.role is not Role.SLAVE:
            self._set_wanted(RoleState(Role.SLAVE, self._broker_id))

    def _set_wanted(self, state: RoleState) -> None:
        self._wish.end()
        self._wanted, self._wish = state, Scope()
        self._start_changing()

    def _start_changing(self) -> None:
        if self._running and not self._steering:
            self._steering = True
            self._take_roles().addErrback(self._cannot_take)

    @inlineCallbacks
    def _take_roles(self) -> Generator[Deferred[Any], Any, None]:
        while self._running and self._taken is not self._wish:
            wish, state = self._wish, self._wanted
            if state.role is Role.MASTER:
                yield self._settle(wish)
                if wish.is_over:
                    continue
                self._member.lead()
            # Another member may have been master meanwhile: a new term begins anew.
            if state.role is Role.MASTER or state.role is not self._holder.role:
                yield self._change(state)
            self._taken = wish
            if state.role is Role.MASTER:
                self._candidacy.succeeded()
        self._steering = False

    @inlineCallbacks
    def _settle(self, wish: Scope) -> Generator[Deferred[Any], Any, None]:
        """Fires once all of the log is committed and in its queues, or `wish` is over."""
        while not (wish.is_over or self._member.is_settled):
            yield self._dispatcher.dispatch_all()
            yield deferLater(self._clock, SETTLE_SECONDS)

    def _cannot_take(self, failure: Any) -> None:
        self._logger.failure(
            "the broker could not become {role}, as its DLedger group wants",
            failure,
            role=self._wanted.role.words,
        )
        self._steering = False
        if self._running:
            self._retry.set(RETRY_USUAL)
            if self._wanted.role is Role.MASTER:
                # Another member leads meanwhile.
                self._candidacy.failed(failure.getErrorMessage())
