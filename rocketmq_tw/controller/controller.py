"""A controller out of its parts."""

from collections.abc import Iterator
from itertools import chain
from random import Random
from typing import Any

from twisted.internet.defer import Deferred, succeed

from rocketmq_tw.config.controller import ControllerConfig
from rocketmq_tw.controller.core.live_brokers import LiveBrokers, ReplicaKey
from rocketmq_tw.controller.counts import ControllerCounts
from rocketmq_tw.controller.decider import ControllerMachine, Decider
from rocketmq_tw.controller.elections import Elections
from rocketmq_tw.controller.liveness import BrokerLiveness
from rocketmq_tw.controller.notifications import RoleNotifier
from rocketmq_tw.controller.requests import ControllerRequests
from rocketmq_tw.metrics.instruments import Metric, gauge, labelled
from rocketmq_tw.net.interfaces import Handler, IListener, IPeer, IRemotingClient, IRemotingServer
from rocketmq_tw.net.live_config import LiveConfig
from rocketmq_tw.net.networks import Networks, host_of
from rocketmq_tw.net.server_metrics import MetricsLog, request_latency
from rocketmq_tw.raft.core.codes import RaftRole
from rocketmq_tw.raft.core.config import NodeConfig, RaftConfig
from rocketmq_tw.raft.core.membership import MembershipError, parse_peers
from rocketmq_tw.raft.member_addresses import MemberAddresses
from rocketmq_tw.raft.node import PLACE_LOOK_SECONDS, RaftNode, Replicated
from rocketmq_tw.raft.requests import DLedgerRequests
from rocketmq_tw.raft.store.member import MemberStore
from rocketmq_tw.runtime.periodic import PeriodicCall
from rocketmq_tw.runtime.threads import InThread
from rocketmq_tw.runtime.waking_time import WakingTime
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.controller import NO_BROKER, ElectMasterRequestHeader

#: Stock's values of the metric `role`.
_ROLE_VALUES = {RaftRole.CANDIDATE: 1, RaftRole.FOLLOWER: 2, RaftRole.LEADER: 3}


class ControllerConfigError(ValueError):
    """Keys that make no member of a group; the text names the key."""


def node_config(config: ControllerConfig) -> NodeConfig:
    """Returns this controller's place in its Raft group. Raises `ControllerConfigError`."""
    if not config.controller_dledger_group.strip():
        raise ControllerConfigError("controllerDLegerGroup is missing: give the group's name")
    try:
        peers = parse_peers(config.controller_dledger_peers)
    except MembershipError as error:
        raise ControllerConfigError(f"controllerDLegerPeers: {error}") from error
    self_id = config.controller_dledger_self_id
    if self_id not in peers:
        raise ControllerConfigError(
            f"controllerDLegerSelfId={self_id}: give one of {', '.join(peers)}"
        )
    return NodeConfig(
        group=config.controller_dledger_group,
        peers=peers,
        raft=RaftConfig(
            self_id=self_id,
            members=tuple(peers),
            data_file_size=config.mapped_file_size,
            # Each piece of a log that is applied again at a start holds the reactor.
            max_apply_bytes=64 * 1024,
        ),
        snapshot_every=config.controller_snapshot_interval,
    )


class Controller:
    """A member of the Raft group and what it decides on. `handlers` has all requests that it
    answers, for tests without a network; `start` gives it a listener of a server. Requests of other
    members and of brokers come over one port, as in stock."""

    def __init__(
        self,
        clock: Any,
        config: ControllerConfig,
        live_config: LiveConfig,
        store: MemberStore,
        client: IRemotingClient,
        in_thread: InThread,
        random: Random | None = None,
        *,
        hears_strangers: bool = True,
    ) -> None:
        """`live_config` has `config` and what else administrators may read and change;
        `hears_strangers`: not only brokers of the cluster are heard as brokers."""
        self._config = config
        self.machine = ControllerMachine()
        self._store = store
        counts = self._counts = ControllerCounts(self._is_group)
        self.node = RaftNode(
            clock,
            node_config(config),
            store,
            client,
            in_thread,
            Replicated(self.machine),
            random,
        )
        self._waking_time = WakingTime(clock)
        self.live: LiveBrokers[IPeer] = LiveBrokers(
            self._waking_time.now_ms,
            self._is_registered,
            self._registered_at,
            hears_strangers=hears_strangers,
        )
        self.decider = Decider(clock, self.node, self.machine, self.live, config, counts)
        notifier = RoleNotifier(client, self.live)
        self._elections = Elections(clock, self.decider, self.live, notifier, config)
        self._liveness = BrokerLiveness(
            clock,
            self.live,
            config.scan_not_active_broker_interval / 1000,
            self._elections.broker_gone,
            self._registered_at,
        )
        requests = self._requests = ControllerRequests(
            clock, self.node, self.decider, self._liveness, notifier, config, live_config, counts
        )
        members = MemberAddresses(
            clock, self.node.config.peers, in_thread, Networks(config.member_addresses)
        )
        self.handlers: dict[int, Handler] = {
            **DLedgerRequests(self.node, members, serves_clients=False).table(),
            **requests.handlers(),
        }
        self._listener: IListener | None = None
        self._request_latency = request_latency()
        self._metrics_log = MetricsLog(clock, self.metrics)
        self._place_looks = PeriodicCall(
            clock, "the look at the store", PLACE_LOOK_SECONDS, self.node.look_at_place
        )

    def start(self, server: IRemotingServer) -> int:
        """Listens, takes part, scans; returns the port. Raises `CannotListenError`."""
        listener = server.listener()
        listener.serve(self.handlers)
        listener.observe(self._request_latency.record)
        port = listener.listen()
        self._listener = listener
        self.node.start()
        self._waking_time.start()
        self._liveness.start()
        self._elections.start()
        self._metrics_log.start()
        self._place_looks.start()
        return port

    def stop(self) -> "Deferred[None]":
        """Fires when its connections and files are closed."""
        self._place_looks.stop()
        self._metrics_log.stop()
        self._elections.stop()
        self._liveness.stop()
        self._waking_time.stop()
        listener, self._listener = self._listener, None
        closed = succeed(None) if listener is None else listener.stop(0.5)
        return closed.addCallback(lambda _: self.node.stop())

    def needs_no_administrator(self, request: RemotingCommand, peer: IPeer) -> bool:
        """Returns whether `request`, which is an administrator's otherwise, comes from another
        controller of the group, or from a group's master that ends its own epoch and names no
        successor. True while this controller does not lead: it refuses the request as such."""
        if not self.decider.leads:
            return True
        host = host_of(peer.address)
        if host in {host_of(address) for address in self.node.config.peers.values()}:
            return True
        if request.code != RequestCode.CONTROLLER_ELECT_MASTER:
            return False
        header = request.header(ElectMasterRequestHeader)
        group = self.machine.state.group(header.broker_name)
        if header.broker_id != NO_BROKER or group is None:
            return False
        return self._requests.is_from_master(group, peer)

    def metrics(self) -> Iterator[Metric]:
        """Yields what the controller measures, with stock's labels."""
        self_id = self._config.controller_dledger_self_id
        labels = {"address": self.node.config.peers[self_id], "peer_id": self_id}
        labels["group"] = self._config.controller_dledger_group
        figures = [
            gauge("role", _ROLE_VALUES[self.node.core.role]),
            gauge("dledger_disk_usage", self._store.size, unit="bytes"),
        ]
        for (cluster, broker_set), number in self.live.counts().items():
            of_set = {"cluster": cluster, "broker_set": broker_set}
            figures.append(gauge("active_broker_num", number, of_set))
        own, requests = self._counts.metrics(), self._request_latency.metrics()
        return labelled(chain(figures, own, requests), labels)

    def not_ready(self) -> str:
        """Returns why brokers cannot be served yet; an empty text once they can."""
        leader = self.node.core.leader_id
        return "" if leader else "the controllers have no leader"

    def _is_group(self, name: str) -> bool:
        return self.machine.state.group(name) is not None

    def _registered_at(self, key: ReplicaKey) -> str:
        group = self.machine.state.group(key.name)
        if group is None or group.cluster != key.cluster:
            return ""
        return group.table.address(key.broker_id) or ""

    def _is_registered(self, key: ReplicaKey) -> bool:
        group = self.machine.state.group(key.name)
        return (
            group is not None
            and group.cluster == key.cluster
            and key.broker_id in group.table.replicas
        )
