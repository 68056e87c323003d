"""The registered members of this master's group, as its HA links need them.

Rules: docs/operating.md, "Who may be a broker".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks, succeed
from twisted.logger import Logger

from rocketmq_tw.broker.assembly.host import Host
from rocketmq_tw.net.address import LOOPBACK, look_up_host
from rocketmq_tw.net.networks import Networks, host_of, ip_of
from rocketmq_tw.replication.links.members import Registered, RegisteredReplicas

#: Addresses, `host:port`, of the other brokers of the group, each with its id; None where nobody is
#: there who knows this broker.
TellMembers = Callable[[], "Deferred[frozenset[tuple[int, str]] | None]"]

#: Seconds after which a round looks up no further name, and for which a name is not asked again.
ROUND_SECONDS, FRESH_SECONDS = 3.0, 2.0

log = Logger()


def told_by_nobody() -> Deferred[frozenset[tuple[int, str]] | None]:
    """Of a broker without name servers."""
    return succeed(None)


def members_of_group(host: Host, tell: TellMembers) -> RegisteredReplicas:
    """Makes the members as a new master's links need them; `tell` is asked."""
    reactor = host.reactor
    names = HostNames(reactor.seconds)

    @inlineCallbacks
    def ask() -> Generator[Any, Any, Registered]:
        told = yield tell()
        if told is None:
            return None
        found = yield find_hosts(host, {address for _, address in told}, names)
        return [(broker_id, each) for broker_id, address in told for each in found[address]]

    return RegisteredReplicas(host.elapsed_ms, ask, Networks(host.store_config.ha_addresses))


@inlineCallbacks
def find_hosts(
    host: Host, addresses: Iterable[str], known: HostNames | None = None
) -> Generator[Any, Any, dict[str, set[str]]]:
    """Fires with the IP addresses from which the brokers at `addresses` may connect, by address:
    none where the name of a host is not known. `known` are names of rounds before."""
    names = {host_of(address) for address in addresses if ip_of(address) is None}
    found: Mapping[str, set[str]] = {}
    if names:
        known = known or HostNames(host.reactor.seconds)
        found = yield host.in_thread(partial(known.look_up, names))
    own = host_of(host.config.broker_ip1)
    hosts = {address: set(found.get(host_of(address), {host_of(address)})) for address in addresses}
    for each in hosts.values():
        if own in each:
            # A slave on this machine may reach its master by loopback.
            each.add(LOOPBACK)
    return hosts


class HostNames:
    """The IP addresses behind the names of hosts, as they were found last.

    Anybody may register any names, and a look-up of one may hang for many seconds: so each round
    has its time, and begins with names that were never looked up.
    """

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self._found: dict[str, set[str]] = {}
        self._looked_up_at: dict[str, float] = {}

    def look_up(self, names: Collection[str]) -> dict[str, set[str]]:
        """Returns the addresses of `names`, none where a name is not known; blocks. One call at a
        time, in any thread."""
        self._found = {name: self._found.get(name, set()) for name in names}
        looked_up_at = {name: self._looked_up_at.get(name, -float("inf")) for name in names}
        self._looked_up_at = looked_up_at
        end = self._seconds() + ROUND_SECONDS
        for name in sorted(names, key=looked_up_at.__getitem__):
            now = self._seconds()
            if now >= end or now - looked_up_at[name] < FRESH_SECONDS:
                break
            looked_up_at[name] = now
            self._found[name] = _look_up(name) or self._found[name]
        return dict(self._found)


def _look_up(name: str) -> set[str]:
    """Returns the IP addresses behind the name of a host, none where it is not known; blocks."""
    try:
        found = look_up_host(name)
    except (OSError, UnicodeError) as error:
        log.warn("the host {name} of a slave is not known: {error}", name=name, error=error)
        return set()
    return set(map(host_of, found))
