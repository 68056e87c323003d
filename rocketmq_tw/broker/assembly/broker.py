"""A broker put together: its books, its store, its handlers, its ports and what it does in time.

Nothing is decided here; each part stands in the module of its name.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec
from twisted.internet.defer import Deferred, inlineCallbacks, succeed
from twisted.internet.error import CannotListenError
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger

from rocketmq_tw.broker.assembly.handlers import merge_handlers
from rocketmq_tw.broker.assembly.periodic import PeriodicTasks
from rocketmq_tw.broker.clients.client_requests import ClientRequests
from rocketmq_tw.broker.clients.connection_requests import ConnectionRequests
from rocketmq_tw.broker.clients.lock_requests import LockRequests
from rocketmq_tw.broker.clients.locks import RebalanceLock
from rocketmq_tw.broker.clients.registry import ClientRegistry
from rocketmq_tw.broker.cluster.addresses import announced_host, host_name, resolve
from rocketmq_tw.broker.cluster.announcements import Announcements
from rocketmq_tw.broker.cluster.membership import Membership
from rocketmq_tw.broker.control.admin import AdminRequests
from rocketmq_tw.broker.control.consume_stats import ConsumeStatsRequests
from rocketmq_tw.broker.control.live_config import LiveConfig
from rocketmq_tw.broker.control.resets import ResetRequests
from rocketmq_tw.broker.delay.delivery import DelayDelivery
from rocketmq_tw.broker.delay.levels import DelayLevels
from rocketmq_tw.broker.delay.offsets import DelayOffsets
from rocketmq_tw.broker.reading.long_polling import LongPolling
from rocketmq_tw.broker.reading.pull import PullRequests
from rocketmq_tw.broker.reading.queue_requests import QueueRequests
from rocketmq_tw.broker.reading.view import ViewRequests
from rocketmq_tw.broker.replicas.links import MasterPart, Replicas, SlavePart, check_role
from rocketmq_tw.broker.replicas.master_calls import MasterCalls
from rocketmq_tw.broker.replicas.metadata import SlaveMetadata
from rocketmq_tw.broker.replicas.replica_requests import ReplicaRequests, slave_handlers
from rocketmq_tw.broker.replicas.replicated_log import StoreLog
from rocketmq_tw.broker.stats.statistics import SAMPLE_SECONDS, Statistics
from rocketmq_tw.broker.stats.traffic import Traffic
from rocketmq_tw.broker.tables.group_requests import GroupRequests
from rocketmq_tw.broker.tables.groups import GroupTable
from rocketmq_tw.broker.tables.offset_requests import OffsetRequests
from rocketmq_tw.broker.tables.offsets import OffsetTable
from rocketmq_tw.broker.tables.progress import write_progress
from rocketmq_tw.broker.tables.table_file import ConfigFile
from rocketmq_tw.broker.tables.topic_requests import TopicRequests
from rocketmq_tw.broker.tables.topics import TopicTable
from rocketmq_tw.broker.timer.progress import TimerProgress
from rocketmq_tw.broker.writing.commit import Commit
from rocketmq_tw.broker.writing.flush import Flusher, InThread
from rocketmq_tw.broker.writing.send import SendRequests
from rocketmq_tw.broker.writing.send_back import SendBackRequests
from rocketmq_tw.config.base import Config
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.config.net import NettyServerConfig
from rocketmq_tw.config.store import MessageStoreConfig
from rocketmq_tw.files.interface import IFiles
from rocketmq_tw.message.ids import UniqueIds, pack_ip
from rocketmq_tw.net.address import join_address
from rocketmq_tw.net.interfaces import Handler, IPeer, IRemotingClient
from rocketmq_tw.net.server import RemotingServer
from rocketmq_tw.net.tls import ServerTls
from rocketmq_tw.store.message_store import MessageStore
from rocketmq_tw.wire.command import RemotingCommand

T = TypeVar("T")

#: Seconds between scans for clients without heartbeats, as in stock.
CLIENT_SCAN_SECONDS = 10.0
#: Seconds between a slave's copies of what its master decides, and between its questions to the
#: name servers while it has no master.
COPY_SECONDS = 5.0
SEARCH_SECONDS = 3.0
#: Seconds between tries to register where a name server could not be reached.
RETRY_SECONDS = 3.0
#: The port of stock's VIP channel lies so far below the listening port.
VIP_DISTANCE = 2

log = Logger()


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class Broker:
    """One broker. `start` fires once it serves, while the name servers are being told; `stop` once
    all that it accepted is on disk and its files are closed.

    `net_config.listen_port` 0 lets the kernel choose; `port` and `address` tell after `start`.
    In `self.config` empty names and addresses of `config` are filled in with the host's.
    `other_configs` are shown to administrators beside the three.
    """

    def __init__(
        self,
        reactor: Any,
        config: BrokerConfig,
        store_config: MessageStoreConfig,
        net_config: NettyServerConfig,
        files: IFiles,
        client: IRemotingClient,
        *,
        tls: ServerTls | None = None,
        now_ms: Callable[[], int] = wall_clock_ms,
        in_thread: InThread | None = None,
        other_configs: Sequence[Config] = (),
    ) -> None:
        own_ip = config.broker_ip1 or announced_host(net_config.bind_address)
        config = msgspec.structs.replace(
            config,
            broker_name=config.broker_name or host_name(),
            broker_ip1=own_ip,
            broker_ip2=config.broker_ip2 or own_ip,
        )
        self._reactor = reactor
        self.config = config
        self.store_config = store_config
        self._net_config = net_config
        self._other_configs = other_configs
        self._files = files
        self._now_ms = now_ms
        self._in_thread = in_thread or self._in_thread_pool
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        self._memory_bytes = memory * store_config.memory_ratio // 100
        self.store = MessageStore(store_config, files, now_ms, memory_bytes=memory)
        self.topics = TopicTable(config, self._state_file("topics"), now_ms, self._in_thread)
        self.announcements = Announcements(reactor)
        self.groups = GroupTable(
            config, self._state_file("subscriptionGroup"), now_ms, self._in_thread
        )
        self.offsets = OffsetTable(config, self._state_file("consumerOffset"), now_ms)
        self.clients = ClientRegistry(config, now_ms, self._elapsed_ms)
        self.locks = RebalanceLock(self._elapsed_ms)
        self.statistics = Statistics(now_ms)
        self.traffic = Traffic(now_ms)
        self.long_polling = LongPolling(self.store, config, reactor, self._elapsed_ms)
        self._flusher = Flusher(self.store, store_config, reactor, self._in_thread)
        self.server = RemotingServer(reactor, net_config, tls=tls).listener(
            before_request=[self._catch_up] if store_config.is_slave else []
        )
        self.commit = Commit(
            self.store,
            store_config,
            reactor,
            self._flusher,
            gather=self.server.gather,
            at_turn_end=getattr(reactor, "at_turn_end", None),
        )
        self.levels = DelayLevels(store_config.message_delay_level)
        self.delay_offsets = DelayOffsets(self._state_file("delayOffset"), now_ms)
        self.delivery = DelayDelivery(
            self.store,
            store_config,
            self.levels,
            self.delay_offsets,
            self.commit,
            reactor,
            now_ms,
            self._in_thread,
        )
        self.timer_progress = TimerProgress(files, self.store.paths.config)
        self._client = client
        self.replicas = self._make_replicas()
        self._periodic = PeriodicTasks(reactor)
        self._loaded = False
        self.membership: Membership | None = None
        self.port = 0

    def _make_replicas(self) -> Replicas:
        store, commit = self.store, self.commit
        replicated = StoreLog(store, self.store_config, commit)
        if not self.store_config.is_slave:
            return MasterPart(
                self._reactor,
                self.store_config,
                self._net_config,
                replicated,
                commit,
                self._flusher.on_round,
            )
        calls = MasterCalls(self._client)
        metadata = SlaveMetadata(
            calls,
            store,
            self.topics,
            self.groups,
            self.offsets,
            self.delay_offsets,
            self.timer_progress,
        )
        return SlavePart(
            self._reactor,
            self.store_config,
            replicated,
            commit,
            store,
            self.topics,
            calls,
            metadata,
            self._now_ms,
        )

    def _catch_up(self, request: RemotingCommand, peer: IPeer) -> None:
        """Whoever asks a slave sees all that it has acknowledged."""
        self.commit.dispatch_now()

    @property
    def address(self) -> str:
        """What clients are told."""
        return join_address(self.config.broker_ip1, self.port)

    @inlineCallbacks
    def start(self) -> Any:
        """Fails with what the configuration, the store or a port refuses; then `stop` cleans up."""
        check_role(self.config, self.store_config)
        recovered = yield self._in_thread(self.store.load)
        for note in recovered.notes:
            log.warn("recovery: {note}", note=note)
        self._loaded = True
        host = yield self._in_thread(lambda: resolve(self.config.broker_ip1))
        for table in (
            self.topics,
            self.groups,
            self.offsets,
            self.delay_offsets,
            self.timer_progress,
        ):
            table.load()
        self.store.on_arrival(self.statistics.arrived)
        self.store.on_arrival(self.traffic.arrived)
        self.store.on_arrival(self.long_polling.arrived)
        self.store.on_arrival(self.delivery.arrived)
        self.commit.on_dispatched(self.long_polling.wake_ready)
        self.port = self.server.listen()
        self._listen_vip()
        ha_address = join_address(self.config.broker_ip2, self.replicas.listen(self.port))
        self.membership = Membership(
            self.config,
            self.topics,
            self._client,
            self.address,
            ha_address,
            self.announcements,
        )
        self.membership.on_master(self.replicas.learned)
        handlers = self._handlers(self.membership, host)
        if self.store_config.is_slave:
            handlers = slave_handlers(handlers)
        for code, handler in handlers.items():
            self.server.register(code, handler)
        self._flusher.start()
        if not self.store_config.is_slave:
            self.delivery.start()
        self.long_polling.start()
        self._schedule(self.membership)
        log.info(
            "broker {name} serves at {address}", name=self.config.broker_name, address=self.address
        )
        # Nobody waits for it: a name server that hangs takes its time.
        self.membership.register(force=True)

    @inlineCallbacks
    def stop(self) -> Any:
        """In the order that loses nothing: no new requests, answers to the held ones, the log
        durable, the books written, the registration taken back, the store closed.

        What fails is logged and keeps nothing else from its turn; then `stop` fails with the first.
        """
        periodic_stopped = self._periodic.stop()
        served = self.server.stop()
        self.long_polling.stop()
        steps: list[tuple[str, Callable[[], Any]]] = [("closing connections", lambda: served)]
        if self._loaded:
            # A slave takes no more before its log is flushed, a master gives away all that was.
            replication = ("ending replication", self.replicas.stop)
            is_slave = self.store_config.is_slave
            steps = [
                *([replication] if is_slave else []),
                ("ending deliveries", self.delivery.stop),
                ("flushing the log", self.commit.stop),
                *([] if is_slave else [replication]),
                ("answering held requests", self.long_polling.resume_all),
                *steps,
                ("ending periodic tasks", lambda: periodic_stopped),
                ("writing topics", self.topics.when_kept),
                ("writing groups", self.groups.when_kept),
                ("writing offsets", self._write_offsets),
                ("writing the timer progress", self._write_timer_progress),
                ("unregistering", self._leave),
                ("closing the store", lambda: self._in_thread(self.store.close)),
            ]
        steps.append(("closing the client", self._client.close))
        failures = []
        for name, step in steps:
            try:
                yield step()
            except Exception as error:
                log.failure("{name} failed while stopping", name=name)
                failures.append(error)
        if failures:
            raise failures[0]

    def _leave(self) -> Deferred[None]:
        return succeed(None) if self.membership is None else self.membership.leave()

    def _handlers(self, membership: Membership, host: str) -> dict[int, Handler]:
        config, store = self.config, self.store
        topics, groups, offsets, clients = self.topics, self.groups, self.offsets, self.clients
        unique_ids = UniqueIds(pack_ip(host), os.getpid(), random.getrandbits(32), self._now_ms)
        store_host = (host, self.port)
        return merge_handlers(
            SendRequests(
                config,
                self.store_config,
                topics,
                groups,
                self.commit,
                self.levels,
                unique_ids,
                self._now_ms,
                store_host,
                self.announcements,
                consumes_orderly=self.locks.holds_any,
            ),
            SendBackRequests(
                config,
                topics,
                groups,
                store,
                self.commit,
                self.levels,
                store_host,
                self.announcements,
            ),
            ViewRequests(store, self.store_config),
            QueueRequests(clients, store),
            PullRequests(
                config,
                self.store_config,
                topics,
                groups,
                offsets,
                clients,
                store,
                self.long_polling,
                self._pulled,
                master_is_near=self.replicas.master_is_near,
            ),
            ReplicaRequests(self.replicas.runtime_info, self.timer_progress),
            ClientRequests(config, clients, groups, topics),
            OffsetRequests(offsets, self.delay_offsets, topics, groups, store, self._memory_bytes),
            LockRequests(self.locks),
            TopicRequests(
                config, topics, offsets, clients, store, self.announcements, self.traffic
            ),
            GroupRequests(groups, offsets),
            ConnectionRequests(config, clients, topics, groups, store),
            ConsumeStatsRequests(
                config, topics, groups, offsets, clients, store, self.traffic, self._now_ms
            ),
            ResetRequests(config, topics, groups, offsets, clients, store),
            AdminRequests(
                config,
                LiveConfig(config, self.store_config, self._net_config, *self._other_configs),
                store,
                self.statistics,
                self.traffic,
                topics,
                self._now_ms,
                lambda: self._files.usage(store.paths.root),
                lambda: self._permission_changed(membership),
            ),
        )

    def _schedule(self, membership: Membership) -> None:
        config, store_config, add = self.config, self.store_config, self._periodic.add
        period = config.register_name_server_period / 1000
        add("the registration", period, membership.register, must_end=False)
        add("registering again", RETRY_SECONDS, membership.retry, must_end=False)
        add("writing offsets", config.flush_consumer_offset_interval / 1000, self._write_offsets)
        add("the scan for silent clients", CLIENT_SCAN_SECONDS, self.clients.expire)
        add("the scan for expired locks", CLIENT_SCAN_SECONDS, self.locks.forget_expired)
        add("counting", SAMPLE_SECONDS, self._sample)
        add(
            "the retention",
            store_config.clean_resource_interval / 1000,
            lambda: self.store.clean(self._now_ms()),
        )
        if store_config.is_slave:
            add("copying from the master", COPY_SECONDS, self.replicas.copy)
            interval = store_config.flush_delay_offset_interval / 1000
            add("writing the delay progress", interval, self.delivery.persist)
            add("writing the timer progress", interval, self._write_timer_progress)
            add("looking for the master", SEARCH_SECONDS, self._search_master, must_end=False)
        if config.enable_slave_acting_master:
            interval = config.broker_heartbeat_interval / 1000
            add("the heartbeat", interval, membership.heartbeat, must_end=False)
        self._periodic.start()

    def _search_master(self) -> Deferred[None]:
        """Name servers tell who is master only when they are told of a broker."""
        if self.membership is None or self.replicas.master_is_near():
            return succeed(None)
        return self.membership.register(force=True)

    def _listen_vip(self) -> None:
        """A port of the kernel's choice may have a neighbour; a configured one must not."""
        try:
            self.server.listen(self.port - VIP_DISTANCE)
        except CannotListenError as error:
            if self._net_config.listen_port:
                raise
            log.info("no VIP channel: {why}", why=error)

    def _permission_changed(self, membership: Membership) -> None:
        self.topics.touch()
        membership.register(force=True)

    def _sample(self) -> None:
        self.statistics.sample()
        self.traffic.look()

    def _pulled(self, topic: str, group: str, messages: int) -> None:
        self.statistics.count_pulled(messages)
        self.traffic.pulled(topic, group, messages)

    def _write_offsets(self) -> Deferred[Any]:
        return write_progress(self.offsets, self.commit, self._in_thread)

    def _write_timer_progress(self) -> Deferred[Any]:
        return write_progress(self.timer_progress, self.commit, self._in_thread)

    def _elapsed_ms(self) -> int:
        """For what only lasts: setting the system's clock must not stretch it."""
        return int(self._reactor.seconds() * 1000)

    def _in_thread_pool(self, function: Callable[[], T]) -> Deferred[T]:
        return deferToThreadPool(self._reactor, self._reactor.getThreadPool(), function)

    def _state_file(self, name: str) -> ConfigFile:
        return ConfigFile(self._files, f"{self.store.paths.config}/{name}.json")
