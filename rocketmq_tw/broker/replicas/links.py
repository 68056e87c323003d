"""Chooses how the members of a group copy the log from their master: over links of the classic
protocol (docs/formats/ha.md) or of auto-switch HA (`switching.py`), or, in a DLedger group, not
over links at all.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from twisted.internet.defer import Deferred, succeed

from rocketmq_tw.broker.assembly.host import Addresses, Host
from rocketmq_tw.broker.assembly.part import Periodic
from rocketmq_tw.broker.replicas.members import TellMembers, members_of_group
from rocketmq_tw.broker.replicas.replicated_log import StoreLog
from rocketmq_tw.broker.replicas.slave import MasterFollower, SlaveTools, TableCopier
from rocketmq_tw.broker.role.state import RoleState
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.replication.classic import ClassicHAClient, ClassicHAService
from rocketmq_tw.replication.links.client import HAClient
from rocketmq_tw.replication.links.settings import HASettings


class HAProtocol(Protocol):
    """Makes the ends of the links over which slaves copy the log."""

    def load(self) -> Deferred[None]:
        """Reads what the protocol keeps in files; the store is loaded."""

    def periodic(self) -> Iterable[Periodic]:
        """Returns what is done from time to time in any role."""

    def make_service(self, state: RoleState) -> Deferred[Any]:
        """Fires with the `HAService` of a new master; with None where there are no links."""

    def make_follower(self, state: RoleState, tools: SlaveTools) -> TableCopier:
        """Returns what a new slave follows its master with."""


class ClassicHA:
    """Master and slaves whose configuration gives them their roles."""

    def __init__(
        self, host: Host, writing: Writing, settings: HASettings, tell_members: TellMembers
    ) -> None:
        self._host = host
        self._tell_members = tell_members
        self._log = StoreLog(writing, host.store_config)
        self._settings = settings
        self._clock = host.reactor

    def load(self) -> Deferred[None]:
        """See `HAProtocol`."""
        return succeed(None)

    def periodic(self) -> Iterable[Periodic]:
        """See `HAProtocol`."""
        return ()

    def make_service(self, state: RoleState) -> Deferred[Any]:
        """See `HAProtocol`."""
        members = members_of_group(self._host, self._tell_members)
        return succeed(ClassicHAService(self._log, self._settings, self._clock, members))

    def make_follower(self, state: RoleState, tools: SlaveTools) -> TableCopier:
        """See `HAProtocol`."""
        return MasterFollower(tools, self._make_client)

    def _make_client(self, slave: MasterFollower) -> HAClient[Any]:
        return ClassicHAClient(self._log, self._settings, self._clock, slave.agree)


class NoLinks:
    """A DLedger group, whose members copy the log themselves: followers copy tables only."""

    def __init__(self, addresses: Addresses) -> None:
        self._addresses = addresses

    def load(self) -> Deferred[None]:
        """See `HAProtocol`."""
        return succeed(None)

    def periodic(self) -> Iterable[Periodic]:
        """See `HAProtocol`."""
        return ()

    def make_service(self, state: RoleState) -> Deferred[Any]:
        """See `HAProtocol`."""
        return succeed(None)

    def make_follower(self, state: RoleState, tools: SlaveTools) -> TableCopier:
        """See `HAProtocol`."""
        return TableCopier(tools, own_address=self._addresses.broker)
