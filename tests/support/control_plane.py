"""A broker's control plane on a store in memory: the requests about topics, groups, offsets,
clients and the broker itself, without sockets."""

from __future__ import annotations

from typing import Any

from twisted.internet.task import Clock

from rocketmq_tw.broker.assembly.handlers import merge_handlers
from rocketmq_tw.broker.clients.client_requests import ClientRequests
from rocketmq_tw.broker.clients.connection_requests import ConnectionRequests
from rocketmq_tw.broker.clients.lock_requests import LockRequests
from rocketmq_tw.broker.clients.locks import RebalanceLock
from rocketmq_tw.broker.clients.registry import ClientRegistry
from rocketmq_tw.broker.cluster.announcements import Announcements
from rocketmq_tw.broker.control.admin import AdminRequests
from rocketmq_tw.broker.control.consume_stats import ConsumeStatsRequests
from rocketmq_tw.broker.control.live_config import LiveConfig
from rocketmq_tw.broker.control.resets import ResetRequests
from rocketmq_tw.broker.delay.offsets import DelayOffsets
from rocketmq_tw.broker.reading.queue_requests import QueueRequests
from rocketmq_tw.broker.stats.statistics import Statistics
from rocketmq_tw.broker.stats.traffic import Traffic
from rocketmq_tw.broker.tables.group_requests import GroupRequests
from rocketmq_tw.broker.tables.groups import GroupTable
from rocketmq_tw.broker.tables.offset_requests import OffsetRequests
from rocketmq_tw.broker.tables.offsets import OffsetTable
from rocketmq_tw.broker.tables.table_file import at_once
from rocketmq_tw.broker.tables.topic_requests import TopicRequests
from rocketmq_tw.broker.tables.topics import TopicTable
from rocketmq_tw.broker.writing.flush import InThread
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.config.net import NettyClientConfig, NettyServerConfig
from rocketmq_tw.files.interface import DiskUsage
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.net.interfaces import IPeer
from rocketmq_tw.store.message_store import MessageStore
from rocketmq_tw.wire.bodies.base import encode_body
from rocketmq_tw.wire.bodies.heartbeat import (
    ConsumerData,
    HeartbeatData,
    ProducerData,
    SubscriptionData,
)
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.base import Header
from tests.support.network import FakePeer
from tests.support.state import MemoryStateFile
from tests.support.stores import ManualClock, small_config


class ControlPlane:
    """`permission_changes` counts what would be announced to the name servers."""

    def __init__(
        self, *, memory_bytes: int = 1 << 20, in_thread: InThread = at_once, **broker: Any
    ) -> None:
        self.now_ms = ManualClock()
        self.config = BrokerConfig(broker_name="broker-a", **broker)
        self.store_config = small_config(mapped_file_size_commit_log=1 << 20)
        self.store = MessageStore(self.store_config, MemoryFiles(), self.now_ms)
        self.store.load()
        self.topics_file, self.groups_file = MemoryStateFile(), MemoryStateFile()
        self.topics = TopicTable(self.config, self.topics_file, self.now_ms, in_thread)
        self.groups = GroupTable(self.config, self.groups_file, self.now_ms, in_thread)
        self.offsets = OffsetTable(self.config, MemoryStateFile(), self.now_ms)
        self.delay_offsets = DelayOffsets(MemoryStateFile(), self.now_ms)
        self.clients = ClientRegistry(self.config, self.now_ms, self.now_ms)
        self.locks = RebalanceLock(self.now_ms)
        self.statistics = Statistics(self.now_ms)
        self.traffic = Traffic(self.now_ms)
        self.live_config = LiveConfig(
            self.config, self.store_config, NettyServerConfig(), NettyClientConfig()
        )
        self.permission_changes = 0
        config, store, topics, groups = self.config, self.store, self.topics, self.groups
        offsets, clients = self.offsets, self.clients
        self.handlers = merge_handlers(
            ClientRequests(config, clients, groups, topics),
            OffsetRequests(offsets, self.delay_offsets, topics, groups, store, memory_bytes),
            LockRequests(self.locks),
            TopicRequests(
                config, topics, offsets, clients, store, Announcements(Clock()), self.traffic
            ),
            GroupRequests(groups, offsets),
            QueueRequests(clients, store),
            ConnectionRequests(config, clients, topics, groups, store),
            ConsumeStatsRequests(
                config, topics, groups, offsets, clients, store, self.traffic, self.now_ms
            ),
            ResetRequests(config, topics, groups, offsets, clients, store),
            AdminRequests(
                config,
                self.live_config,
                store,
                self.statistics,
                self.traffic,
                topics,
                self.now_ms,
                lambda: DiskUsage(total=1000, used=250),
                self._permission_changed,
            ),
        )
        self.peer = FakePeer()

    def ask(
        self,
        code: RequestCode,
        header: Header | None = None,
        body: object = b"",
        peer: IPeer | None = None,
    ) -> Any:
        """The handler's result, once it is there; a body that is no bytes is encoded. Raises
        `RequestError`."""
        data = body if isinstance(body, bytes) else encode_body(body)
        request = RemotingCommand.request(code, header, data)
        result = self.handlers[code](request, peer or self.peer)
        answer = getattr(result, "result", None)
        return answer if isinstance(answer, RemotingCommand) else result

    def put(self, topic: str, *bodies: bytes, queue_id: int = 0) -> None:
        """Stores messages, one millisecond after the other."""
        for body in bodies:
            self.now_ms.now_ms += 1
            self.store.append(StoredMessage(topic=topic, queue_id=queue_id, body=body))
        self.store.write_pending()
        self.store.fsync()
        self.store.dispatch()

    def heartbeat(
        self,
        client_id: str,
        peer: IPeer,
        *,
        group: str = "G",
        topics: tuple[str, ...] = ("T",),
        producer: str | None = None,
        **fields: Any,
    ) -> RemotingCommand:
        """A consumer of `group`, and a producer where one is named, says that it is there."""
        data = HeartbeatData(
            client_id=client_id,
            producer_data_set=[] if producer is None else [ProducerData(group_name=producer)],
            consumer_data_set=[
                ConsumerData(
                    group_name=group,
                    consume_type="CONSUME_PASSIVELY",
                    message_model="CLUSTERING",
                    subscription_data_set=[
                        SubscriptionData(topic=topic, sub_string="*") for topic in topics
                    ],
                )
            ],
            **fields,
        )
        response: RemotingCommand = self.ask(RequestCode.HEART_BEAT, body=data, peer=peer)
        return response

    def _permission_changed(self) -> None:
        self.permission_changes += 1
