"""A broker's data plane on files in memory and a `Clock`: what sends, stores and reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from rocketmq_tw.broker.assembly.handlers import merge_handlers
from rocketmq_tw.broker.clients.registry import Client, ClientRegistry
from rocketmq_tw.broker.cluster.announcements import Announcements
from rocketmq_tw.broker.delay.delivery import DelayDelivery
from rocketmq_tw.broker.delay.levels import DelayLevels
from rocketmq_tw.broker.delay.offsets import DelayOffsets
from rocketmq_tw.broker.interfaces import IReplicator
from rocketmq_tw.broker.reading.long_polling import LongPolling
from rocketmq_tw.broker.reading.pull import PullRequests
from rocketmq_tw.broker.reading.view import ViewRequests
from rocketmq_tw.broker.tables.groups import GroupTable
from rocketmq_tw.broker.tables.offsets import OffsetTable
from rocketmq_tw.broker.tables.topics import TopicTable
from rocketmq_tw.broker.writing.commit import Commit
from rocketmq_tw.broker.writing.flush import Flusher
from rocketmq_tw.broker.writing.send import SendRequests
from rocketmq_tw.broker.writing.send_back import SendBackRequests
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.files.interface import IFiles
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.message.decode import decode_messages
from rocketmq_tw.message.ids import UniqueIds
from rocketmq_tw.message.model import ReceivedMessage
from rocketmq_tw.message.properties import join_properties
from rocketmq_tw.message.sysflags import PULL_SUBSCRIPTION, PULL_SUSPEND
from rocketmq_tw.store.message_store import MessageStore
from rocketmq_tw.wire.bodies.heartbeat import ConsumerData, SubscriptionData
from rocketmq_tw.wire.bodies.topics import TopicConfig
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.pull import PullMessageRequestHeader
from rocketmq_tw.wire.headers.send import SendMessageRequestHeaderV2
from tests.support.network import FakePeer
from tests.support.state import MemoryStateFile
from tests.support.stores import START_MS, small_config

STORE_HOST = ("127.0.0.1", 10911)


class Threads:
    """Stands for a thread pool: a job runs when the test says so, or at once with `eager`."""

    def __init__(self, *, eager: bool = True) -> None:
        self.eager = eager
        self.waiting: list[tuple[Callable[[], Any], Deferred[Any]]] = []

    def __call__(self, job: Callable[[], Any]) -> Deferred[Any]:
        result: Deferred[Any] = Deferred()
        self.waiting.append((job, result))
        if self.eager:
            self.run()
        return result

    def run(self) -> int:
        """Runs what waits by now; returns how many jobs that were."""
        jobs, self.waiting = self.waiting, []
        for job, result in jobs:
            try:
                value = job()
            except Exception:
                result.errback(Failure())
            else:
                result.callback(value)
        return len(jobs)


class DataPlane:
    """Everything from a request to the log and back, without sockets.

    `delay_file` and `files` outlive one: a second one on the same is the broker started again.
    """

    def __init__(
        self,
        files: IFiles | None = None,
        *,
        clock: Clock | None = None,
        delay_file: MemoryStateFile | None = None,
        threads: Threads | None = None,
        replicator: IReplicator | None = None,
        broker: dict[str, Any] | None = None,
        in_flight_limit: int = 1 << 20,
        master_is_near: Callable[[], bool] = lambda: True,
        **store: Any,
    ) -> None:
        self.files = files or MemoryFiles()
        self.clock = clock or Clock()
        self.threads = threads or Threads()
        self.config = BrokerConfig(broker_name="broker-a", broker_ip1="127.0.0.1", **broker or {})
        store_config = small_config(**{"mapped_file_size_commit_log": 1 << 20} | store)
        self.store_config = store_config
        self.store = MessageStore(store_config, self.files, self.now_ms)
        self.store.load()
        self.topics = TopicTable(self.config, MemoryStateFile(), self.now_ms)
        self.groups = GroupTable(self.config, MemoryStateFile(), self.now_ms)
        self.offsets = OffsetTable(self.config, MemoryStateFile(), self.now_ms)
        self.clients = ClientRegistry(self.config, self.now_ms, self.now_ms)
        self.flusher = Flusher(self.store, store_config, self.clock, self.threads)
        self.commit = Commit(self.store, store_config, self.clock, self.flusher, replicator)
        self.long_polling = LongPolling(self.store, self.config, self.clock, self.now_ms)
        self.levels = DelayLevels(store_config.message_delay_level)
        self.delay_file = delay_file or MemoryStateFile()
        self.delay_offsets = DelayOffsets(self.delay_file, self.now_ms)
        self.delay_offsets.load()
        self.delivery = DelayDelivery(
            self.store,
            store_config,
            self.levels,
            self.delay_offsets,
            self.commit,
            self.clock,
            self.now_ms,
            self.threads,
        )
        self.store.on_arrival(self.long_polling.arrived)
        self.store.on_arrival(self.delivery.arrived)
        self.commit.on_dispatched(self.long_polling.wake_ready)
        self.orderly_groups: set[str] = set()
        self.announcements = Announcements(self.clock)
        self.send_requests = SendRequests(
            self.config,
            store_config,
            self.topics,
            self.groups,
            self.commit,
            self.levels,
            UniqueIds(b"\x7f\0\0\1", 1, 1, self.now_ms),
            self.now_ms,
            STORE_HOST,
            self.announcements,
            consumes_orderly=self.orderly_groups.__contains__,
            in_flight_limit=in_flight_limit,
        )
        self.handlers = merge_handlers(
            self.send_requests,
            PullRequests(
                self.config,
                store_config,
                self.topics,
                self.groups,
                self.offsets,
                self.clients,
                self.store,
                self.long_polling,
                master_is_near=master_is_near,
            ),
            SendBackRequests(
                self.config,
                self.topics,
                self.groups,
                self.store,
                self.commit,
                self.levels,
                STORE_HOST,
                self.announcements,
            ),
            ViewRequests(self.store, store_config),
        )
        self.peer = FakePeer()

    def now_ms(self) -> int:
        return START_MS + round(self.clock.seconds() * 1000)

    def add_topic(self, name: str, **fields: Any) -> None:
        self.topics.update(TopicConfig(topic_name=name, **fields))

    def subscribe(self, group: str, peer: FakePeer, **fields: Any) -> None:
        """A heartbeat of a push consumer, with the `SubscriptionData` of `fields`."""
        data = ConsumerData(
            group_name=group,
            consume_type="CONSUME_PASSIVELY",
            message_model=fields.pop("message_model", "CLUSTERING"),
            subscription_data_set=[SubscriptionData(**fields)],
        )
        self.clients.register_consumer(
            Client(peer, "client", "JAVA", 479), data, notify_changes=False
        )

    def request(
        self, request: RemotingCommand, peer: FakePeer | None = None
    ) -> RemotingCommand | None:
        """What the handler answers by the end of the turn; None where it does not yet."""
        peer = peer or self.peer
        before = len(peer.replies)
        try:
            result = self.handlers[request.code](request, peer)
        except RequestError as error:
            return request.response(error.code, error.remark)
        if isinstance(result, Deferred):
            result.addCallback(peer.reply)
        elif result is not None:
            assert isinstance(result, RemotingCommand)
            return result
        self.clock.advance(0)
        for response in peer.replies[before:]:
            if response.opaque == request.opaque:
                return response
        return None

    def send(
        self,
        body: bytes = b"body",
        *,
        code: int = RequestCode.SEND_MESSAGE_V2,
        properties: dict[str, str] | None = None,
        oneway: bool = False,
        **fields: Any,
    ) -> RemotingCommand | None:
        """Sends; by default to queue 0 of the topic `Topic`, which is made of TBW102."""
        return self.request(
            self.send_request(body, code=code, properties=properties, oneway=oneway, **fields)
        )

    def send_request(
        self,
        body: bytes = b"body",
        *,
        code: int = RequestCode.SEND_MESSAGE_V2,
        properties: dict[str, str] | None = None,
        oneway: bool = False,
        **fields: Any,
    ) -> RemotingCommand:
        header: dict[str, Any] = {
            "producer_group": "P",
            "topic": "Topic",
            "default_topic": "TBW102",
            "default_topic_queue_nums": 4,
            "queue_id": 0,
            "sys_flag": 0,
            "born_timestamp": 5,
            "flag": 0,
            "properties": join_properties(properties or {}).decode(),
        }
        return RemotingCommand.request(
            code, SendMessageRequestHeaderV2(**header | fields), body, oneway=oneway
        )

    def pull_request(
        self,
        offset: int = 0,
        *,
        code: int = RequestCode.PULL_MESSAGE,
        suspend_ms: int | None = None,
        **fields: Any,
    ) -> RemotingCommand:
        """A pull of queue 0 of `Topic` with the expression `*`, held for `suspend_ms`."""
        flag = fields.pop("sys_flag", PULL_SUBSCRIPTION)
        header: dict[str, Any] = {
            "consumer_group": "G",
            "topic": "Topic",
            "queue_id": 0,
            "queue_offset": offset,
            "max_msg_nums": 32,
            "sys_flag": flag | (0 if suspend_ms is None else PULL_SUSPEND),
            "commit_offset": 0,
            "suspend_timeout_millis": suspend_ms or 0,
            "sub_version": 0,
            "subscription": "*",
        }
        return RemotingCommand.request(code, PullMessageRequestHeader(**header | fields))

    def pull(self, offset: int = 0, **fields: Any) -> RemotingCommand | None:
        return self.request(self.pull_request(offset, **fields))

    def consume(self, topic: str = "Topic", queue_id: int = 0) -> list[ReceivedMessage]:
        """Everything that is readable in a queue."""
        messages: list[ReceivedMessage] = []
        offset = self.store.min_queue_offset(topic, queue_id)
        while offset < self.store.max_queue_offset(topic, queue_id):
            read = self.store.read_queue(topic, queue_id, offset, 32, 1 << 20)
            assert read.next_offset > offset, read
            messages += decode_messages(read.data)
            offset = read.next_offset
        return messages


def ok(response: RemotingCommand | None) -> dict[str, str]:
    """The fields of a response that must be a success."""
    assert response is not None, "no answer yet"
    assert response.code == ResponseCode.SUCCESS, response
    return response.ext_fields
