"""Auto-switch HA of a broker (docs/formats/auto-switch-ha.md): the epochs of its log, and both ends
of links in a group with a controller.

Roles come by way of `Broker.change_role`. What asks the controller sets `controller`, and calls
`apply` and `renew`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from functools import partial
from typing import Any, Final, NamedTuple

from twisted.internet.defer import Deferred, fail, inlineCallbacks, succeed

from rocketmq_tw.broker.assembly.host import Host
from rocketmq_tw.broker.assembly.part import Periodic
from rocketmq_tw.broker.replicas.members import members_of_group, told_by_nobody
from rocketmq_tw.broker.replicas.replicated_log import SwitchedLog
from rocketmq_tw.broker.replicas.slave import MasterFollower, SlaveTools
from rocketmq_tw.broker.role.holder import RoleHolder
from rocketmq_tw.broker.role.state import RoleState
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.replication.auto_switch.client import AutoSwitchHAClient
from rocketmq_tw.replication.auto_switch.epoch_file import EpochFile, KeptEpochs
from rocketmq_tw.replication.auto_switch.frames import SlaveHandshake
from rocketmq_tw.replication.auto_switch.service import (
    AutoSwitchHAService,
    ControllerCalls,
    EpochBegin,
)
from rocketmq_tw.replication.links.settings import HASettings
from rocketmq_tw.wire.group_state import GroupState, SyncStateSet


class LogProgress(NamedTuple):
    """How far a broker is, as a controller weighs it: its newest epoch (-1: none), its log's end,
    and up to where that is confirmed."""

    epoch: int
    end: int
    confirmed: int


def _no_controller(wanted: frozenset[int]) -> Deferred[SyncStateSet]:
    return fail(ConnectionError("this broker has no connection to a controller"))


NO_CONTROLLER: Final = ControllerCalls(
    propose=_no_controller, renounce=lambda: succeed(None), members=told_by_nobody
)


class Switching:
    """The epochs of the store's log, and what auto-switch links are made with."""

    def __init__(
        self, host: Host, role: RoleHolder, writing: Writing, settings: HASettings
    ) -> None:
        #: What the broker asks its controllers while it is the master, from then on.
        self.controller = NO_CONTROLLER
        self.epochs = KeptEpochs(EpochFile(host.files, writing.store.paths.epochs), host.in_thread)
        self._host = host
        self._role = role
        self._store = writing.store
        self._settings = settings
        self._log = SwitchedLog(writing, host.store_config, role)
        self._service: AutoSwitchHAService | None = None

    def load(self) -> Deferred[None]:
        """See `HAProtocol`: reads the epochs. Fails with `EpochFileError`."""
        return self.epochs.load(self._store.written_offset)

    def periodic(self) -> Iterable[Periodic]:
        """See `HAProtocol`: epochs of files that are gone are forgotten."""
        seconds = self._host.store_config.clean_resource_interval / 1000
        yield Periodic("forgetting epochs", seconds, self._forget)

    @inlineCallbacks
    def make_service(self, state: RoleState) -> Generator[Deferred[Any], Any, AutoSwitchHAService]:
        """See `HAProtocol`; fires once the master's epoch has begun, fails with `EpochError` where
        the epoch is over."""
        group = state.group
        assert group is not None
        yield self._begin_epoch(group)
        self._service = service = AutoSwitchHAService(
            self._log,
            self._settings,
            self._host.reactor,
            epochs=self.epochs,
            begin=EpochBegin(state.lasting_id, group.in_sync, self._store.dispatch_limit or 0),
            controller=self.controller,
            members=members_of_group(self._host, self.controller.members),
        )
        self._role.scope.on_end(self._left)
        return service

    def make_follower(self, state: RoleState, tools: SlaveTools) -> MasterFollower:
        """See `HAProtocol`; follows the master that the controller names."""
        address = "" if state.group is None else state.group.master_address
        return MasterFollower(tools, partial(self._make_client, state), address)

    def _make_client(self, state: RoleState, slave: MasterFollower) -> AutoSwitchHAClient:
        config = self._host.store_config
        return AutoSwitchHAClient(
            self._log,
            self._settings,
            self._host.reactor,
            epochs=self.epochs,
            handshake=SlaveHandshake(
                state.lasting_id, config.sync_from_last_file, config.async_learner
            ),
            compare=slave.compare_before,
        )

    def apply(self, in_sync: SyncStateSet) -> None:
        """Takes over the SyncStateSet that the controller has; changes nothing where the broker is
        no master."""
        if self._service is not None:
            self._service.apply(in_sync)

    @inlineCallbacks
    def renew(self, group: GroupState) -> Generator[Deferred[Any], Any, None]:
        """The controller has elected this master once more: a new epoch begins where its log ends,
        and links and senders go on. Fails with `ValueError` where it is not the master."""
        if self._service is None:
            raise ValueError("a broker that is no master cannot stay it")
        yield self._begin_epoch(group)
        self._role.renew(group)
        self.apply(group.in_sync)

    def _begin_epoch(self, group: GroupState) -> Deferred[None]:
        store = self._store
        return self.epochs.begin(group.master_epoch, store.end_offset, store.min_physical_offset)

    def _left(self) -> None:
        self._service = None

    def _forget(self) -> Deferred[None]:
        return self.epochs.forget(self._store.min_physical_offset)

    @property
    def sync_state_set(self) -> SyncStateSet | None:
        """The SyncStateSet that this master works with; None where it is no master."""
        return None if self._service is None else self._service.states.applied

    @property
    def sync_state_set_epoch(self) -> int:
        """The epoch of that set; 0 without one."""
        known = self.sync_state_set
        return 0 if known is None else known.epoch

    @property
    def progress(self) -> LogProgress:
        """How far this broker is."""
        last, store = self.epochs.table.last, self._store
        return LogProgress(
            -1 if last is None else last.epoch, store.end_offset, store.dispatch_limit or 0
        )
