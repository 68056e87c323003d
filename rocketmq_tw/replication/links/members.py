"""Decides which connections of slaves are let in, and which are replicas of the group: those of its
registered brokers.

HA says nothing of who connects but, in groups with a controller, an id that anybody may claim. So a
connection is taken for that of a registered broker whose host it comes from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketmq_tw.net.cluster_peers import ClusterPeers, only_the_cluster
from rocketmq_tw.net.interfaces import IIdentified
from rocketmq_tw.net.networks import Networks, host_of
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError

#: Milliseconds between two questions for the members, while some connection is not known.
LOOK_MS = 2000
LOOK_FOR_NEW_MS = 100
#: Milliseconds for which a member is remembered that nobody tells of any more: a name server that
#: was started again knows slaves only half a minute later.
REMEMBERED_MS = 600_000
#: Members that are remembered; those that were told of last are kept.
_MAX_REMEMBERED = 10_000

#: The other members of the group, each with its id and the IP address of its host; None where
#: nobody is there who knows the group.
Registered = Collection[tuple[int, str]] | None

log = Logger()


def nobody_knows() -> Deferred[Registered]:
    """Of a group without name servers and controllers."""
    return succeed(None)


class RegisteredReplicas:
    """The registered members of this master's group, as `ask` tells when it was asked last.

    `trusted` are networks whose connections are replicas though no member is registered there.
    `elapsed_ms` tells milliseconds of a clock that is never set.
    """

    def __init__(
        self,
        elapsed_ms: Callable[[], int],
        ask: Callable[[], Deferred[Registered]] = nobody_knows,
        trusted: Networks | None = None,
    ) -> None:
        #: Whether somebody who knows the group has told of it: from then on only members count.
        self.is_known = False
        #: Called with each answer.
        self.on_news: Callable[[], None] = lambda: None
        self._elapsed_ms = elapsed_ms
        self._ask = ask
        self._trusted = trusted or Networks("")
        #: Id and host of each member, and when it was told of last.
        self._told_at: dict[tuple[int, str], int] = {}
        #: How many of them are at each host, and their ids: each report of a slave asks for that.
        self._at_host: Counter[str] = Counter()
        self._ids: set[int] = set()
        self._is_asking = False
        self._looked_at: int | None = None

    def refresh(self, *, for_new: bool = False) -> None:
        """Asks for the members, unless that was done a moment ago: a shorter one ago where that is
        `for_new`, a slave that has just come."""
        now = self._elapsed_ms()
        pause_ms = LOOK_FOR_NEW_MS if for_new else LOOK_MS
        if self._is_asking or (self._looked_at is not None and now < self._looked_at + pause_ms):
            return
        self._is_asking, self._looked_at = True, now
        self._ask().addCallbacks(self._take, self._failed)

    def places(self, host: str) -> int:
        """Returns how many members there may be at a host."""
        registered = self._at_host[host]
        if not registered and host in self._trusted:
            return len(self._ids)
        return registered

    def has(self, host: str, broker_id: int | None) -> bool:
        """Returns whether a connection from `host`, of a slave with this id where it says one, is a
        member's."""
        if broker_id is None:
            return self.places(host) > 0
        return (broker_id, host) in self._told_at or (
            broker_id in self._ids and host in self._trusted
        )

    def __str__(self) -> str:
        named = [f"{broker_id} at {host}" for broker_id, host in sorted(self._told_at)]
        return ", ".join(named[:8]) + (" ..." if len(named) > 8 else "") or "none"

    def _take(self, members: Registered) -> None:
        self._is_asking = False
        if members is None:
            return
        self.is_known = True
        now = self._elapsed_ms()
        for member in members:
            self._told_at.pop(member, None)
            self._told_at[member] = now
        for member, told_at in list(self._told_at.items()):
            if now - told_at <= REMEMBERED_MS and len(self._told_at) <= _MAX_REMEMBERED:
                break
            del self._told_at[member]
        self._at_host = Counter(host for _, host in self._told_at)
        self._ids = {broker_id for broker_id, _ in self._told_at}
        self.on_news()

    def _failed(self, failure: Failure) -> None:
        self._is_asking = False
        log.warn(
            "the members of the group cannot be asked for: {why}", why=failure.getErrorMessage()
        )


class SlaveAddressCheck:
    """A `ConnectionCheck` that lets in connections from `networks` alone, as haAddresses names
    them; where it is empty, from the brokers that clusterAddresses names, and else from
    everywhere."""

    def __init__(self, networks: str, cluster: str = "") -> None:
        self._networks = Networks(networks)
        self._cluster = ClusterPeers(cluster)

    def __call__(self, connection: IIdentified) -> None:
        host = host_of(connection.address)
        if self._networks:
            if connection.address not in self._networks:
                raise RequestError(
                    ResponseCode.NO_PERMISSION, f"{host} is not in haAddresses of this broker"
                )
        elif not self._cluster.has(connection):
            raise RequestError(
                ResponseCode.NO_PERMISSION, f"an HA connection {only_the_cluster(connection)}"
            )
