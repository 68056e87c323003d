"""The registered members of this master's group, as its HA links need them."""

from __future__ import annotations

import socket
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks, succeed
from twisted.logger import Logger

from rocketmq_tw.broker.assembly.host import Host
from rocketmq_tw.net.address import LOOPBACK
from rocketmq_tw.net.networks import Networks, host_of, ip_of
from rocketmq_tw.replication.links.members import Registered, RegisteredReplicas

#: Addresses, `host:port`, of the other brokers of the group, each with its id; None where nobody is
#: there who knows this broker.
TellMembers = Callable[[], "Deferred[frozenset[tuple[int, str]] | None]"]

log = Logger()


def told_by_nobody() -> Deferred[frozenset[tuple[int, str]] | None]:
    """Of a broker without name servers."""
    return succeed(None)


def members_of_group(host: Host, tell: TellMembers) -> RegisteredReplicas:
    """Makes the members as a new master's links need them; `tell` is asked."""

    @inlineCallbacks
    def ask() -> Generator[Any, Any, Registered]:
        told = yield tell()
        if told is None:
            return None
        found = yield find_hosts(host, {address for _, address in told})
        return [(broker_id, each) for broker_id, address in told for each in found[address]]

    reactor = host.reactor
    return RegisteredReplicas(
        lambda: int(reactor.seconds() * 1000), ask, Networks(host.store_config.ha_addresses)
    )


@inlineCallbacks
def find_hosts(host: Host, addresses: Iterable[str]) -> Generator[Any, Any, dict[str, set[str]]]:
    """Fires with the IP addresses from which the brokers at `addresses` may connect, by address:
    none where the name of a host is not known."""
    names = {host_of(address) for address in addresses if ip_of(address) is None}
    found: Mapping[str, set[str]] = {}
    if names:
        found = yield host.in_thread(lambda: {name: _look_up(name) for name in names})
    own = host_of(host.config.broker_ip1)
    hosts = {address: set(found.get(host_of(address), {host_of(address)})) for address in addresses}
    for each in hosts.values():
        if own in each:
            # A slave on this machine may reach its master by loopback.
            each.add(LOOPBACK)
    return hosts


def _look_up(name: str) -> set[str]:
    """The IP addresses behind the name of a host, none where it is not known; blocks."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        log.warn("the host {name} of a slave is not known: {error}", name=name, error=error)
        return set()
    return {host_of(str(address[4][0])) for address in found}
