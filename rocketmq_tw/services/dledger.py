"""`twistd rmq-dledger`: one member of a DLedger group that serves append and get."""

from typing import Any, ClassVar

from twisted.application import service
from twisted.internet.defer import Deferred
from twisted.internet.error import CannotListenError
from twisted.logger import Logger
from twisted.python import usage
from twisted.python.failure import Failure

from rocketmq_tw.config.log import LogConfig
from rocketmq_tw.config.net import NettyServerConfig, TlsConfig
from rocketmq_tw.files.posix import PosixFiles
from rocketmq_tw.net.address import split_address
from rocketmq_tw.net.client import RemotingClient
from rocketmq_tw.net.errors import TlsConfigError
from rocketmq_tw.net.server import RemotingServer
from rocketmq_tw.net.tls import ServerTls
from rocketmq_tw.raft.core.config import NodeConfig, RaftConfig
from rocketmq_tw.raft.core.membership import MembershipError, parse_peers
from rocketmq_tw.raft.member_addresses import MemberAddresses
from rocketmq_tw.raft.node import PLACE_LOOK_SECONDS, RaftNode
from rocketmq_tw.raft.requests import DLedgerRequests
from rocketmq_tw.raft.store.ledger import DEFAULT_INDEX_FILE_SIZE
from rocketmq_tw.raft.store.member import MemberStore
from rocketmq_tw.runtime.periodic import PeriodicCall
from rocketmq_tw.runtime.threads import in_pool
from rocketmq_tw.services.background import with_start_report
from rocketmq_tw.services.failed_start import KeysToChange, refuse_to_start
from rocketmq_tw.services.options import (
    read_tls_option,
    refuse_arguments,
    settle_twistd,
    whole_number,
)
from rocketmq_tw.services.ports import check_free, own_port
from rocketmq_tw.services.process import prepare_process
from rocketmq_tw.services.reactor import server_reactor
from rocketmq_tw.store.errors import StoreError

#: An entry never crosses a file, so a smaller one would take hardly any.
_SMALLEST_DATA_FILE = 4096


class Options(usage.Options):
    """What `twistd rmq-dledger` takes; the names of stock's command, and its defaults."""

    synopsis = "--group G --id n0 --peers 'n0-host:port;n1-host:port' --store DIR"
    optParameters: ClassVar[list[list[Any]]] = [
        ["group", "g", "default", "Name of the group."],
        ["id", "i", "n0", "Id of this member, one of the peers'."],
        ["peers", "p", "n0-localhost:20911", "All members: id-host:port, split by ';'."],
        ["store", "s", "/tmp/dledgerstore", "Directory; this member's is dledger-ID in it."],
        ["bind", "b", "", "Address to listen on; the host of this member's peer if empty."],
        ["heartbeat-ms", None, 2000, "heartBeatTimeIntervalMs", whole_number("--heartbeat-ms", 1)],
        ["heartbeat-leak", None, 3, "maxHeartBeatLeak", whole_number("--heartbeat-leak", 1)],
        ["min-vote-ms", None, 300, "minVoteIntervalMs", whole_number("--min-vote-ms", 1)],
        ["max-vote-ms", None, 1000, "maxVoteIntervalMs", whole_number("--max-vote-ms", 1)],
        ["preferred-leaders", None, "", "preferredLeaderIds, split by ';'."],
        [
            "data-file-size",
            None,
            1024**3,
            "mappedFileSizeForEntryData",
            whole_number("--data-file-size", _SMALLEST_DATA_FILE),
        ],
        [
            "index-file-size",
            None,
            DEFAULT_INDEX_FILE_SIZE,
            "mappedFileSizeForEntryIndex",
            whole_number("--index-file-size", 1),
        ],
        ["tls-config", None, None, "Take TLS as the keys of this .properties file say."],
    ]
    optFlags: ClassVar[list[list[Any]]] = [
        [
            "tls",
            None,
            "Take TLS, and speak it to the others; tls.server.mode=enforcing says it too.",
        ],
    ]
    #: How connections are taken; None: in the clear.
    server_tls: TlsConfig | None = None
    #: How the other members are spoken to; None: in the clear.
    client_tls: TlsConfig | None = None

    def parseArgs(self, *given: str) -> None:
        refuse_arguments(given)

    def postOptions(self) -> None:
        if not self["group"].strip():
            raise usage.UsageError("--group is empty: give the group's name")
        try:
            self.peer_addresses = parse_peers(self["peers"])
        except MembershipError as error:
            raise usage.UsageError(f"--peers: {error}") from error
        if self["id"] not in self.peer_addresses:
            raise usage.UsageError(f"--id {self['id']} is none of the peers {self['peers']}")
        if self["min-vote-ms"] >= self["max-vote-ms"]:
            raise usage.UsageError("--min-vote-ms has to be below --max-vote-ms")
        for leader in self.preferred_leaders:
            if leader not in self.peer_addresses:
                raise usage.UsageError(f"--preferred-leaders: {leader} is none of the peers")
        if self["index-file-size"] % 32:
            raise usage.UsageError("--index-file-size has to be a multiple of 32")
        tls = read_tls_option(self["tls-config"], for_server=True)
        if tls is None and self["tls"]:
            tls = TlsConfig()
        self.server_tls = tls
        if self["tls"] or (tls is not None and tls.server_mode == "enforcing"):
            self.client_tls = tls
        port = self.peer_addresses[self["id"]].rpartition(":")[2]
        settle_twistd(self.parent, LogConfig(), int(port))

    @property
    def preferred_leaders(self) -> tuple[str, ...]:
        return tuple(filter(None, self["preferred-leaders"].split(";")))

    def node_config(self) -> NodeConfig:
        """Returns the configuration of a member without a state machine."""
        return NodeConfig(
            group=self["group"],
            peers=self.peer_addresses,
            raft=RaftConfig(
                self_id=self["id"],
                members=tuple(self.peer_addresses),
                heartbeat_interval_ms=self["heartbeat-ms"],
                max_heartbeat_leak=self["heartbeat-leak"],
                min_vote_interval_ms=self["min-vote-ms"],
                max_vote_interval_ms=self["max-vote-ms"],
                preferred_leader_ids=self.preferred_leaders,
                data_file_size=self["data-file-size"],
                state_machine=False,
            ),
        )


class DLedgerService(service.Service):
    """Opens the store and takes part from `startService` to `stopService`."""

    log = Logger()

    def __init__(self, reactor: Any, options: Options) -> None:
        self.setName("rmq-dledger")
        self._reactor = reactor
        self._options = options
        self._keys = KeysToChange("the port in --peers", "--bind", {"--store": options["store"]})
        self._node: RaftNode | None = None

    def startService(self) -> None:
        options, config = self._options, self._options.node_config()
        member = config.raft.self_id
        host, port = split_address(config.peers[member])
        net = NettyServerConfig(bind_address=options["bind"] or host, listen_port=port)
        tls = options.server_tls
        try:
            check_free(own_port("--peers", net, port, self._keys))
            self._client = RemotingClient(self._reactor, tls=options.client_tls)
            self._server = RemotingServer(
                self._reactor, net, tls=None if tls is None else ServerTls(tls)
            )
            store = MemberStore(
                PosixFiles(),
                f"{options['store']}/dledger-{member}",
                options["data-file-size"],
                options["index-file-size"],
            )
            node = RaftNode(self._reactor, config, store, self._client, in_pool(self._reactor))
            listener = self._server.listener()
            members = MemberAddresses(self._reactor, config.peers, in_pool(self._reactor))
            for code, handler in DLedgerRequests(node, members).table().items():
                listener.register(code, handler)
            listener.listen()
        except (StoreError, CannotListenError, TlsConfigError, OSError) as error:
            self._cannot_go_on(error)
            return
        super().startService()
        self._node = node
        self._place_looks = PeriodicCall(
            self._reactor, "the look at the store", PLACE_LOOK_SECONDS, node.look_at_place
        )
        self._place_looks.start()
        node.when_failed.addErrback(self._disk_failed)
        node.start()
        self.log.info(
            "{group}/{member}: listening on {address}",
            group=config.group,
            member=member,
            address=config.peers[member],
        )

    def _disk_failed(self, failure: Failure) -> None:
        self._node = None
        self._cannot_go_on(failure.value)

    def _cannot_go_on(self, error: BaseException | None) -> None:
        refuse_to_start(self._reactor, error, self._keys)

    def stopService(self) -> "Deferred[None] | None":
        if not self.running:
            return None
        super().stopService()
        self._place_looks.stop()
        stopped = self._server.stop(0.5)
        if self._node is not None:
            node = self._node
            stopped.addCallback(lambda _: node.stop())
        return stopped.addCallback(lambda _: self._client.close())


def makeService(options: Options) -> service.Service:
    """Returns the service that `options` describe."""
    reactor = server_reactor()
    prepare_process(reactor)
    return with_start_report(options, DLedgerService(reactor, options))
