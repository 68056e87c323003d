"""The broker's place in its group of replicas, as a part of the broker."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks, succeed

from rocketmq_tw.broker.assembly.host import Addresses, Host
from rocketmq_tw.broker.assembly.part import Part, Periodic
from rocketmq_tw.broker.cluster.name_server_links import Master
from rocketmq_tw.broker.cluster.part import Cluster
from rocketmq_tw.broker.replicas.copied_tables import CopiedTables
from rocketmq_tw.broker.replicas.links import ClassicHA, HAProtocol, NoLinks
from rocketmq_tw.broker.replicas.master import MasterLinks
from rocketmq_tw.broker.replicas.requests import ReplicaRequests
from rocketmq_tw.broker.replicas.returning_master import ReturningMaster
from rocketmq_tw.broker.replicas.slave import NoSlave, SlaveTools, TableCopier
from rocketmq_tw.broker.replicas.stop_notice import StopNotices
from rocketmq_tw.broker.replicas.switching import Switching
from rocketmq_tw.broker.role.holder import RoleHolder
from rocketmq_tw.broker.role.state import COPYING_ROLES, Role, RoleState
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.replication.links.service import HAService
from rocketmq_tw.replication.links.settings import ha_settings
from rocketmq_tw.wire.bodies.stats import HARuntimeInfo
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import RemotingCommand

#: Seconds between a slave's copies of what its master decides, and between its questions to the
#: name servers while it has no master.
COPY_SECONDS = 5.0
SEARCH_SECONDS = 3.0
#: Seconds between a slave's questions to the master that a controller named, while it has no link.
_ASK_SECONDS = 1.0


class Replicas(Part):
    """Serves slaves as a master, follows the master as a slave."""

    def __init__(
        self,
        host: Host,
        role: RoleHolder,
        addresses: Addresses,
        writing: Writing,
        copied: CopiedTables,
        cluster: Cluster,
    ) -> None:
        self._host = host
        self._role = role
        self._addresses = addresses
        self._writing = writing
        self._copied = copied
        self._membership = cluster.membership
        self.master: MasterLinks | None = None
        self.slave: TableCopier | NoSlave = NoSlave()
        #: Leads a slave to a master that comes back.
        self.returning = ReturningMaster(host, addresses, writing, copied, lambda: self.slave)
        #: Slaves that want to be told before this broker stops, while it is the master.
        self._notices: StopNotices | None = None
        settings = ha_settings(host.store_config, host.config, host.log_name)
        #: The epochs, and what a group with a controller needs.
        self.switching = Switching(host, role, writing, settings)
        self._protocol: HAProtocol
        if host.store_config.enable_dledger_commit_log:
            self._protocol = NoLinks(addresses)
        elif host.config.enable_controller_mode:
            self._protocol = self.switching
        else:
            self._protocol = ClassicHA(host, writing, settings, self._membership.members)
        self._membership.masters.add(self.follow)

    def handlers(self, role: Role) -> Mapping[int, Handler]:
        requests = ReplicaRequests(
            self._host.config,
            self._role,
            self._addresses,
            self._writing.store,
            self.switching,
            self._runtime_info,
            lambda: self.master is not None,
        )
        handlers = requests.handlers()
        code = RequestCode.EXCHANGE_BROKER_HA_INFO
        if role is Role.MASTER and self._notices is not None:
            handlers[code] = self._notices.asked(handlers[code])
        elif role.copies_log and self.returning.is_told:
            handlers[code] = self.returning.told_by(handlers[code])
        return handlers

    def periodic(self) -> Iterable[Periodic]:
        yield Periodic("copying from the master", COPY_SECONDS, self._copy, COPYING_ROLES)
        yield Periodic(
            "looking for the master", SEARCH_SECONDS, self._search, COPYING_ROLES, may_hang=True
        )
        yield Periodic(
            "asking for the log", _ASK_SECONDS, self._ask_master, COPYING_ROLES, may_hang=True
        )
        yield from self._protocol.periodic()

    def start(self) -> Deferred[None] | None:
        return self._protocol.load()

    def enter(self, state: RoleState) -> Deferred[None] | None:
        # What is told where nothing is listened on.
        self._addresses.ha_port = self._host.store_config.ha_listen_port or self._addresses.port + 1
        if state.role is Role.SLAVE:
            self._follow(state)
        elif state.role is Role.MASTER:
            self._notices = notices = StopNotices(self._host.reactor)
            self._role.scope.on_end(notices.end)
        if state.role is Role.MASTER and self.master is None:
            made = self._protocol.make_service(state)
            return made.addCallback(lambda service: self._lead(state, service))
        return None

    @inlineCallbacks
    def open_links(self, state: RoleState) -> Generator[Deferred[Any], Any, None]:
        """Lets slaves copy the log before this broker enters the master's role `state`; fires once
        it listens, fails with `OSError` where the HA port is taken."""
        if self.master is None:
            yield self._writing.truncation.end_at_whole_record()
            service = yield self._protocol.make_service(state)
            try:
                self._lead(state, service)
            except OSError:
                yield self.close_links()
                raise

    def _lead(self, state: RoleState, service: HAService[Any] | None) -> None:
        if service is None:
            return
        self.master = MasterLinks(self._host, self._writing, service, synchronous=state.synchronous)
        self._addresses.ha_port = self.master.listen(self._addresses.port)
        service.log_grew()

    def _follow(self, state: RoleState) -> None:
        host, scope = self._host, self._role.scope
        may_copy = self.returning.may_copy_tables
        tools = SlaveTools(host, self._writing, self._copied, scope, may_copy)
        self.slave = self._protocol.make_follower(state, tools)
        # A client that asks a slave sees all that it has acknowledged.
        scope.on_end(host.listener.add_check(self._catch_up))
        self.slave.start()

    def leave(self, state: RoleState) -> Deferred[None]:
        if state.role is Role.ACTING_MASTER:
            return succeed(None)
        links = self.master or self.slave
        self.master, self.slave = None, NoSlave()
        return links.stop()

    def close_links(self) -> Deferred[None]:
        """Closes what `open_links` opened; fires once it is closed."""
        links, self.master = self.master, None
        return succeed(None) if links is None else links.stop()

    def stop(self) -> Deferred[None] | None:
        # Of a broker that did not become the master yet.
        return self.close_links()

    def stopping(self) -> Deferred[None] | None:
        return None if self._notices is None else self._notices.stop()

    def clients_find_master(self) -> bool:
        """Returns whether a client that this broker cannot serve will find the master: where this
        one is no slave, and where it is one that copies a master."""
        return self.slave.clients_find_master

    def hears_master(self, within_ms: int) -> bool:
        """Returns whether this broker is a slave whose master has said something over their link in
        the last `within_ms`."""
        return self.slave.hears_master(within_ms)

    @property
    def copies_master(self) -> bool:
        """Whether this broker is a slave that copies its master's log now."""
        return self.slave.copies_master

    def reported(self, within_ms: int) -> list[str]:
        """Returns the hosts of the slaves that copy this broker's log, and have said something over
        their link in the last `within_ms`."""
        return [] if self.master is None else self.master.service.reported(within_ms)

    def follow(self, master: Master) -> None:
        """Has a slave follow this master, unless haMasterAddress names another one."""
        self.slave.learned(master)

    def close_silent_link(self) -> None:
        """Closes a slave's link with a master that it takes for gone. Where only what the master
        sends is lost, that one would go on counting this broker as one that follows it."""
        self.slave.close_silent_link()

    def forget_master(self) -> None:
        """Has name servers asked for the master, since another broker leads the DLedger group
        now."""
        self.slave.forget_master()

    def _copy(self) -> Deferred[None]:
        return self.slave.keep_copying()

    def _ask_master(self) -> Deferred[None]:
        return self.slave.search()

    def _search(self) -> Deferred[None] | None:
        """Name servers tell who is master only when they are told of a broker."""
        if self.clients_find_master():
            return None
        registered = self._membership.register(force=True)
        if self.returning.is_told:
            registered.addCallback(lambda _: self.returning.find())
        return registered

    def _catch_up(self, request: RemotingCommand, peer: IPeer) -> None:
        self._writing.dispatcher.dispatch_waiting()

    def _runtime_info(self) -> HARuntimeInfo:
        return (self.master or self.slave).runtime_info()
