"""A name server and brokers, real ones on files in memory, and clients that talk to them over a
network in memory."""

from collections.abc import Callable
from typing import Any

import pytest
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.testing import MemoryReactorClock
from zope.interface import implementer

from rocketmq_tw.broker.clients.registry import Client
from rocketmq_tw.client.producer import Producer
from rocketmq_tw.client.pull import PullConsumer
from rocketmq_tw.client.push import PushConsumer
from rocketmq_tw.client.session import Session
from rocketmq_tw.client.settings import ConsumerSettings, ProducerSettings
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.net.client import RemotingClient
from rocketmq_tw.net.interfaces import Handler
from rocketmq_tw.wire.bodies.topics import TopicConfig
from rocketmq_tw.wire.command import RemotingCommand
from tests.support.broker import BrokerInMemory
from tests.support.name_server import NameServerInMemory
from tests.support.network import MemoryNetwork
from tests.support.stores import START_MS, queues_of

NAMES = "10.0.0.1:9876"
BROKER_A = "10.0.0.2:10911"
BROKER_B = "10.0.0.3:10911"


@implementer(IReactorTime)
class ClientClock:
    """The clock of clients, which tells what of them is still to be called."""

    def __init__(self, clock: MemoryReactorClock) -> None:
        self._clock = clock
        self._calls: list[IDelayedCall] = []
        self.seconds = clock.seconds

    def callLater(
        self, delay: float, callable: Callable[..., Any], *args: object, **kwargs: object
    ) -> IDelayedCall:
        call: IDelayedCall = self._clock.callLater(delay, callable, *args, **kwargs)
        self._calls.append(call)
        return call

    def getDelayedCalls(self) -> list[IDelayedCall]:
        return [call for call in self._calls if call.active()]


class World:
    """`broker` has four queues of topic T; `other` joins by `add_other`. Neither makes topics that
    a producer names."""

    other: BrokerInMemory

    names_address = NAMES
    address = BROKER_A
    other_address = BROKER_B

    def __init__(self) -> None:
        self.clock = MemoryReactorClock()
        self.client_clock = ClientClock(self.clock)
        self.network = MemoryNetwork(self.clock)
        self.names = NameServerInMemory(self.clock)
        self.network.serve(NAMES, self.names.handlers)
        self.broker = self._start("broker-a", BROKER_A)
        self.add_topic("T", 4)
        self._clients = 0

    def add_topic(self, name: str, queues: int, perm: int = 6) -> None:
        """`broker` has the topic from now on, and the name server knows."""
        self._add_topic(self.broker, name, queues, perm)

    def add_other(self) -> None:
        self.other = self._start("broker-b", BROKER_B)
        self._add_topic(self.other, "T", 4, 6)

    def answer(self, code: int, handler: Handler) -> Handler:
        """`broker` answers requests of that code by `handler` from now on, on open connections
        too; returns what it answered by before."""
        before = self.broker.listener.handlers[code]
        self.broker.listener.register(code, handler)
        return before

    def record(self, code: int) -> list[RemotingCommand]:
        """The requests of that code that `broker` gets from now on."""
        requests: list[RemotingCommand] = []

        def keep(request, peer):
            requests.append(request)
            return before(request, peer)

        before = self.answer(code, keep)
        return requests

    def put(self, message: StoredMessage) -> None:
        """Stores a message as it is, and answers the pulls that wait for it."""
        self.broker.commit.append(message, lambda code, appended: None)
        self.clock.advance(0)

    def stored(self, topic: str) -> list[StoredMessage]:
        """All that `broker` has of a topic, in the order of arrival."""
        store = self.broker.store
        units = [
            unit
            for queue_id in queues_of(store).get(topic, ())
            for unit in store.queue_units(topic, queue_id, 0, 1 << 20)
        ]
        messages = [store.message_at(position) for position in sorted(u.position for u in units)]
        return [message for message in messages if message is not None]

    def member(self, group: str, client_id: str = "client-1") -> Client:
        """A consumer that `broker` knows."""
        found = self.broker.clients.consumer_group(group)
        client = None if found is None else found.find(client_id)
        assert client is not None, f"{client_id} is not in {group}"
        return client

    def members(self, group: str) -> list[str]:
        """The client ids of a group's consumers."""
        found = self.broker.clients.consumer_group(group)
        return [] if found is None else found.client_ids()

    def session(self, name_servers: str = NAMES) -> Session:
        self._clients += 1
        host = f"10.0.1.{self._clients}"
        remoting = RemotingClient(
            self.client_clock,
            endpoint_for=lambda address: self.network.endpoint(address, host),
        )
        return Session(
            self.client_clock,
            name_servers,
            remoting=remoting,
            client_id=f"client-{self._clients}",
            now_ms=lambda: START_MS + int(self.clock.seconds() * 1000),
        )

    def producer(self, name_servers: str = NAMES, **options) -> Producer:
        session = self.session(name_servers)
        settings = ProducerSettings(**options)
        return Producer(
            self.client_clock, name_servers, "producers", session=session, settings=settings
        )

    def pull_consumer(self, group: str = "readers") -> PullConsumer:
        return PullConsumer(self.client_clock, NAMES, group, session=self.session())

    def push_consumer(self, listener, **options) -> PushConsumer:
        consumer = PushConsumer(
            self.client_clock,
            NAMES,
            "workers",
            listener,
            session=self.session(),
            settings=ConsumerSettings(**options),
        )
        consumer.subscribe("T")
        return consumer

    def run(self, deferred):
        """The Deferred's result once all messages of this moment are delivered; raises its
        failure."""
        outcome = []
        deferred.addBoth(outcome.append)
        self.clock.advance(0)
        assert outcome, "it has not fired"
        if hasattr(outcome[0], "raiseException"):
            outcome[0].raiseException()
        return outcome[0]

    def wait(self, seconds: float) -> None:
        """Time goes on in small steps."""
        for _ in range(int(seconds * 10)):
            self.clock.advance(0.1)

    def _start(self, name: str, address: str) -> BrokerInMemory:
        return BrokerInMemory(
            clock=self.clock,
            network=self.network,
            address=address,
            broker={
                "broker_name": name,
                "namesrv_addr": NAMES,
                "auto_create_topic_enable": False,
            },
            max_message_size=4 * 1024 * 1024,
            mapped_file_size_consume_queue=20_000,
        )

    def _add_topic(self, broker: BrokerInMemory, name: str, queues: int, perm: int) -> None:
        config = TopicConfig(
            topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm
        )
        broker.topics.update(config)
        self.clock.advance(0)


@pytest.fixture
def world():
    return World()
