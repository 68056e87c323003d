"""The broker's place in its group of replicas, as a part of the broker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from twisted.internet.defer import Deferred, succeed

from rocketmq_tw.broker.assembly.host import Addresses, Host
from rocketmq_tw.broker.assembly.part import Part, Periodic
from rocketmq_tw.broker.assignment.part import Assignment
from rocketmq_tw.broker.cluster.membership import Master
from rocketmq_tw.broker.cluster.part import Cluster
from rocketmq_tw.broker.delay.part import Delay
from rocketmq_tw.broker.replicas.epoch_requests import EpochRequests
from rocketmq_tw.broker.replicas.follower import Follower
from rocketmq_tw.broker.replicas.master import MasterLinks
from rocketmq_tw.broker.replicas.master_calls import MasterCalls
from rocketmq_tw.broker.replicas.metadata import SlaveMetadata
from rocketmq_tw.broker.replicas.replica_requests import ReplicaRequests
from rocketmq_tw.broker.replicas.replicated_log import StoreLog
from rocketmq_tw.broker.replicas.settings import ha_settings
from rocketmq_tw.broker.replicas.slave import MasterFollower
from rocketmq_tw.broker.replicas.switching import Switching
from rocketmq_tw.broker.role.holder import RoleHolder
from rocketmq_tw.broker.role.state import COPYING_ROLES, Role, RoleState
from rocketmq_tw.broker.tables.part import Tables
from rocketmq_tw.broker.timer.part import Timer
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.net.client import EndpointFor
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.replication.classic.client import ClassicHAClient
from rocketmq_tw.replication.classic.service import ClassicHAService
from rocketmq_tw.replication.links.client import HAClient
from rocketmq_tw.replication.links.service import HAService
from rocketmq_tw.wire.bodies.stats import HARuntimeInfo
from rocketmq_tw.wire.command import RemotingCommand

#: Seconds between a slave's copies of what its master decides, and between its questions to the
#: name servers while it has no master.
COPY_SECONDS = 5.0
SEARCH_SECONDS = 3.0
#: Seconds between a slave's questions to the master that a controller named, while it has no link.
ASK_SECONDS = 1.0


class Replicas(Part):
    """Serves slaves as a master, follows the master as a slave."""

    def __init__(
        self,
        host: Host,
        role: RoleHolder,
        addresses: Addresses,
        writing: Writing,
        tables: Tables,
        delay: Delay,
        timer: Timer,
        assignment: Assignment,
        cluster: Cluster,
    ) -> None:
        self._host = host
        self._role = role
        self._addresses = addresses
        self._writing = writing
        self._tables = tables
        self._membership = cluster.membership
        self._calls = MasterCalls(host.client, host.in_thread)
        self._metadata = SlaveMetadata(
            self._calls,
            writing.store,
            tables.topics,
            tables.mappings,
            tables.groups,
            tables.offsets,
            delay.offsets,
            timer.progress,
            assignment.modes,
            host.in_slices,
        )
        #: How a slave reaches its master's HA port; None: by TCP.
        self.endpoint_for: EndpointFor | None = None
        self.master: MasterLinks | None = None
        self.slave: Follower | None = None
        #: The epochs, and what a group with a controller needs.
        self.switching = Switching(host, role, writing)
        self._settings = ha_settings(host.store_config, host.config)
        self._membership.on_master(self._learned)

    def handlers(self, role: Role) -> Mapping[int, Handler]:
        links = ReplicaRequests(
            self._runtime_info, self._addresses, self._role, self._writing.store
        )
        epochs = EpochRequests(self._host.config, self._role, self.switching)
        return links.handlers() | epochs.handlers()

    def periodic(self) -> Iterable[Periodic]:
        yield Periodic("copying from the master", COPY_SECONDS, self._copy, COPYING_ROLES)
        yield Periodic(
            "looking for the master", SEARCH_SECONDS, self._search, COPYING_ROLES, may_hang=True
        )
        yield Periodic(
            "asking for the log", ASK_SECONDS, self._ask_master, COPYING_ROLES, may_hang=True
        )
        seconds = self._host.store_config.clean_resource_interval / 1000
        yield Periodic("forgetting epochs", seconds, self._forget)

    def start(self) -> Deferred[None] | None:
        return self.switching.load() if self._host.config.enable_controller_mode else None

    def enter(self, state: RoleState) -> Deferred[None] | None:
        if self._host.store_config.enable_dledger_commit_log:
            self._enter_group(state)
            return None
        if state.role is not Role.MASTER:
            self._follow(state)
            return None
        if state.group is None:
            log = StoreLog(self._writing.store, self._host.store_config, self._writing.commit)
            self._lead(state, ClassicHAService(log, self._settings, self._host.reactor))
            return None
        made = self.switching.make_service(state, state.group)
        return made.addCallback(lambda service: self._lead(state, service))

    def _lead(self, state: RoleState, service: HAService[Any]) -> None:
        host, writing = self._host, self._writing
        self.master = MasterLinks(
            host.reactor,
            host.store_config,
            host.net_config,
            service,
            writing.commit,
            writing.flusher,
            synchronous=state.synchronous,
        )
        self._addresses.ha_port = self.master.listen(self._addresses.port)
        service.log_grew()

    def _enter_group(self, state: RoleState) -> None:
        """The members of a DLedger group copy the log, so there are no links."""
        host, writing = self._host, self._writing
        self._addresses.ha_port = host.store_config.ha_listen_port or self._addresses.port + 1
        if state.role is Role.MASTER:
            return
        self.slave = Follower(
            host.reactor,
            writing.dispatcher,
            writing.store,
            self._tables.topics,
            self._metadata,
            own_address=self._addresses.broker,
        )
        host.before_request.append(self._catch_up)

    def _follow(self, state: RoleState) -> None:
        host, writing, group = self._host, self._writing, state.group
        log = StoreLog(writing.store, host.store_config, writing.commit)

        def make_client(follower: MasterFollower) -> HAClient[Any]:
            if group is not None:
                return self.switching.make_client(follower, state)
            return ClassicHAClient(log, self._settings, host.reactor, follower.agree)

        self._addresses.ha_port = host.store_config.ha_listen_port or self._addresses.port + 1
        self.slave = MasterFollower(
            host.reactor,
            host.store_config,
            make_client,
            writing.dispatcher,
            writing.truncation,
            writing.store,
            self._tables.topics,
            self._calls,
            self._metadata,
            host.now_ms,
            self.endpoint_for,
            "" if group is None else group.master_address,
        )
        # Whoever asks a slave sees all that it has acknowledged.
        host.before_request.append(self._catch_up)
        self.slave.start()

    def leave(self, state: RoleState) -> Deferred[None]:
        if self._catch_up in self._host.before_request:
            self._host.before_request.remove(self._catch_up)
        links: MasterLinks | Follower | None = self.master or self.slave
        self.master = self.slave = None
        self.switching.left()
        return succeed(None) if links is None else links.stop()

    def truncated(self, end: int) -> None:
        self._role.cut(end)

    def master_is_near(self) -> bool:
        """Whether a client that this broker cannot serve will find the master."""
        return self.slave is None or self.slave.master_is_near

    def forget_master(self) -> None:
        """In a DLedger group another broker leads now: name servers are asked who."""
        if self.slave is not None:
            self.slave.forget_master()

    def _learned(self, master: Master) -> None:
        if self.slave is not None:
            self.slave.learned(master)

    def _copy(self) -> Deferred[None] | None:
        return None if self.slave is None else self.slave.keep_copying()

    def _ask_master(self) -> Deferred[None] | None:
        return None if self.slave is None else self.slave.search()

    def _forget(self) -> Deferred[None] | None:
        return self.switching.forget() if self._host.config.enable_controller_mode else None

    def _search(self) -> Deferred[None] | None:
        """Name servers tell who is master only when they are told of a broker."""
        return None if self.master_is_near() else self._membership.register(force=True)

    def _catch_up(self, request: RemotingCommand, peer: IPeer) -> None:
        self._writing.dispatcher.dispatch_waiting()

    def _runtime_info(self) -> HARuntimeInfo:
        links: MasterLinks | Follower | None = self.master or self.slave
        return HARuntimeInfo() if links is None else links.runtime_info()
