"""Knows which addresses may speak for a member of a Raft group.

A request of one member to another names its sender, and one with a term far ahead ends a leader's
reign. So a member's word counts from the address that the group's configuration gives it; stock
takes it from everybody.
"""

from __future__ import annotations

from collections.abc import Mapping

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketmq_tw.net.address import look_up_host, split_address
from rocketmq_tw.net.networks import Networks, ip_of, is_loopback, is_same_host
from rocketmq_tw.runtime.threads import InThread

#: Seconds until a member's name is looked up again: it may be elsewhere by then.
MEMBER_LOOK_UP_SECONDS = 2.0


class MemberAddresses:
    """The addresses of `peers`, member -> `host:port`, and for all of them those in `networks`, for
    members that reach others from another address than their own. Names are looked up in a
    thread, when a request comes from an address that is not known; it is refused, and the next one
    counts."""

    log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        peers: Mapping[str, str],
        in_thread: InThread,
        networks: Networks | None = None,
    ) -> None:
        self._clock = clock
        self._in_thread = in_thread
        self._networks = networks or Networks("")
        self._hosts = {member: split_address(address)[0] for member, address in peers.items()}
        #: Name -> its IP addresses, as they were found last.
        self._found: dict[str, list[str]] = {}
        self._looked_up_at: dict[str, float] = {}

    def may_speak(self, member: str, address: str) -> bool:
        """Returns whether the peer at `address`, `host:port`, may speak for `member`; for one that
        is no member everybody may, since its word does not count."""
        host = self._hosts.get(member)
        if host is None or address in self._networks:
            return True
        if ip_of(host) is not None:
            return _are_one(host, address)
        if any(_are_one(found, address) for found in self._found.get(host, ())):
            return True
        self._look_up(host)
        return False

    def _look_up(self, host: str) -> None:
        now = self._clock.seconds()
        if now - self._looked_up_at.get(host, -MEMBER_LOOK_UP_SECONDS) < MEMBER_LOOK_UP_SECONDS:
            return
        self._looked_up_at[host] = now

        def found(addresses: list[str]) -> None:
            self._found[host] = addresses

        def failed(failure: Failure) -> None:
            self.log.warn(
                "the address of {host} is not found: {why}",
                host=host,
                why=failure.getErrorMessage(),
            )

        self._in_thread(lambda: look_up_host(host)).addCallbacks(found, failed)


def _are_one(host: str, address: str) -> bool:
    """Returns whether both are one host; all loopback addresses are."""
    return is_same_host(host, address) or (is_loopback(host) and is_loopback(address))
