"""Keeps a broker in the role that the controllers give it (docs/controller.md).

It enrols, asks for a master where the group has none, and takes its role. From then on it asks for
the group's state from time to time, since a notification (1008) may get lost. While no controller
answers, a broker without a role stays without one, and one that has a role keeps it. A process
that finds itself the master of an epoch from before it began asks for a new election.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketmq_tw.broker.assembly.host import Addresses, Host
from rocketmq_tw.broker.election.controllers import GroupControllers, without_master
from rocketmq_tw.broker.election.decisions import Step, is_this_one, next_step
from rocketmq_tw.broker.election.enrolment import (
    Enrolled,
    Enrolment,
    IdForgottenError,
    IdTakenError,
)
from rocketmq_tw.broker.election.epochs import KnownEpochs
from rocketmq_tw.broker.election.identity import Identity, IdentityError
from rocketmq_tw.broker.election.unfit import UnfitMaster
from rocketmq_tw.broker.replicas.switching import Switching
from rocketmq_tw.broker.role.holder import RoleChanges, RoleHolder
from rocketmq_tw.broker.role.state import Role, RoleState
from rocketmq_tw.client.errors import BrokerError, ClientError
from rocketmq_tw.net.errors import RemotingError
from rocketmq_tw.runtime.fairness import Coalesced, Serial
from rocketmq_tw.runtime.log_throttle import LogThrottle
from rocketmq_tw.runtime.retries import RETRY_USUAL
from rocketmq_tw.runtime.scope import Scope
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.group_state import GroupState

#: Seconds after which a slave that is not in sync registers once more.
REGISTER_SECONDS = 30.0
#: Seconds after which the log says again that the controllers cannot be asked.
_SAY_SECONDS = 60.0

log = Logger()


class NoMasterError(Exception):
    """The group has no master, and this broker is not to be it."""


#: What may go wrong while the network, a controller or a file is out of order.
_EXPECTED = (
    RequestError,
    RemotingError,
    ClientError,
    IdTakenError,
    IdForgottenError,
    IdentityError,
    NoMasterError,
    OSError,
)


class ControllerFollower:
    """Follows the controllers from `start` to `stop`.

    A role is taken by way of `changes`; a master that stays one hears by way of `switching` of its
    next epoch and of its SyncStateSet.
    """

    def __init__(
        self,
        host: Host,
        controllers: GroupControllers,
        enrolment: Enrolment,
        addresses: Addresses,
        role: RoleHolder,
        changes: RoleChanges,
        switching: Switching,
    ) -> None:
        self._clock = host.reactor
        self._logger = host.named(log)
        self._is_learner = host.store_config.async_learner
        self._controllers = controllers
        self._candidacy = controllers.candidacy
        self._leader = controllers.client
        self._enrolment = enrolment
        self._addresses = addresses
        self._role = role
        self._changes = changes
        self._switching = switching
        #: None before the controllers gave the broker its lasting id.
        self.identity: Identity | None = None
        #: Roles are changed one after the other.
        self._changing = Serial()
        self._poll_when_told = Coalesced(self.poll)
        self._epochs = KnownEpochs()
        self._unfit = UnfitMaster(controllers, role, self._epochs, self.beat)
        self._has_failed = False
        self._said = LogThrottle[str](_SAY_SECONDS)
        #: Until this time of the clock, in seconds, the controllers are known to know the broker.
        self._registered_until = 0.0
        self._scope = Scope()
        self._candidacy.changed.add(self._candidacy_changed)

    @property
    def broker_id(self) -> int:
        """The lasting id; 0 before the controllers gave one."""
        return 0 if self.identity is None else self.identity.broker_id

    def start(self) -> None:
        """Tries to get a role until it has one."""
        if not self._scope.is_over:
            self._join().addErrback(
                lambda failure: self._logger.failure(
                    "asking the controllers for a role failed", failure
                )
            )

    def stop(self) -> None:
        """Ends: nothing that it asked for changes the role any more."""
        self._scope.end()

    def poll(self) -> Deferred[None]:
        """Asks for the group's state and does what follows; never fails."""
        return self.attempt(self._ask_and_follow)

    def attempt(self, work: Callable[[Identity], Deferred[None]]) -> Deferred[None]:
        """Does `work`, which is told who this broker is, unless that is not known, or it ended.
        Never fails: a failure is logged, a repeated one only now and then."""
        if self.identity is None or self._scope.is_over:
            return succeed(None)
        return self._attempt(work(self.identity))

    def beat(self) -> None:
        """Sends a heartbeat to every controller once the broker has an id."""
        if self.identity is not None:
            self._controllers.heartbeat(
                self.identity.broker_id,
                self._addresses.broker,
                self._switching.progress,
                holds_on=self._role.is_master and self._role.state_version > self._epochs.ended,
            )

    def told(self, master_epoch: int) -> None:
        """Takes a notification (1008) which says that the group has a master of this epoch: it asks
        a controller, since any client may send one; at most one question at a time."""
        if master_epoch > self._epochs.heard or self._role.role is Role.ISOLATED:
            self._poll_when_told.request()

    @inlineCallbacks
    def _join(self) -> Generator[Any, Any, None]:
        yield self._attempt(self._enrol())
        if self._has_failed:
            self._scope.later(self._clock, RETRY_USUAL, self.start)

    @inlineCallbacks
    def _enrol(self) -> Generator[Any, Any, None]:
        enrolled: Enrolled = yield self._enrolment.run(self._addresses.broker)
        self._registered_until = self._clock.seconds() + REGISTER_SECONDS
        self.identity = enrolled.identity
        # A controller elects only brokers whose heartbeats it has.
        self.beat()
        group = enrolled.group
        if self._epochs.before is None:
            # The answer to a registration leaves out a master that is not known to be alive.
            group = yield self._ask(enrolled.identity)
        yield self.follow(enrolled.identity, group)

    @inlineCallbacks
    def _ask(self, me: Identity) -> Generator[Any, Any, GroupState]:
        """Asks for the group's state. Notes which masters there were before this process: before
        that is known, none may be followed."""
        group: GroupState = yield self._leader.replica_info(me.broker_name)
        self._epochs.note_first(group.master_epoch)
        return group

    @inlineCallbacks
    def _ask_and_follow(self, me: Identity) -> Generator[Any, Any, None]:
        try:
            group = yield self._ask(me)
        except BrokerError as refusal:
            if refusal.code != ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST:
                raise
            # An administrator took the broker out while it was away.
            yield self._enrol()
        else:
            yield self.follow(me, group)
            yield self._check_is_known(me, group)
            yield self._unfit.look_for_room(me, group.master_epoch)

    @inlineCallbacks
    def _check_is_known(self, me: Identity, group: GroupState) -> Generator[Any, Any, None]:
        """Registers a slave that is not in sync once more, now and then: nothing else tells it that
        an administrator took it out, and that it will never be in sync."""
        now = self._clock.seconds()
        if me.broker_id in group.in_sync.members or now < self._registered_until:
            return
        self._registered_until = now + REGISTER_SECONDS
        yield self._enrolment.register(me.broker_id, self._addresses.broker)

    @inlineCallbacks
    def follow(self, me: Identity, group: GroupState) -> Generator[Any, Any, None]:
        """Does what follows from news of the group; fails where that cannot be done now.

        Only the change of the role is done one after the other: what is asked meanwhile must
        not keep newer news of another controller from its turn."""
        if self._is_former_self(group):
            # What that process has asked for may still be on its way, and in its epoch it counts:
            # a SyncStateSet that this process knows nothing of.
            self._logger.info(
                "a former process was master in epoch {epoch}", epoch=group.master_epoch
            )
            group = yield without_master(self._leader, me, group)
        if self._is_this_one(group):
            group = yield self._unfit.check(me, group)
        step = self._step(group)
        is_new = group.master_epoch >= self._epochs.heard
        if is_new and group.master_id not in (None, me.broker_id):
            self._candidacy.another_leads()
        if step is Step.ELECT:
            self._candidacy.nobody_leads()
            if self._candidacy.refusal:
                raise NoMasterError(
                    "the group has no master, and this broker does not stand for election:"
                    f" {self._candidacy.refusal}"
                )
            if self._is_learner:
                # It would be the first master of a new group, and only it in sync from then on.
                raise NoMasterError(
                    "the group has no master, and this broker waits for one: with asyncLearner=true"
                    " it never asks to be it"
                )
            self._epochs.note_heard(group.master_epoch)
            election = yield self._leader.elect_master(me.cluster, me.broker_name, me.broker_id)
            group = election.group
        try:
            yield self._changing.run(self._change, group)
        except Exception as error:
            if self._is_this_one(group):
                # Which has the epoch ended.
                self._candidacy.failed(str(error))
            raise

    def _is_this_one(self, group: GroupState) -> bool:
        """Returns whether the controllers take this broker for the master."""
        return is_this_one(self.broker_id, self._addresses.broker, group)

    def _is_former_self(self, group: GroupState) -> bool:
        """Returns whether the master is the process that this broker was before."""
        return group.master_id == self.broker_id and self._epochs.is_former(group.master_epoch)

    def _change(self, group: GroupState) -> Deferred[None] | None:
        step = self._step(group)
        if self._scope.is_over or self._is_former_self(group):
            return None
        if group.master_epoch == self._epochs.given_up:
            return None
        if step is Step.SYNC_STATE_SET:
            self._switching.apply(group.in_sync)
        elif step is Step.MASTER:
            self._epochs.note_heard(group.master_epoch)
            self._epochs.entering = group.master_epoch
            if self._role.is_master:
                leading = self._switching.renew(group)
            else:
                state = RoleState(Role.MASTER, 0, synchronous=True, group=group)
                leading = self._changes.change(state)
            return leading.addBoth(self._entered)
        elif step is Step.SLAVE:
            self._epochs.note_heard(group.master_epoch)
            if group.master_id == self.broker_id:
                self._logger.error(
                    "the broker at {address} has this one's id {id} and is the master: where one"
                    " of the stores is a copy of the other, stop its broker and remove its"
                    " brokerIdentity, then it joins as a new one",
                    address=group.master_address,
                    id=self.broker_id,
                )
            return self._changes.change(RoleState(Role.SLAVE, self.broker_id, group=group))
        return None

    def _entered(self, result: Failure | None) -> Failure | None:
        self._epochs.entering = None
        if result is None:
            self._candidacy.succeeded()
        return result

    def _candidacy_changed(self) -> None:
        """Tells the controllers at once."""
        self.beat()
        self.poll()

    def _step(self, group: GroupState) -> Step:
        return next_step(
            self._role.state,
            self.broker_id,
            self._addresses.broker,
            self._epochs.heard,
            self._switching.sync_state_set_epoch,
            group,
        )

    def _attempt(self, work: Deferred[None]) -> Deferred[None]:
        """Returns `work` so that it never fails: a failure is logged, a repeated one only now and
        then."""

        def worked(_: object) -> None:
            self._has_failed = False
            self._said.forget()

        def failed(failure: Failure) -> None:
            self._has_failed = True
            what = "no role" if self._role.role is Role.ISOLATED else "no news"
            if failure.check(*_EXPECTED) is None:
                self._logger.failure("following the controllers failed", failure)
            elif self._said.is_due(what, self._clock.seconds()):
                self._logger.warn(
                    "{what} from the controllers, tried again: {why}",
                    what=what,
                    why=failure.getErrorMessage(),
                )

        return work.addCallbacks(worked, failed)
