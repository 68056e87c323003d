"""The hosts that may tell a slave that its master is about to be back (906)."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.logger import Logger

from rocketmq_tw.broker.assembly.host import Host
from rocketmq_tw.broker.cluster.name_server_links import Master
from rocketmq_tw.broker.replicas.members import HostNames, find_hosts
from rocketmq_tw.net.administrators import Administrators
from rocketmq_tw.net.changes import who
from rocketmq_tw.net.interfaces import IPeer
from rocketmq_tw.net.networks import Networks, host_of
from rocketmq_tw.store.interface import IMessageStore
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError

log = Logger()


def newest_store_host(store: IMessageStore) -> tuple[str, int] | None:
    """Returns host and port of the broker that stored the newest message of a log; None without a
    message."""
    newest = store.last_record_offset
    message = None if newest < 0 else store.message_at(newest)
    return None if message is None else message.store_host


class ReturnNoticeCheck:
    """Lets only some say that the master is about to be back, which leads a slave to another log
    and ends its acting: the host of `master()`, which the slave follows, that of the broker which
    stored the newest message of its log, `haAddresses`, and administrators. A slave that knows of
    no master yet believes all."""

    def __init__(self, host: Host, store: IMessageStore, master: Callable[[], Master]) -> None:
        self._host = host
        self._store = store
        self._master = master
        self._administrators = Administrators(host.net_config.admin_addresses)
        self._networks = Networks(host.store_config.ha_addresses)
        self._names = HostNames(host.reactor.seconds)

    @inlineCallbacks
    def check(self, peer: IPeer) -> Generator[Deferred[Any], Any, None]:
        """Fires where `peer` may speak for the master; fails with `RequestError` where not."""
        if self._administrators.has(peer) or peer.address in self._networks:
            return
        known = self._known()
        if not known:
            return
        hosts = yield find_hosts(self._host, known, self._names)
        told = host_of(peer.address)
        if any(told in each for each in hosts.values()):
            return
        log.error(
            "{peer} says that it is the master that is about to be back, and is refused: the"
            " master of this group is at {known}; where it moved, name its address in haAddresses"
            " of this broker",
            peer=who(peer),
            known=", ".join(sorted(known)),
        )
        raise RequestError(
            ResponseCode.NO_PERMISSION,
            f"this slave knows its master at another host than {told}: name that in haAddresses of"
            " the slave",
        )

    def _known(self) -> set[str]:
        known = {host_of(address) for address in self._master() if address}
        if (stored_by := newest_store_host(self._store)) is not None:
            known.add(stored_by[0])
        return known
