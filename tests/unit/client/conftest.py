"""A name server and a broker in memory, with clients that talk to them over a network in memory."""

from collections.abc import Mapping

import pytest
from twisted.internet.task import Clock

from rocketmq_tw.client.producer import Producer
from rocketmq_tw.client.pull import PullConsumer
from rocketmq_tw.client.push import PushConsumer
from rocketmq_tw.client.session import Session
from rocketmq_tw.net.interfaces import Handler
from tests.support.memory_broker import MemoryBroker, MemoryNameServer
from tests.support.network import MemoryNetwork

NAMES = "10.0.0.1:9876"
BROKER_A = "10.0.0.2:10911"
BROKER_B = "10.0.0.3:10911"


class World:
    """`broker` has four queues of topic T; `other` joins by `add_other`."""

    names_address = NAMES
    address = BROKER_A
    other_address = BROKER_B

    def __init__(self) -> None:
        self.clock = Clock()
        self.network = MemoryNetwork(self.clock)
        self.names = MemoryNameServer()
        self.broker = MemoryBroker(self.clock)
        self.other = MemoryBroker(self.clock, "broker-b")
        self.network.serve(NAMES, self.names.handlers())
        self._handlers = self.broker.handlers()
        self.network.serve(BROKER_A, self._handlers)
        self.names.add("T", BROKER_A, "broker-a", 4)
        self._clients = 0

    def serve(self, handlers: Mapping[int, Handler]) -> None:
        """The broker answers by these from now on, on open connections too."""
        self._handlers.update(handlers)

    def add_other(self) -> None:
        self.network.serve(BROKER_B, self.other.handlers())
        self.names.add("T", BROKER_B, "broker-b", 4)

    def session(self, name_servers: str = NAMES) -> Session:
        self._clients += 1
        return Session(
            self.clock,
            name_servers,
            remoting=self.network.client(f"10.0.1.{self._clients}"),
            client_id=f"client-{self._clients}",
            now_ms=lambda: 1_700_000_000_000 + int(self.clock.seconds() * 1000),
        )

    def producer(self, name_servers: str = NAMES, **options) -> Producer:
        session = self.session(name_servers)
        return Producer(self.clock, name_servers, "producers", session=session, **options)

    def pull_consumer(self) -> PullConsumer:
        return PullConsumer(self.clock, NAMES, "readers", session=self.session())

    def push_consumer(self, listener, **options) -> PushConsumer:
        consumer = PushConsumer(
            self.clock, NAMES, "workers", listener, session=self.session(), **options
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


@pytest.fixture
def world():
    return World()
