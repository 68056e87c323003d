"""The broker's place in its group of replicas, as a part of the broker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from twisted.internet.defer import Deferred, succeed

from rocketmq_tw.broker.assembly.host import Addresses, Host
from rocketmq_tw.broker.assembly.part import Part, Periodic
from rocketmq_tw.broker.assignment.part import Assignment
from rocketmq_tw.broker.cluster.membership import Master
from rocketmq_tw.broker.cluster.part import Cluster
from rocketmq_tw.broker.delay.part import Delay
from rocketmq_tw.broker.replicas.master import MasterLinks
from rocketmq_tw.broker.replicas.master_calls import MasterCalls
from rocketmq_tw.broker.replicas.metadata import SlaveMetadata
from rocketmq_tw.broker.replicas.replica_requests import ReplicaRequests
from rocketmq_tw.broker.replicas.replicated_log import StoreLog
from rocketmq_tw.broker.replicas.slave import MasterFollower
from rocketmq_tw.broker.role.holder import RoleHolder
from rocketmq_tw.broker.role.state import COPYING_ROLES, Role, RoleState
from rocketmq_tw.broker.tables.part import Tables
from rocketmq_tw.broker.timer.part import Timer
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.net.client import EndpointFor
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.wire.bodies.stats import HARuntimeInfo
from rocketmq_tw.wire.command import RemotingCommand

#: Seconds between a slave's copies of what its master decides, and between its questions to the
#: name servers while it has no master.
COPY_SECONDS = 5.0
SEARCH_SECONDS = 3.0


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
        self.slave: MasterFollower | None = None
        self._membership.on_master(self._learned)

    def handlers(self, role: Role) -> Mapping[int, Handler]:
        return ReplicaRequests(self._runtime_info).handlers()

    def periodic(self) -> Iterable[Periodic]:
        yield Periodic("copying from the master", COPY_SECONDS, self._copy, COPYING_ROLES)
        yield Periodic(
            "looking for the master", SEARCH_SECONDS, self._search, COPYING_ROLES, may_hang=True
        )

    def enter(self, state: RoleState) -> None:
        host, writing = self._host, self._writing
        replicated = StoreLog(writing.store, host.store_config, writing.commit)
        if state.role is Role.MASTER:
            self.master = MasterLinks(
                host.reactor,
                host.store_config,
                host.net_config,
                replicated,
                writing.commit,
                writing.flusher,
                synchronous=state.synchronous,
            )
            self._addresses.ha_port = self.master.listen(self._addresses.port)
            return
        self._addresses.ha_port = host.store_config.ha_listen_port or self._addresses.port + 1
        self.slave = MasterFollower(
            host.reactor,
            host.store_config,
            replicated,
            writing.commit,
            writing.truncation,
            writing.store,
            self._tables.topics,
            self._calls,
            self._metadata,
            host.now_ms,
            self.endpoint_for,
        )
        # Whoever asks a slave sees all that it has acknowledged.
        host.before_request.append(self._catch_up)
        self.slave.start()

    def leave(self, state: RoleState) -> Deferred[None]:
        if self._catch_up in self._host.before_request:
            self._host.before_request.remove(self._catch_up)
        links: MasterLinks | MasterFollower | None = self.master or self.slave
        self.master = self.slave = None
        return succeed(None) if links is None else links.stop()

    def master_is_near(self) -> bool:
        """Whether a client that this broker cannot serve will find the master."""
        return self.slave is None or self.slave.master_is_near

    def _learned(self, master: Master) -> None:
        if self.slave is not None:
            self.slave.learned(master)

    def _copy(self) -> Deferred[None] | None:
        return None if self.slave is None else self.slave.copy()

    def _search(self) -> Deferred[None] | None:
        """Name servers tell who is master only when they are told of a broker."""
        return None if self.master_is_near() else self._membership.register(force=True)

    def _catch_up(self, request: RemotingCommand, peer: IPeer) -> None:
        self._writing.commit.dispatch_now()

    def _runtime_info(self) -> HARuntimeInfo:
        links: MasterLinks | MasterFollower | None = self.master or self.slave
        return HARuntimeInfo() if links is None else links.runtime_info()
