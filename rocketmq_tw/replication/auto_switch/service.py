"""The master's side of auto-switch HA."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from rocketmq_tw.replication.auto_switch.ends import AutoSwitchMasterLink
from rocketmq_tw.replication.auto_switch.epoch_file import KeptEpochs
from rocketmq_tw.replication.auto_switch.sync_states import SyncStates
from rocketmq_tw.replication.interfaces import ISwitchedLog
from rocketmq_tw.replication.links.ends import LinkError
from rocketmq_tw.replication.links.group_transfer import EVERY_REPLICA
from rocketmq_tw.replication.links.members import RegisteredReplicas
from rocketmq_tw.replication.links.service import HAService, SlaveConnection, too_few
from rocketmq_tw.replication.links.settings import HASettings
from rocketmq_tw.runtime.retries import RETRY_USUAL_MS
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.group_state import SyncStateSet

#: Refusals which show that the controller had the set that the proposal was for: neither this
#: proposal nor an earlier one was taken by then. After any other refusal that is not known before
#: the controller tells a newer set.
NOT_TAKEN = frozenset(
    {ResponseCode.CONTROLLER_INVALID_REPLICAS, ResponseCode.CONTROLLER_BROKER_NOT_ALIVE}
)
#: Of these, one that an earlier proposal, which may come after its repetition, need not meet: a
#: broker that is not alive may be so by then.
NOT_YET = ResponseCode.CONTROLLER_BROKER_NOT_ALIVE

#: A master that does not know whether an earlier proposal will be taken has its epoch ended after
#: so many milliseconds: sooner where a proposed broker is not connected, later where all are, since
#: no other broker can be proposed meanwhile.
UNKNOWN_MS = 2000
LONGEST_UNKNOWN_MS = 10_000


@attrs.frozen(kw_only=True)
class ControllerCalls:
    """The controller, as a master asks it.

    `propose` asks for these members; it fires with the set that the controller has then, fails with
    a `RequestError` where the controller refuses, and with anything else where its answer is not
    known. `renounce` has the controller elect anew: that ends the master's epoch, and all that was
    proposed in it; it never fails. `members` fires with the ids and addresses, `host:port`, of the
    other brokers that are registered in the group, with None where it does not know this one; it
    fails where it cannot be asked.
    """

    propose: Callable[[frozenset[int]], Deferred[SyncStateSet]]
    renounce: Callable[[], Deferred[None]]
    members: Callable[[], Deferred[frozenset[tuple[int, str]] | None]]


@attrs.frozen
class EpochBegin:
    """How a master begins its epoch: its lasting id, the SyncStateSet with which it was elected,
    and the offset up to which its log is confirmed already."""

    own_id: int
    in_sync: SyncStateSet
    confirmed: int


class AutoSwitchHAService(HAService[AutoSwitchMasterLink]):
    """Slaves have names. Changes of the SyncStateSet take effect once the controller has them.

    What all in sync have is confirmed: it goes into the log's queues, and slaves are told.
    """

    def __init__(
        self,
        switched: ISwitchedLog,
        settings: HASettings,
        clock: IReactorTime,
        *,
        epochs: KeptEpochs,
        begin: EpochBegin,
        controller: ControllerCalls,
        members: RegisteredReplicas | None = None,
    ) -> None:
        super().__init__(switched, settings, clock, members)
        self.states = SyncStates(
            begin.own_id, begin.in_sync, not_caught_up_ms=lambda: settings.not_caught_up_ms
        )
        #: Up to here the log is confirmed.
        self.confirmed = begin.confirmed
        self._switched = switched
        self._own_id = begin.own_id
        self._epochs = epochs
        self._controller = controller
        self._unknown_since_ms: int | None = None
        self._asked: Deferred[Any] | None = None
        self._slaves_by_id: dict[int, SlaveConnection[AutoSwitchMasterLink]] = {}
        self._check_at_ms = self._expand_at_ms = self._now_ms()
        #: Behind all that senders wait for or were answered, which may be on its way to the disk.
        self._promised_end = 0
        self._is_over = False

    # What the broker asks

    def wait(self, end_offset: int) -> Deferred[int]:
        """See `HAService`."""
        self._promised_end = end_offset
        return super().wait(end_offset)

    def refusal(self) -> str:
        """See `IReplicator`."""
        wanted = self._settings.min_in_sync_replicas
        count = self.states.count
        return too_few(count, wanted, "minInSyncReplicas") if count < wanted else ""

    def log_grew(self) -> None:
        """See `HAService`."""
        super().log_grew()
        self._advance()

    def stop(self) -> Deferred[None]:
        """See `HAService`; nothing is proposed or confirmed any more."""
        self._is_over = True
        return super().stop()

    def apply(self, applied: SyncStateSet) -> None:
        """Applies the SyncStateSet that the controller has; an older one changes nothing."""
        if self.states.apply(applied):
            self._unknown_since_ms = None
            self._logger.info(
                "in sync are {members}, in the set's epoch {epoch}",
                members=sorted(applied.members),
                epoch=applied.epoch,
            )
            self._recount()

    # What the links ask

    def new_link(self) -> AutoSwitchMasterLink:
        """See `HAService`."""
        return AutoSwitchMasterLink(
            self._log.read,
            lambda: self._epochs.table,
            lambda: self.confirmed,
            self._settings,
            self._now_ms(),
        )

    def received(self, slave: SlaveConnection[AutoSwitchMasterLink], data: bytes) -> bool:
        """See `HAService`."""
        link = slave.link
        was_named = link.slave is not None
        changed = super().received(slave, data)
        if link.slave is None:
            return changed
        if not was_named:
            if link.slave.broker_id == self._own_id:
                raise LinkError(f"the slave has this broker's own id {link.slave.broker_id}")
            self.judge(slave)
        self._note_report(slave)
        return changed

    def id_of(self, link: AutoSwitchMasterLink) -> int | None:
        """See `HAService`."""
        return None if link.slave is None else link.slave.broker_id

    def judge(self, slave: SlaveConnection[AutoSwitchMasterLink]) -> None:
        """See `HAService`; a slave that has not said its id yet is nobody."""
        if slave.link.slave is not None and not slave.is_closing:
            super().judge(slave)

    def _set_counts(self, slave: SlaveConnection[AutoSwitchMasterLink], counts: bool) -> None:
        name, counted = slave.link.slave, slave.link.counts
        super()._set_counts(slave, counts)
        if name is None or counts == counted:
            return
        if not counts:
            self._forget(slave)
            return
        former = self._slaves_by_id.get(name.broker_id)
        self._slaves_by_id[name.broker_id] = slave
        end, now_ms = self._log.end_offset, self._now_ms()
        self.states.connected(name.broker_id, end, now_ms, is_learner=name.is_learner)
        if former is not None:
            former.close(f"slave {name.broker_id} has a newer link")
        self._note_report(slave)

    def _note_report(self, slave: SlaveConnection[AutoSwitchMasterLink]) -> None:
        """Takes what a slave that counts has reported into the books."""
        link = slave.link
        if link.slave is None:
            return
        broker_id, now_ms, end = link.slave.broker_id, self._now_ms(), self._log.end_offset
        if link.acknowledged >= 0 and self._slaves_by_id.get(broker_id) is slave:
            last = self._epochs.table.last
            start = last.start if last is not None else 0
            self.states.reported(
                broker_id,
                link.acknowledged,
                end,
                now_ms,
                epoch_start=start,
                promised_end=max(end, self._promised_end),
            )
            self._expand()
            self._advance()

    def lost(self, slave: SlaveConnection[AutoSwitchMasterLink]) -> None:
        """See `HAService`; a member is to leave the set at once."""
        super().lost(slave)
        self._forget(slave)

    def _forget(self, slave: SlaveConnection[AutoSwitchMasterLink]) -> None:
        name = slave.link.slave
        if name is not None and self._slaves_by_id.get(name.broker_id) is slave:
            del self._slaves_by_id[name.broker_id]
            self.states.lost(name.broker_id, self._now_ms())
            self._check()
            self._recount()

    def _required(self) -> int | None:
        if not self._settings.all_ack:
            return self._settings.in_sync_replicas
        return EVERY_REPLICA if self.states.waited_for else 1

    def _reached(self, replicas: int) -> int:
        if replicas == EVERY_REPLICA:
            return self.states.everyone()
        return self.states.copies(replicas)

    def _is_in_sync(self, link: AutoSwitchMasterLink) -> bool:
        name = link.slave
        return link.counts and name is not None and name.broker_id in self.states.applied.members

    def _slaves_in_sync(self) -> int:
        return len(self.states.applied.members) - 1

    # The SyncStateSet

    def _tick(self) -> None:
        now_ms = self._now_ms()
        self._expand()
        self.states.tick(now_ms)
        if now_ms >= self._check_at_ms:
            self._check()
        self._recount()
        super()._tick()

    def _check(self) -> None:
        now_ms = self._now_ms()
        self._check_at_ms = now_ms + self._settings.check_ms
        members = self.states.check(self._log.end_offset, now_ms)
        if members is not None:
            self._ask(members)

    def _expand(self) -> None:
        if self._now_ms() < self._expand_at_ms:
            return
        members = self.states.expansion()
        if members is not None:
            self._ask(members)

    def _ask(self, members: frozenset[int]) -> None:
        """Proposes; one proposal at a time, and none by a master that steps down."""
        if self._asked is not None or self._is_over:
            return
        self.states.propose(members)
        self._logger.info(
            "this master proposes that {members} are in sync", members=sorted(members)
        )
        self._asked = asked = self._controller.propose(members)
        asked.addCallbacks(self._answered, self._unanswered)

    def _answered(self, applied: SyncStateSet) -> None:
        self._asked = None
        if not self._is_over:
            self.apply(applied)

    def _unanswered(self, failure: Failure) -> None:
        self._asked = None
        if self._is_over:
            return
        now_ms = self._now_ms()
        retry_at_ms = now_ms + RETRY_USUAL_MS
        self._check_at_ms = min(self._check_at_ms, retry_at_ms)
        self._logger.warn(
            "the SyncStateSet is not changed yet: {why}", why=failure.getErrorMessage()
        )
        error = failure.value
        code = error.code if isinstance(error, RequestError) else None
        if code not in NOT_TAKEN:
            self.states.unanswered()
            self._expand_at_ms = retry_at_ms
        elif code == NOT_YET and self.states.may_be_taken:
            self._wait_for_newer_set(now_ms)
        else:
            # Others may be asked for at once: the refused one has its own pause.
            self._unknown_since_ms = None
            self.states.refused(now_ms)
            self._recount()

    def _wait_for_newer_set(self, now_ms: int) -> None:
        """An earlier proposal may be taken after this refusal. So its members are waited for until
        the controller tells a newer set; a master that is alone gets one by an election."""
        if self._unknown_since_ms is None:
            self._unknown_since_ms = now_ms
        limit_ms = UNKNOWN_MS if self.states.lacks_proposed else LONGEST_UNKNOWN_MS
        if now_ms - self._unknown_since_ms >= limit_ms:
            self._unknown_since_ms = None
            self._logger.info(
                "this broker asks for an election: it is not known which brokers are in sync"
            )
            self._controller.renounce()

    def _recount(self) -> None:
        """Confirms and answers what all have, since other slaves are waited for than before."""
        self._advance()
        self.acknowledged()

    def _advance(self) -> None:
        if self._is_over:
            return
        offset = min(self._log.end_offset, self.states.everyone())
        if offset > self.confirmed:
            self.confirmed = offset
            self._switched.confirm(offset)
