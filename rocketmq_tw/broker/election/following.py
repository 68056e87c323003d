"""Keeps a broker in the role that the controllers give it.

It enrols, asks for a master where the group has none, takes its role; from then on it asks for the
group's state from time to time, since a notification (1008) may get lost, and beats to every
controller. While no controller answers, a broker without a role stays unseen, and one that has a
role keeps it. A process that finds itself the master of an epoch from before it began asks for a
new election.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator
from typing import Any

import attrs
from twisted.internet.defer import Deferred, DeferredLock, inlineCallbacks, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketmq_tw.broker.election.decisions import Step, next_step
from rocketmq_tw.broker.election.enrolment import (
    Enrolled,
    Enrolment,
    IdForgottenError,
    IdTakenError,
)
from rocketmq_tw.broker.election.identity import IdentityError
from rocketmq_tw.broker.election.interfaces import GroupState, IController
from rocketmq_tw.broker.role.holder import RoleHolder
from rocketmq_tw.broker.role.state import Role
from rocketmq_tw.client.errors import ClientError
from rocketmq_tw.net.errors import RemotingError
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.group_state import SyncStateSet

#: Seconds between two tries to get a role.
RETRY_SECONDS = 1.0
#: Seconds after which a slave that is not in sync registers once more.
REGISTER_SECONDS = 30.0
#: What is said again only once in so many tries, while nothing else happens.
_TRIES_PER_LINE = 30

#: Leads the broker into the role of `group`; `as_master` or as a slave with its lasting id.
TakeRole = Callable[[int, GroupState, bool], Deferred[None]]

log = Logger()


class NoMasterError(Exception):
    """The group has no master, and this broker is not to be it."""


class NotMasterError(Exception):
    """Only a master may do this, and the broker is none, or none any more."""


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

    `take_role` leads the broker into a role; `take_members` gives a master its new SyncStateSet,
    `members_epoch` tells of which epoch the one is that it has; `beat` sends a heartbeat once the
    broker has an id. A learner (`is_learner`) asks for no election.
    """

    def __init__(
        self,
        clock: IReactorTime,
        controller: IController,
        enrolment: Enrolment,
        role: RoleHolder,
        *,
        address: Callable[[], str],
        take_role: TakeRole,
        take_members: Callable[[GroupState], None],
        members_epoch: Callable[[], int],
        beat: Callable[[], None],
        is_learner: bool = False,
    ) -> None:
        self._clock = clock
        self._controller = controller
        self._enrolment = enrolment
        self._role = role
        self._address = address
        self._take_role = take_role
        self._take_members = take_members
        self._beat = beat
        self._is_learner = is_learner
        self._turn = DeferredLock()
        self._heard_epoch = 0
        #: The newest master epoch when this process first asked; None before.
        self._former_epoch: int | None = None
        self._members_epoch = members_epoch
        self._failures = 0
        self._known_until = 0.0
        self._next_try: IDelayedCall | None = None
        self._stopped = False
        self._is_told = self._is_asking = False
        #: The lasting id; 0 before the controllers gave one.
        self.broker_id = 0

    def start(self) -> None:
        """Tries to get a role until it has one."""
        if not self._stopped:
            self._join().addErrback(lambda failure: log.failure("joining the group", failure))

    def stop(self) -> Deferred[None]:
        """Fires once nothing that it asked for can change the role any more."""
        self._stopped = True
        if self._next_try is not None:
            self._next_try.cancel()
            self._next_try = None
        return succeed(None)

    def poll(self) -> Deferred[None]:
        """Asks for the group's state and does what follows; never fails."""
        if not self.broker_id or self._stopped:
            return succeed(None)
        return self._attempt(self._look())

    def told(self, master_epoch: int) -> None:
        """Somebody says that the group has a master of this epoch (1008): asks a controller, since
        anyone who reaches the port may say so; at most one question at a time."""
        if master_epoch <= self._heard_epoch and self._role.role is not Role.ISOLATED:
            return
        self._is_told = True
        if self._is_asking:
            return
        self._is_asking = True
        self._ask_on_hearsay()

    def _ask_on_hearsay(self) -> None:
        if not self._is_told:
            self._is_asking = False
            return
        self._is_told = False
        self.poll().addCallback(lambda _: self._ask_on_hearsay())

    @inlineCallbacks
    def propose(self, members: Collection[int]) -> Generator[Any, Any, SyncStateSet]:
        """Asks the controller for another SyncStateSet of this master; fires with what holds from
        now on. Fails with `RequestError` where the controller refuses, and otherwise where nobody
        knows whether it was changed."""
        epoch = self._role.state.epoch
        if epoch is None or not self._role.is_master:
            raise NotMasterError("only a master changes the SyncStateSet")
        decided: SyncStateSet = yield self._controller.alter_sync_state_set(
            self.broker_id, epoch, members, self._members_epoch()
        )
        if self._role.state.epoch != epoch:
            raise NotMasterError(f"epoch {epoch} of this master is over")
        return decided

    def renounce(self) -> Deferred[None]:
        """Has the controllers elect anew, which ends this master's epoch: they elect it again
        unless another one is as good. Never fails."""
        return succeed(None) if self._stopped else self._attempt(self._renounce())

    @inlineCallbacks
    def _renounce(self) -> Generator[Any, Any, None]:
        group = yield self._controller.group()
        knows_all = group.sync_state_set_epoch <= self._members_epoch()
        if (group.master_id, group.master_epoch) == (self.broker_id, self._role.state.epoch) and (
            knows_all
        ):
            yield self._controller.depose(group.master_epoch)
            group = attrs.evolve(group, master_id=None)
        yield self._follow(group)

    @inlineCallbacks
    def _join(self) -> Generator[Any, Any, None]:
        yield self._attempt(self._enrol())
        if self._failures and not self._stopped:
            self._next_try = self._clock.callLater(RETRY_SECONDS, self._try_again)

    def _try_again(self) -> None:
        self._next_try = None
        self.start()

    @inlineCallbacks
    def _enrol(self) -> Generator[Any, Any, None]:
        enrolled: Enrolled = yield self._enrolment.run(self._address())
        self._known_until = self._clock.seconds() + REGISTER_SECONDS
        self.broker_id = enrolled.identity.broker_id
        # A controller elects only who it heard of.
        self._beat()
        group = enrolled.group
        if self._former_epoch is None:
            # What registration tells leaves out a master that is not known to be alive.
            group = yield self._ask()
        yield self._follow(group)

    @inlineCallbacks
    def _ask(self) -> Generator[Any, Any, GroupState]:
        """Asks for the group's state, whoever does so first: without knowing which masters were
        there before this process, none may be followed."""
        group: GroupState = yield self._controller.group()
        if self._former_epoch is None:
            self._former_epoch = group.master_epoch
        return group

    @inlineCallbacks
    def _look(self) -> Generator[Any, Any, None]:
        try:
            group = yield self._ask()
        except RequestError as refusal:
            if refusal.code != ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST:
                raise
            # An administrator took the broker out while it was away.
            yield self._enrol()
        else:
            yield self._follow(group)
            yield self._check_is_known(group)

    @inlineCallbacks
    def _check_is_known(self, group: GroupState) -> Generator[Any, Any, None]:
        """A slave that is not in sync registers once more, now and then: nothing else tells it that
        an administrator took it out, and that it will never be in sync."""
        now = self._clock.seconds()
        if self.broker_id in group.sync_state_set or now < self._known_until:
            return
        self._known_until = now + REGISTER_SECONDS
        yield self._enrolment.register(self.broker_id, self._address())

    @inlineCallbacks
    def _follow(self, group: GroupState) -> Generator[Any, Any, None]:
        """Only the change of the role is done one after the other: what is asked meanwhile must
        not keep a newer word of another controller from its turn."""
        if self._is_former_self(group):
            # What that process has asked for may still be on its way, and in its epoch it counts:
            # a SyncStateSet that this process knows nothing of.
            log.info("a former process was master in epoch {epoch}", epoch=group.master_epoch)
            yield self._controller.depose(group.master_epoch)
            group = attrs.evolve(group, master_id=None)
        if self._step(group) is Step.ELECT:
            if self._is_learner:
                # It would be the first master of a new group, and only it in sync from then on.
                raise NoMasterError(
                    "the group has no master, and this broker waits for one: with asyncLearner=true"
                    " it never asks to be it"
                )
            self._heard_epoch = max(self._heard_epoch, group.master_epoch)
            group = yield self._controller.elect(self.broker_id)
        yield self._turn.run(self._change, group)

    def _is_former_self(self, group: GroupState) -> bool:
        """Whether the master is the process that this broker was before."""
        return group.master_id == self.broker_id and group.master_epoch <= (self._former_epoch or 0)

    def _change(self, group: GroupState) -> Deferred[None] | None:
        step = self._step(group)
        if self._stopped or self._is_former_self(group):
            return None
        if step is Step.MEMBERS:
            self._take_members(group)
        elif step in (Step.MASTER, Step.SLAVE):
            self._heard_epoch = group.master_epoch
            if step is Step.SLAVE and group.master_id == self.broker_id:
                log.error(
                    "the broker at {address} has this one's id {id} and is the master: where one"
                    " of the stores is a copy of the other, stop its broker and remove its"
                    " brokerIdentity, then it joins as a new one",
                    address=group.master_address,
                    id=self.broker_id,
                )
            return self._take_role(self.broker_id, group, step is Step.MASTER)
        return None

    def _step(self, group: GroupState) -> Step:
        return next_step(
            self._role.state,
            self.broker_id,
            self._address(),
            self._heard_epoch,
            self._members_epoch(),
            group,
        )

    def _attempt(self, work: Deferred[None]) -> Deferred[None]:
        """What fails is said, and again only now and then."""

        def worked(_: object) -> None:
            self._failures = 0

        def failed(failure: Failure) -> None:
            if failure.check(*_EXPECTED) is None:
                log.failure("following the controllers", failure)
            elif self._failures % _TRIES_PER_LINE == 0:
                has_role = self._role.role is not Role.ISOLATED
                log.warn(
                    "{what}, tried again: {why}",
                    what=f"no {'news' if has_role else 'role'} from the controllers",
                    why=failure.getErrorMessage(),
                )
            self._failures += 1

        return work.addCallbacks(worked, failed)
