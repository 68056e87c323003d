"""A master that returns, as its slaves see it, where one of them may have acted for it.

They follow it before name servers list it: it says so (906), or it is found by who stored the
newest message. Until it is registered they copy none of its tables, since it takes back first what
was done without it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred, TimeoutError, inlineCallbacks, succeed
from twisted.logger import Logger

from rocketmq_tw.broker.assembly.host import Addresses, Host
from rocketmq_tw.broker.cluster.name_server_links import Master
from rocketmq_tw.broker.replicas.copied_tables import CopiedTables
from rocketmq_tw.broker.replicas.return_notice import ReturnNoticeCheck, newest_store_host
from rocketmq_tw.broker.replicas.slave import NoSlave, TableCopier
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.net.address import join_address
from rocketmq_tw.net.errors import RemotingError
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError, WireError
from rocketmq_tw.wire.headers.broker import (
    ExchangeHAInfoRequestHeader,
    ExchangeHAInfoResponseHeader,
)

log = Logger()


class ReturningMaster:
    """Leads `slave()`, what this broker copies with while it is a slave, to its master."""

    def __init__(
        self,
        host: Host,
        addresses: Addresses,
        writing: Writing,
        copied: CopiedTables,
        slave: Callable[[], TableCopier | NoSlave],
    ) -> None:
        self._host = host
        self._addresses = addresses
        self._writing = writing
        self._copied = copied
        self._slave = slave
        #: Called when a master says that it is about to be back; fires once this broker acts for it
        #: no more.
        self.before_return: Callable[[IPeer], Deferred[None]] = lambda peer: succeed(None)
        self._tables_held = False
        self._notices = ReturnNoticeCheck(host, writing.store, self._followed)

    @property
    def is_told(self) -> bool:
        """Whether a master that is about to be back tells its slaves; controllers do it else."""
        config = self._host.config
        return config.enable_slave_acting_master and not config.enable_controller_mode

    def told_by(self, usual: Handler) -> Handler:
        """Returns the handler of 906 that hears of a return, and leaves all else to `usual`."""
        return partial(self._told, usual)

    def hold_tables(self) -> None:
        """Keeps a slave from copying its master's tables until `follow_tables`: its own are newer,
        and the master takes them back first."""
        self._tables_held = True
        self._slave().forget_tables()

    def follow_tables(self) -> None:
        """Lets a slave copy its master's tables again."""
        self._tables_held = False

    def may_copy_tables(self) -> bool:
        """Returns whether a slave may copy its master's tables now."""
        return not self._tables_held

    @inlineCallbacks
    def find(self) -> Generator[Deferred[Any], Any, bool]:
        """Asks the broker that stored the newest message whether it leads, where nobody has named a
        master: name servers may see each of the two alone. Fires with True where it does: this
        slave follows it from now on, but copies no tables before name servers list it, since it
        may have to take back what this one did. Never fails."""
        slave, stored_by = self._slave(), newest_store_host(self._writing.store)
        if not slave.lacks_master or stored_by is None:
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
        if not master.ha_address or self._slave() is not slave or not slave.lacks_master:
            return False
        log.info(
            "no name server names a master, but {address}, which stored the newest message, leads",
            address=address,
        )
        self._follow(master)
        return True

    def _told(self, usual: Handler, request: RemotingCommand, peer: IPeer) -> Any:
        """Hears 906 of a master that is about to be back: this broker acts for it no more, and
        follows it from now on."""
        header = request.header(ExchangeHAInfoRequestHeader)
        if not header.master_ha_address:
            return usual(request, peer)
        master = Master(header.master_address or "", header.master_ha_address)

        def may_return(_: None) -> Deferred[None]:
            log.info("the master {address} is about to be back", address=master.address)
            return self.before_return(peer)

        def returns(_: None) -> RemotingCommand:
            self._follow(master)
            # Its master does not wait for a copy that does not come.
            cannot_copy = bool(self._writing.health.cannot_write) or None
            return request.response(header=ExchangeHAInfoResponseHeader(cannot_copy=cannot_copy))

        return self._notices.check(peer).addCallback(may_return).addCallback(returns)

    def _follow(self, master: Master) -> None:
        self.hold_tables()
        self._slave().learned(master)

    def _followed(self) -> Master:
        return self._slave().master
