"""The real broker on files in memory, with a clock and a network in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.internet.testing import MemoryReactorClock
from twisted.python.failure import Failure

from rocketmq_tw.broker.assembly.host import Surroundings
from rocketmq_tw.broker.assembly.neighbours import INeighbours, NoNeighbours
from rocketmq_tw.broker.assembly.part import Part
from rocketmq_tw.broker.broker import PARTS, Broker
from rocketmq_tw.broker.clients.locks import RebalanceLock
from rocketmq_tw.broker.clients.part import Clients
from rocketmq_tw.broker.clients.registry import Client, ClientRegistry
from rocketmq_tw.broker.delay.delivery import DelayDelivery
from rocketmq_tw.broker.delay.offsets import DelayOffsets
from rocketmq_tw.broker.delay.part import Delay
from rocketmq_tw.broker.reading.held_pulls import HeldPulls
from rocketmq_tw.broker.reading.part import Reading
from rocketmq_tw.broker.replicas.part import Replicas
from rocketmq_tw.broker.role.state import Role, RoleState
from rocketmq_tw.broker.sending.part import Sending
from rocketmq_tw.broker.stats.part import Stats
from rocketmq_tw.broker.stats.traffic import Traffic
from rocketmq_tw.broker.tables.groups.table import GroupTable
from rocketmq_tw.broker.tables.offsets.table import OffsetTable
from rocketmq_tw.broker.tables.part import Tables
from rocketmq_tw.broker.tables.topics.announcements import Announcements
from rocketmq_tw.broker.tables.topics.table import TopicTable
from rocketmq_tw.broker.timer.part import Timer
from rocketmq_tw.broker.timer.progress import TimerProgress
from rocketmq_tw.broker.writing.commit import Commit
from rocketmq_tw.broker.writing.dispatcher import Dispatcher
from rocketmq_tw.broker.writing.flush import Flusher
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.broker.writing.redirects import Redirects
from rocketmq_tw.client.decoding import decode_messages
from rocketmq_tw.client.message import ReceivedMessage
from rocketmq_tw.config.broker import BrokerConfig
from rocketmq_tw.config.net import NettyClientConfig, NettyServerConfig
from rocketmq_tw.files.interface import IFiles
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.message.properties import join_properties
from rocketmq_tw.net.administrators import ADMINISTRATOR
from rocketmq_tw.net.interfaces import Handler, IRemotingClient
from rocketmq_tw.net.live_config import WriteChanges, only_until_stop
from rocketmq_tw.net.server import Listener, RemotingServer
from rocketmq_tw.store.message_store import MessageStore
from rocketmq_tw.wire.bodies.base import encode_body
from rocketmq_tw.wire.bodies.clients import (
    SubscriptionData,
)
from rocketmq_tw.wire.bodies.queues import MessageQueue
from rocketmq_tw.wire.bodies.topics import TopicConfig
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.base import Header
from rocketmq_tw.wire.headers.pull import PULL_SUBSCRIPTION, PULL_SUSPEND, PullMessageRequestHeader
from rocketmq_tw.wire.headers.send import SendMessageRequestHeaderV2
from tests.support.heartbeats import heartbeat_of, push_consumer
from tests.support.network import FakePeer, MemoryNetwork
from tests.support.stores import START_MS, small_config


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


def fired(deferred: Deferred[Any]) -> Any:
    """What a Deferred has fired with; a failure is raised, and so is not having fired."""
    results: list[Any] = []
    deferred.addBoth(results.append)
    if not results:
        raise AssertionError("it has not fired")
    if isinstance(results[0], Failure):
        results[0].raiseException()
    return results[0]


class BrokerInMemory:
    """A started `Broker`, asked through its handlers or, at `address` of `network`, by clients.

    `files` outlive one: a second one on them is the broker started again. `threads` run their work
    at once unless they were made otherwise.
    """

    def __init__(
        self,
        files: IFiles | None = None,
        *,
        clock: Clock | None = None,
        network: MemoryNetwork | None = None,
        address: str = "127.0.0.1:10911",
        threads: Threads | None = None,
        broker: dict[str, Any] | None = None,
        net: dict[str, Any] | None = None,
        server: RemotingServer | None = None,
        client: IRemotingClient | None = None,
        in_flight_limit: int | None = None,
        started: bool = True,
        neighbours: INeighbours | None = None,
        keep_config: WriteChanges = only_until_stop,
        is_monitored: bool = False,
        kinds: Iterable[type[Part]] = PARTS,
        **store: Any,
    ) -> None:
        self.files = files or MemoryFiles()
        self.clock = clock or MemoryReactorClock()
        self.network = network or MemoryNetwork(self.clock)
        self.threads = threads or Threads()
        self.address = address
        #: By how much somebody has set the time of day.
        self.shift_ms = 0
        host, _, port = address.rpartition(":")
        self.store_config = small_config(**{"mapped_file_size_commit_log": 1 << 20} | store)
        net_config = NettyServerConfig(bind_address=host, listen_port=int(port), **net or {})
        settings: dict[str, Any] = {"broker_name": "broker-a", "broker_ip1": host}
        if self.store_config.broker_role == "SLAVE":
            settings["broker_id"] = 1
        self.broker = Broker(
            Surroundings(
                reactor=self.clock,
                config=BrokerConfig(**settings | (broker or {})),
                store_config=self.store_config,
                net_config=net_config,
                files=self.files,
                client=client or self.network.client(host, clock=self.clock),
                server=server or RemotingServer(self.clock, net_config),
                now_ms=self.now_ms,
                in_thread=self.threads,
                ha_endpoint_for=lambda to: self.network.endpoint(to, host),
                other_configs=[NettyClientConfig()],
                neighbours=neighbours or NoNeighbours(),
                keep_config=keep_config,
                is_monitored=is_monitored,
            ),
            kinds=kinds,
        )
        self.config = self.broker.config
        self.send_checks = self.broker[Sending].checks
        if in_flight_limit is not None:
            self.send_checks.in_flight_limit = in_flight_limit
        self.peer = FakePeer(identity=ADMINISTRATOR)
        if started:
            self.start()

    def start(self) -> None:
        """Starts the broker and lets the network reach it."""
        eager, self.threads.eager = self.threads.eager, True
        try:
            started = self.broker.start()
            for _ in range(1000):
                if started.called:
                    break
                # Some of it lets others in between.
                self.clock.advance(0)
            fired(started)
        finally:
            self.threads.eager = eager
        self.network.listen(self.address, self.listener.factory)
        self.serve_slaves()

    def serve_slaves(self) -> None:
        """Lets the network reach the HA port of a master."""
        master = self.broker[Replicas].master
        if master is not None:
            master.service.doStart()
            self.network.listen(self.broker.addresses.ha, master.service)

    def become(self, state: RoleState) -> None:
        """Leads the broker into another role, while the clock goes on."""
        changed = self.broker.change_role(state)
        if state.role is not Role.MASTER:
            self.network.stop(self.broker.addresses.ha)
        for _ in range(200):
            if changed.called:
                break
            self.clock.advance(0.05)
        fired(changed)
        self.serve_slaves()

    def stop(self) -> None:
        """Stops the broker; its files stay."""
        stopped = self.broker.stop()
        self.network.stop(self.address)
        self.network.stop(self.broker.addresses.ha)
        for _ in range(100):
            if stopped.called:
                break
            self.clock.advance(0.1)
        fired(stopped)

    # The parts' insides

    @property
    def listener(self) -> Listener:
        listener = self.broker.listener
        assert isinstance(listener, Listener)
        return listener

    @property
    def handlers(self) -> Mapping[int, Handler]:
        return self.listener.handlers

    @property
    def store(self) -> MessageStore:
        return self.broker[Writing].store

    @property
    def commit(self) -> Commit:
        return self.broker[Writing].commit

    @property
    def dispatcher(self) -> Dispatcher:
        return self.broker[Writing].dispatcher

    @property
    def flusher(self) -> Flusher:
        return self.broker[Writing].flusher

    @property
    def redirects(self) -> Redirects:
        return self.broker[Writing].redirects

    @property
    def topics(self) -> TopicTable:
        return self.broker[Tables].topics

    @property
    def groups(self) -> GroupTable:
        return self.broker[Tables].groups

    @property
    def offsets(self) -> OffsetTable:
        return self.broker[Tables].offsets

    @property
    def announcements(self) -> Announcements:
        return self.broker[Tables].announcements

    @property
    def clients(self) -> ClientRegistry:
        return self.broker[Clients].registry

    @property
    def locks(self) -> RebalanceLock:
        return self.broker[Clients].locks

    @property
    def traffic(self) -> Traffic:
        return self.broker[Stats].traffic

    @property
    def held_pulls(self) -> HeldPulls:
        return self.broker[Reading].held

    @property
    def delivery(self) -> DelayDelivery:
        work = self.broker[Delay].work
        assert work is not None and work.delivery is not None, "nothing is delivered in this role"
        return work.delivery

    @property
    def delay_offsets(self) -> DelayOffsets:
        return self.broker[Delay].offsets

    @property
    def timer(self) -> TimerProgress:
        return self.broker[Timer].progress

    # Asking

    def ask(
        self,
        code: RequestCode,
        header: Header | None = None,
        body: object = b"",
        peer: FakePeer | None = None,
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
            self.clock.advance(0.001)
            self.store.append(StoredMessage(topic=topic, queue_id=queue_id, body=body))
        self.store.write_pending()
        self.store.fsync()
        self.store.dispatch()

    def heartbeat(
        self,
        client_id: str,
        peer: FakePeer,
        *,
        group: str = "G",
        topics: tuple[str, ...] = ("T",),
        producer: str | None = None,
        **fields: Any,
    ) -> RemotingCommand:
        """A consumer of `group`, and a producer where one is named, says that it is there."""
        consumer = push_consumer(group, *topics)
        data = heartbeat_of(client_id, consumer, producer=producer, **fields)
        response: RemotingCommand = self.ask(RequestCode.HEART_BEAT, body=data, peer=peer)
        return response

    def now_ms(self) -> int:
        return START_MS + round(self.clock.seconds() * 1000) + self.shift_ms

    def add_topic(self, name: str, **fields: Any) -> None:
        self.topics.update(TopicConfig(topic_name=name, **fields))

    def subscribe(self, group: str, peer: FakePeer, **fields: Any) -> None:
        """A heartbeat of a push consumer, with the `SubscriptionData` of `fields`."""
        model = fields.pop("message_model", "CLUSTERING")
        data = push_consumer(group, SubscriptionData(**fields), message_model=model)
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

            def refuse(failure: Failure) -> RemotingCommand:
                failure.trap(RequestError)
                error: Any = failure.value
                return request.response(error.code, error.remark)

            result.addErrback(refuse).addCallback(peer.reply)
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
            messages += messages_of(read.data, topic, queue_id)
            offset = read.next_offset
        return messages


def messages_of(data: bytes, topic: str = "Topic", queue_id: int = 0) -> list[ReceivedMessage]:
    """What a consumer makes of the records of a queue."""
    queue = MessageQueue(topic=topic, broker_name="broker-a", queue_id=queue_id)
    return decode_messages(data, queue)


def ok(response: RemotingCommand | None) -> dict[str, str]:
    """The fields of a response that must be a success."""
    assert response is not None, "no answer yet"
    assert response.code == ResponseCode.SUCCESS, response
    return response.ext_fields
