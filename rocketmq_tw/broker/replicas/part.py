"""The broker's place in its group of replicas, as a part of the broker."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from functools import partial
from typing import Any, Protocol

from twisted.internet.defer import Deferred, TimeoutError, inlineCallbacks, succeed
from twisted.logger import Logger

from rocketmq_tw.broker.assembly.host import Addresses, Host
from rocketmq_tw.broker.assembly.part import Part, Periodic
from rocketmq_tw.broker.cluster.name_server_links import Master
from rocketmq_tw.broker.cluster.part import Cluster
from rocketmq_tw.broker.replicas.copied_tables import CopiedTables
from rocketmq_tw.broker.replicas.master import MasterLinks
from rocketmq_tw.broker.replicas.members import TellMembers, members_of_group
from rocketmq_tw.broker.replicas.replicated_log import StoreLog
from rocketmq_tw.broker.replicas.requests import ReplicaRequests
from rocketmq_tw.broker.replicas.return_notice import ReturnNoticeCheck, newest_store_host
from rocketmq_tw.broker.replicas.slave import MasterFollower, TableCopier
from rocketmq_tw.broker.replicas.stop_notice import StopNotices
from rocketmq_tw.broker.replicas.switching import Switching
from rocketmq_tw.broker.role.holder import RoleHolder
from rocketmq_tw.broker.role.state import COPYING_ROLES, Role, RoleState
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.net.address import join_address
from rocketmq_tw.net.client import EndpointFor
from rocketmq_tw.net.errors import RemotingError
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.replication.classic import ClassicHAClient, ClassicHAService
from rocketmq_tw.replication.links.client import HAClient
from rocketmq_tw.replication.links.service import HAService
from rocketmq_tw.replication.links.settings import HASettings, ha_settings
from rocketmq_tw.wire.bodies.stats import HARuntimeInfo
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError, WireError
from rocketmq_tw.wire.headers.broker import (
    ExchangeHAInfoRequestHeader,
    ExchangeHAInfoResponseHeader,
)

#: Seconds between a slave's copies of what its master decides, and between its questions to the
#: name servers while it has no master.
COPY_SECONDS = 5.0
SEARCH_SECONDS = 3.0
#: Seconds between a slave's questions to the master that a controller named, while it has no link.
ASK_SECONDS = 1.0

log = Logger()


class HAProtocol(Protocol):
    """Makes the ends of the links over which slaves copy the log."""

    def make_service(self, state: RoleState) -> Deferred[Any]:
        """Fires with the `HAService` of a new master."""

    def make_client(self, state: RoleState, slave: MasterFollower) -> HAClient[Any]:
        """Returns a slave's end of links."""


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

    def make_service(self, state: RoleState) -> Deferred[Any]:
        """See `HAProtocol`."""
        members = members_of_group(self._host, self._tell_members)
        return succeed(ClassicHAService(self._log, self._settings, self._clock, members))

    def make_client(self, state: RoleState, slave: MasterFollower) -> HAClient[Any]:
        """See `HAProtocol`."""
        return ClassicHAClient(self._log, self._settings, self._clock, slave.agree)


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
        #: How a slave reaches its master's HA port; None: by TCP.
        self.endpoint_for: EndpointFor | None = None
        self.master: MasterLinks | None = None
        self.slave: TableCopier | None = None
        #: Called when a master says that it is about to be back; fires once this broker acts for it
        #: no more.
        self.before_master_returns: Callable[[IPeer], Deferred[None]] = lambda peer: succeed(None)
        self._tables_held = False
        #: Slaves that want to be told before this broker stops, while it is the master.
        self._notices: StopNotices | None = None
        settings = ha_settings(host.store_config, host.config)
        #: The epochs, and what a group with a controller needs.
        self.switching = Switching(host, role, writing, settings)
        #: None in a DLedger group, whose members copy the log themselves.
        self._protocol: HAProtocol | None = None
        if not host.store_config.enable_dledger_commit_log:
            is_controlled = host.config.enable_controller_mode
            self._protocol = (
                self.switching
                if is_controlled
                else ClassicHA(host, writing, settings, self._membership.members)
            )
        self._membership.masters.add(self.follow)
        self._return_notices = ReturnNoticeCheck(
            host, writing.store, lambda: None if self.slave is None else self.slave.master
        )

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
        elif role.copies_log and self._is_led_back:
            handlers[code] = partial(self._announced, handlers[code])
        return handlers

    @property
    def _is_led_back(self) -> bool:
        """Whether a master that is about to be back tells its slaves; controllers do it else."""
        config = self._host.config
        return config.enable_slave_acting_master and not config.enable_controller_mode

    def periodic(self) -> Iterable[Periodic]:
        yield Periodic("copying from the master", COPY_SECONDS, self._copy, COPYING_ROLES)
        yield Periodic(
            "looking for the master", SEARCH_SECONDS, self._search, COPYING_ROLES, may_hang=True
        )
        yield Periodic(
            "asking for the log", ASK_SECONDS, self._ask_master, COPYING_ROLES, may_hang=True
        )
        if self._protocol is self.switching:
            seconds = self._host.store_config.clean_resource_interval / 1000
            yield Periodic("forgetting epochs", seconds, self.switching.forget)

    def start(self) -> Deferred[None] | None:
        return self.switching.load() if self._protocol is self.switching else None

    def enter(self, state: RoleState) -> Deferred[None] | None:
        # What is told where nothing is listened on.
        self._addresses.ha_port = self._host.store_config.ha_listen_port or self._addresses.port + 1
        if state.role is Role.SLAVE:
            self._follow(state)
        elif state.role is Role.MASTER:
            self._notices = notices = StopNotices(self._host.reactor)
            self._role.scope.on_end(notices.end)
        if state.role is Role.MASTER and self._protocol is not None and self.master is None:
            made = self._protocol.make_service(state)
            return made.addCallback(lambda service: self._lead(state, service))
        return None

    @inlineCallbacks
    def open_links(self, state: RoleState) -> Generator[Deferred[Any], Any, None]:
        """Lets slaves copy the log before this broker enters the master's role `state`; fires once
        it listens, fails with `OSError` where the HA port is taken."""
        if self.master is None and self._protocol is not None:
            yield self._writing.truncation.end_at_whole_record()
            service = yield self._protocol.make_service(state)
            try:
                self._lead(state, service)
            except OSError:
                yield self.close_links()
                raise

    def _lead(self, state: RoleState, service: HAService[Any]) -> None:
        self.master = MasterLinks(self._host, self._writing, service, synchronous=state.synchronous)
        self._addresses.ha_port = self.master.listen(self._addresses.port)
        service.log_grew()

    def _follow(self, state: RoleState) -> None:
        host, writing, copied, scope = self._host, self._writing, self._copied, self._role.scope
        protocol = self._protocol
        if protocol is None:
            own_address = self._addresses.broker
            self.slave = TableCopier(host, writing, copied, scope, own_address=own_address)
        else:
            self.slave = MasterFollower(
                host,
                writing,
                copied,
                scope,
                lambda slave: protocol.make_client(state, slave),
                self.endpoint_for,
                "" if state.group is None else state.group.master_address,
            )
        self.slave.may_copy = self._may_copy
        # A client that asks a slave sees all that it has acknowledged.
        host.listener.before_request.append(self._catch_up)
        scope.on_end(lambda: host.listener.before_request.remove(self._catch_up))
        self.slave.start()

    def leave(self, state: RoleState) -> Deferred[None]:
        if state.role is Role.ACTING_MASTER:
            return succeed(None)
        links: MasterLinks | TableCopier | None = self.master or self.slave
        self.master = self.slave = None
        return succeed(None) if links is None else links.stop()

    def close_links(self) -> Deferred[None]:
        """Closes what `open_links` opened; fires once it is closed."""
        links, self.master = self.master, None
        return succeed(None) if links is None else links.stop()

    def stop(self) -> Deferred[None] | None:
        # Of a broker that did not become the master yet.
        return self.close_links()

    def stopping(self) -> Deferred[None] | None:
        return None if self._notices is None else self._notices.stop()

    def master_is_near(self) -> bool:
        """Returns whether a client that this broker cannot serve will find the master."""
        return self.slave is None or self.slave.master_is_near

    def hears_master(self, within_ms: int) -> bool:
        """Returns whether this broker is a slave whose master has said something over their link in
        the last `within_ms`."""
        return self.slave is not None and self.slave.hears_master(within_ms)

    @property
    def is_linked(self) -> bool:
        """Whether this broker is a slave that copies its master's log now."""
        return self.slave is not None and self.slave.master_is_near

    @property
    def flushed_offset(self) -> int:
        """Where the durable part of the log ends."""
        return self._writing.store.flushed_offset

    @property
    def log_end(self) -> int:
        """Where the log ends."""
        return self._writing.store.end_offset

    def reported(self, within_ms: int) -> list[str]:
        """Returns the hosts of the slaves that copy this broker's log, and have said something over
        their link in the last `within_ms`."""
        return [] if self.master is None else self.master.service.reported(within_ms)

    def follow(self, master: Master) -> None:
        """Has a slave follow this master, unless haMasterAddress names another one."""
        if self.slave is not None:
            self.slave.learned(master)

    @inlineCallbacks
    def find_master(self) -> Generator[Deferred[Any], Any, bool]:
        """Asks the broker that stored the newest message whether it leads, where nobody has named a
        master: name servers may see each of the two alone. Fires with True where it does: this
        slave follows it from now on, but copies no tables before name servers list it, since it
        may have to take back what this one did. Never fails."""
        slave, stored_by = self.slave, newest_store_host(self._writing.store)
        if slave is None or slave.knows_master or stored_by is None:
            return False
        address = join_address(*stored_by)
        if address == self._addresses.broker:
            return False
        seconds = self._host.config.send_heartbeat_timeout_millis / 1000
        try:
            asked = self._copied.calls.master(address)
            master = yield asked.addTimeout(seconds, self._host.reactor)
        except (RemotingError, RequestError, WireError, TimeoutError):
            return False
        if not master.ha_address or self.slave is not slave or slave.knows_master:
            return False
        log.info(
            "no name server names a master, but {address}, which stored the newest message, leads",
            address=address,
        )
        self.hold_tables()
        self.follow(master)
        return True

    def hold_tables(self) -> None:
        """Keeps a slave from copying its master's tables until `follow_tables`: its own are newer,
        and the master takes them back first."""
        self._tables_held = True
        if self.slave is not None:
            self._copied.forget()

    def follow_tables(self) -> None:
        """Lets a slave copy its master's tables again."""
        self._tables_held = False

    def close_silent_link(self) -> None:
        """Closes a slave's link with a master that it takes for gone. Where only what the master
        sends is lost, that one would go on counting this broker as one that follows it."""
        if self.slave is not None:
            self.slave.close_silent_link()

    def _announced(self, usual: Handler, request: RemotingCommand, peer: IPeer) -> Any:
        """906 of a master that is about to be back: this broker acts for it no more, and follows it
        from now on."""
        header = request.header(ExchangeHAInfoRequestHeader)
        if not header.master_ha_address:
            return usual(request, peer)
        master = Master(header.master_address or "", header.master_ha_address)

        def may_return(_: None) -> Deferred[None]:
            log.info("the master {address} is about to be back", address=master.address)
            return self.before_master_returns(peer)

        checked = self._return_notices.check(peer).addCallback(may_return)
        return checked.addCallback(lambda _: self._return_of(master, request))

    def _return_of(self, master: Master, request: RemotingCommand) -> RemotingCommand:
        self.hold_tables()
        self.follow(master)
        # Its master does not wait for a copy that does not come.
        cannot_copy = bool(self._writing.health.cannot_write) or None
        return request.response(header=ExchangeHAInfoResponseHeader(cannot_copy=cannot_copy))

    def forget_master(self) -> None:
        """Has name servers asked for the master, since another broker leads the DLedger group
        now."""
        if self.slave is not None:
            self.slave.forget_master()

    def _copy(self) -> Deferred[None] | None:
        return None if self.slave is None else self.slave.keep_copying()

    def _may_copy(self) -> bool:
        return not self._tables_held

    def _ask_master(self) -> Deferred[None] | None:
        return None if self.slave is None else self.slave.search()

    def _search(self) -> Deferred[None] | None:
        """Name servers tell who is master only when they are told of a broker."""
        if self.master_is_near():
            return None
        registered = self._membership.register(force=True)
        if self._is_led_back:
            registered.addCallback(lambda _: self.find_master())
        return registered

    def _catch_up(self, request: RemotingCommand, peer: IPeer) -> None:
        self._writing.dispatcher.dispatch_waiting()

    def _runtime_info(self) -> HARuntimeInfo:
        links: MasterLinks | TableCopier | None = self.master or self.slave
        return HARuntimeInfo() if links is None else links.runtime_info()
