"""A proxy: its services put together, before whatever cluster it is given."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

from twisted.internet.defer import Deferred, gatherResults

from rocketmq_tw.broker.filters.compile_budget import CompileBudget
from rocketmq_tw.config.proxy import ProxyConfig
from rocketmq_tw.config.values import split_named_ports
from rocketmq_tw.metrics.instruments import Metric, gauge
from rocketmq_tw.net.address import host_address, split_address
from rocketmq_tw.net.interfaces import Handler
from rocketmq_tw.proxy.brokers import Endpoint, IBrokers
from rocketmq_tw.proxy.clients import ProxyClients
from rocketmq_tw.proxy.grpc.interfaces import Method
from rocketmq_tw.proxy.heartbeat_sync.records import ProxyIdentity
from rocketmq_tw.proxy.heartbeat_sync.sync import HeartbeatSync
from rocketmq_tw.proxy.messaging.acknowledging import Acknowledging
from rocketmq_tw.proxy.messaging.asked_clients import AskedClients
from rocketmq_tw.proxy.messaging.broker_times import BrokerTimes
from rocketmq_tw.proxy.messaging.checks import TopicTypes
from rocketmq_tw.proxy.messaging.claims import Claims
from rocketmq_tw.proxy.messaging.dead_letters import DeadLetters
from rocketmq_tw.proxy.messaging.delivery import Delivery
from rocketmq_tw.proxy.messaging.expressions import Expressions
from rocketmq_tw.proxy.messaging.heartbeats import ClientHeartbeats
from rocketmq_tw.proxy.messaging.invisible import InvisibleDurations
from rocketmq_tw.proxy.messaging.offsets import OffsetCalls
from rocketmq_tw.proxy.messaging.orphans import OrphanQuestions
from rocketmq_tw.proxy.messaging.outgoing import OutgoingMessages
from rocketmq_tw.proxy.messaging.polls import Polls
from rocketmq_tw.proxy.messaging.popped import PopClient
from rocketmq_tw.proxy.messaging.pulling import Pulling
from rocketmq_tw.proxy.messaging.recalls import Recalls
from rocketmq_tw.proxy.messaging.receive_requests import ReceiveRequests
from rocketmq_tw.proxy.messaging.receiving import Receiving
from rocketmq_tw.proxy.messaging.renewal import Renewal
from rocketmq_tw.proxy.messaging.routes import RouteQueries
from rocketmq_tw.proxy.messaging.sends import Sends
from rocketmq_tw.proxy.messaging.telemetry import Telemetry
from rocketmq_tw.proxy.messaging.transactions import HalfPlaces, TransactionDecisions
from rocketmq_tw.proxy.messaging.unpacking import Unpacking
from rocketmq_tw.proxy.metadata import Metadata
from rocketmq_tw.proxy.registration import ClientRegistration
from rocketmq_tw.proxy.remoting.broker_ports import BrokerPorts
from rocketmq_tw.proxy.remoting.pops import UndeliveredPops
from rocketmq_tw.proxy.remoting.requests import ClassicRequests
from rocketmq_tw.runtime.clock import wall_clock_ms
from rocketmq_tw.runtime.slices import Slices
from rocketmq_tw.runtime.standstills import Standstills
from rocketmq_tw.runtime.threads import InThread


class Proxy:
    """Answers what clients of a proxy ask, by gRPC (`methods`) and by remoting (`handlers`)."""

    def __init__(
        self,
        reactor: Any,
        config: ProxyConfig,
        brokers: IBrokers,
        in_thread: InThread,
        now_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        self._config = config
        metadata = Metadata(reactor, brokers, config)
        halves = HalfPlaces(reactor, config.transaction_data_expire_millis / 1000)
        transactions = TransactionDecisions(reactor, brokers, halves)
        unpacking = Unpacking(config, in_thread)
        orphans = OrphanQuestions(brokers, halves, unpacking)
        asked = AskedClients(reactor, orphans.recover, unpacking, config)
        self.clients = ProxyClients(
            reactor.seconds, asked.hand_on, lambda: config.channel_expired_timeout / 1000
        )
        self._heartbeat_sync = _heartbeat_sync(reactor, brokers, config, now_ms)
        self._registration = ClientRegistration(
            reactor, brokers, self.clients, Slices(reactor), self._heartbeat_sync.telling, now_ms
        )
        self._standstills = Standstills(reactor)
        times = BrokerTimes(reactor, self._standstills.since)
        popped = PopClient(brokers, times)
        renewal = self._renewal = Renewal(reactor, popped, self.clients, metadata, config)
        claims = Claims(renewal, times)
        types = TopicTypes(metadata, config)
        expressions = Expressions(CompileBudget(reactor))
        receives = ReceiveRequests(reactor, renewal, self.clients, metadata, expressions, config)
        delivery = Delivery(reactor, self.clients, popped, renewal, unpacking, times, now_ms)
        polls = Polls(reactor, brokers, popped, times, self.clients, config, delivery.bring_back)
        outgoing = OutgoingMessages(config, now_ms, in_thread)
        services = (
            Telemetry(config, self.clients, metadata, asked, expressions, reactor),
            ClientHeartbeats(self.clients),
            RouteQueries(brokers, metadata, config),
            Sends(reactor, brokers, types, outgoing),
            transactions,
            Recalls(reactor, brokers, types),
            Receiving(reactor, brokers, receives, polls, delivery),
            Acknowledging(reactor, popped, claims, self.clients, config),
            InvisibleDurations(claims, config),
            DeadLetters(reactor, self.clients, popped, claims),
            Pulling(brokers, self.clients, unpacking, expressions, reactor, config),
            OffsetCalls(brokers, self.clients),
        )
        #: Path of a gRPC method -> the method.
        self.methods: dict[str, Method] = {}
        for service in services:
            self.methods.update(service.methods())
        typed = metadata if config.enable_topic_message_type_check else None
        ports = BrokerPorts(split_named_ports(config.remoting_broker_ports))
        self._classic = ClassicRequests(
            brokers,
            reactor,
            self._heartbeat_sync,
            UndeliveredPops(renewal, config),
            _advertised(config),
            typed,
            ports,
        )
        #: Request code -> what answers classic clients.
        self.handlers: dict[int, Handler] = self._classic.handlers()

    def start(self) -> None:
        """Registers clients with brokers from now on."""
        self._standstills.start()
        self._heartbeat_sync.start()
        self._registration.start()
        self._classic.start()

    def stop(self, drain: Callable[[], Deferred[None]]) -> Deferred[None]:
        """Lets calls end by `drain`, which fires when clients can ask no more; then messages go
        back that they have in hand. Fires when brokers have been told."""
        # Not before: an acknowledgement of a message that goes back would come to nothing.
        drained = drain()
        self._registration.stop()
        self._classic.stop()
        self._standstills.stop()
        return drained.addCallback(
            lambda _: gatherResults([self._renewal.stop(), self._heartbeat_sync.stop()])
        ).addCallback(lambda _: None)

    def metrics(self) -> Iterable[Metric]:
        """Yields the proxy's figures."""
        yield gauge("rocketmq_proxy_up", 1)
        yield gauge("rocketmq_proxy_renewed_messages", len(self._renewal))
        yield gauge("rocketmq_proxy_clients", len(self.clients), {"protocol_type": "grpc"})
        classic = len(self._classic.clients)
        yield gauge("rocketmq_proxy_clients", classic, {"protocol_type": "remoting"})
        yield gauge("rocketmq_proxy_consumers_elsewhere", len(self._heartbeat_sync.members))


def _advertised(config: ProxyConfig) -> Endpoint | None:
    """Returns what routes tell classic clients; None: where the client asked."""
    if config.remoting_access_addr:
        return Endpoint(config.remoting_access_addr, config.remoting_listen_port)
    if config.advertised_address:
        return Endpoint(*split_address(config.advertised_address))
    return None


def _heartbeat_sync(
    reactor: Any, brokers: IBrokers, config: ProxyConfig, now_ms: Callable[[], int]
) -> HeartbeatSync:
    identity = ProxyIdentity(
        config.local_serve_addr or host_address(),
        config.remoting_listen_port,
        config.grpc_server_port,
        os.getpid() if config.share_ports else None,
    )
    return HeartbeatSync(
        reactor,
        brokers,
        identity,
        config.heartbeat_syncer_topic_name,
        config.heartbeat_syncer_topic_cluster_name or config.rocket_mq_cluster_name,
        lambda: config.channel_expired_timeout / 1000,
        now_ms,
    )
