"""Decides who is heard as a broker of the cluster, by address: a check of access until there are
accounts.

Where `clusterAddresses` is set, what brokers ask of name servers, of controllers and of each other
is taken from this machine, from those networks, and from administrators; without it from everybody,
as in stock.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.logger import Logger
from zope.interface import implementer

from rocketmq_tw.config.net import NettyServerConfig
from rocketmq_tw.net.administrators import Administrators
from rocketmq_tw.net.changes import who
from rocketmq_tw.net.interfaces import IIdentified, IPeer, ISelectiveCheck
from rocketmq_tw.net.networks import Networks, host_of, is_loopback
from rocketmq_tw.runtime.log_throttle import LogThrottleByKey
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError

#: Seconds after which the log tells again of a host that is refused; a broker asks each second.
SAY_AGAIN_SECONDS = 60.0
#: Hosts that are remembered for that; the log tells of no further one meanwhile.
MAX_HOSTS = 256

#: What brokers alone ask, and what changes who belongs to a group. What only reads is everybody's.
_OF_BROKERS = frozenset[int](
    {
        # name servers
        RequestCode.REGISTER_BROKER,
        RequestCode.UNREGISTER_BROKER,
        RequestCode.REGISTER_TOPIC_IN_NAMESRV,
        RequestCode.QUERY_DATA_VERSION,
        # controllers
        RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET,
        RequestCode.CONTROLLER_ELECT_MASTER,
        RequestCode.CONTROLLER_REGISTER_BROKER,
        RequestCode.CONTROLLER_GET_NEXT_BROKER_ID,
        RequestCode.CONTROLLER_APPLY_BROKER_ID,
        RequestCode.CLEAN_BROKER_DATA,
        # both
        RequestCode.BROKER_HEARTBEAT,
        # brokers
        RequestCode.EXCHANGE_BROKER_HA_INFO,
    }
)


class ClusterPeers:
    """The hosts that may have a broker of the cluster, as `clusterAddresses` and `adminAddresses`
    name them."""

    def __init__(self, cluster_addresses: str, admin_addresses: str = "") -> None:
        self._networks = Networks(cluster_addresses)
        self._administrators = Administrators(admin_addresses)

    def has(self, peer: IIdentified) -> bool:
        """Returns whether a peer may be one of them: everybody where none is named, else those
        named, administrators, and this machine, as a container's and a proxy's own calls come from
        it."""
        return (
            not self._networks
            or is_loopback(peer.address)
            or peer.address in self._networks
            or self._administrators.has(peer)
        )


@implementer(ISelectiveCheck)
class ClusterCheck:
    """A `RequestCheck` that takes what brokers ask from the brokers of the cluster alone."""

    log = Logger()
    codes = _OF_BROKERS

    def __init__(self, config: NettyServerConfig, seconds: Callable[[], float]) -> None:
        """`seconds` is the clock's time."""
        self._peers = ClusterPeers(config.cluster_addresses, config.admin_addresses)
        self._seconds = seconds
        self._said = LogThrottleByKey[str](SAY_AGAIN_SECONDS, MAX_HOSTS)

    def lets_all_pass(self) -> bool:
        """See `ISelectiveCheck`."""
        return False

    def __call__(self, request: RemotingCommand, peer: IPeer) -> None:
        if request.code not in self.codes or self._peers.has(peer):
            return
        code = RequestCode(request.code)
        self._say(code, peer)
        raise RequestError(
            ResponseCode.NO_PERMISSION, f"request {int(code)} {only_the_cluster(peer)}"
        )

    def _say(self, code: RequestCode, peer: IPeer) -> None:
        if not self._said.is_due(host_of(peer.address), self._seconds()):
            return
        self.log.warn(
            "request {code} ({name}) of {peer} is refused: it is not in clusterAddresses",
            code=int(code),
            name=code.name,
            peer=who(peer),
        )


def only_the_cluster(peer: IIdentified) -> str:
    """Says, behind what was asked, that `peer` may not and what to change."""
    return (
        f"is taken from brokers of the cluster only: add {host_of(peer.address)} to"
        " clusterAddresses in the file of the server that refuses, and restart that"
    )
