"""The cases: each drives one subject with the load generator and gives its figures."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from rocketmq_tw.wire.bodies.registration import RegisterBrokerBody, encode_registration
from rocketmq_tw.wire.bodies.topics import TopicConfig, TopicConfigTable
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.namesrv import RegisterBrokerRequestHeader
from tests.support.processes import ServerProcess
from tests.support.remoting import Connection, create_topic
from tools.bench.client import CLASSIC, Generator, LoadClient
from tools.bench.dledger import GroupSubject
from tools.bench.pipeline import pipelined_sends
from tools.bench.replicated import ReplicatedSubject
from tools.bench.statistics import figures
from tools.bench.subjects import CEILING, OURS, STOCK, Subject, cpu_seconds

_LOG_FILE = 1 << 30


@dataclass
class Bench:
    """A started subject, the generator, and how long or how much: `scale` 1 is the full run."""

    subject: Subject
    client: LoadClient
    seconds: int
    scale: float
    #: Counts the topics that cases make, so that each run of a case has one of its own.
    topics: Iterator[int] = field(default_factory=count)

    def load(self, operation: str, **arguments: object) -> dict[str, float]:
        """Runs an operation against the subject; the figures with the broker's CPU time."""
        return self.timed(
            [self.subject.broker],
            lambda: self.client.run(
                operation, namesrv=self.subject.name_server.address, **arguments
            ),
        )

    def timed(
        self, servers: Sequence[ServerProcess], work: Callable[[], dict[str, Any]]
    ) -> dict[str, float]:
        """Runs `work`; the figures with the CPU time that `servers` took for it."""
        before = cpu_seconds(servers)
        result = work()
        return figures(result, cpu_seconds(servers) - before)

    def scaled(self, messages: int) -> int:
        return int(messages * self.scale)

    def new_topic(self, name: str) -> str:
        """A topic that no run had before."""
        return f"{name}-{next(self.topics)}"

    def fill(self, topic: str, messages: int, **arguments: object) -> int:
        """Stores at least so many messages in batches; how many the topic holds then."""
        result = self.client.run(
            "sync",
            namesrv=self.subject.name_server.address,
            topic=topic,
            threads=4,
            batch=32,
            count=messages,
            **(APPLICATION | arguments),
        )
        # One more is sent in front of the measured ones, to learn the route.
        return int(result["count"]) + 1


Measure = Callable[[Bench], dict[str, float]]
#: Messages as applications send them: a key, a tag and three properties beside the unique id.
APPLICATION: dict[str, object] = {"shape": "application"}


@dataclass(frozen=True)
class Case:
    """`settings` other than the defaults, or another `make`, ask for brokers of their own."""

    name: str
    title: str
    measure: Measure
    subjects: tuple[str, ...] = (STOCK, OURS)
    settings: Mapping[str, str] = field(default_factory=dict)
    make: type[Subject] = Subject
    quick: bool = False
    #: Whether load in front of it makes a difference.
    warms: bool = True
    #: The program that makes its load.
    generator: Generator = CLASSIC


def _send(operation: str, **arguments: object) -> Measure:
    """Sends for a time, messages as applications send them unless `shape` is another."""
    return lambda bench: bench.load(
        operation, topic="bench-load", seconds=bench.seconds, **(APPLICATION | arguments)
    )


def _catch_up(bench: Bench) -> dict[str, float]:
    topic = bench.new_topic("bench-catch-up")
    messages = bench.fill(topic, bench.scaled(1_000_000), size=128)
    return bench.load("consume", topic=topic, group=topic, expect=messages, consume_batch=32)


def _rare(**filter_by: str) -> Measure:
    """Pulls the one message of a hundred that matches; each that the broker looks at counts. They
    are looked at again and again, so that a turn is not over at once."""

    def measure(bench: Bench) -> dict[str, float]:
        topic = bench.new_topic("bench-rare")
        bench.fill(topic, bench.scaled(400_000), size=128, tag_every=100)
        return bench.load("pull", topic=topic, group=topic, seconds=bench.seconds, **filter_by)

    return measure


def _far_behind(bench: Bench) -> dict[str, float]:
    topic = bench.new_topic("bench-behind")
    bench.fill(topic, bench.scaled(200_000), size=1024)
    return bench.load("pull", topic=topic, group=topic, max=32, seconds=bench.seconds)


def _pop(bench: Bench) -> dict[str, float]:
    """Eight members pop all and acknowledge each message; the time they wait counts."""
    topic = bench.new_topic("bench-pop")
    return bench.load(
        "pop",
        topic=topic,
        group=topic,
        expect=bench.fill(topic, bench.scaled(200_000), size=128),
        broker="bench",
        address=bench.subject.broker.address,
        threads=8,
    )


def _latency(bench: Bench) -> dict[str, float]:
    topic = bench.new_topic("bench-latency")
    return bench.load("latency", topic=topic, group=topic, rate=1000, seconds=bench.seconds)


def _timers(bench: Bench) -> dict[str, float]:
    """Messages that are due three seconds after they were sent, from sends at full speed to the
    listener; the percentiles are of how late they come."""
    topic = bench.new_topic("bench-timers")
    return bench.load(
        "latency",
        topic=topic,
        group=topic,
        rate=0,
        count=bench.scaled(100_000),
        threads=16,
        delay_ms=3_000,
    )


def _timers_at_rate(bench: Bench) -> dict[str, float]:
    """As `_timers`, at 2,000 messages a second."""
    topic = bench.new_topic("bench-timers-rate")
    return bench.load(
        "latency",
        topic=topic,
        group=topic,
        rate=2_000,
        threads=16,
        seconds=bench.seconds,
        delay_ms=3_000,
    )


def _idle_connections(bench: Bench) -> dict[str, float]:
    host, port = bench.subject.broker.address.rsplit(":", 1)
    idle: list[socket.socket] = []
    try:
        for _ in range(2_000):
            idle.append(socket.create_connection((host, int(port)), 10))
        return _send("sync", threads=16)(bench)
    finally:
        for connection in idle:
            connection.close()


def _many_queues(bench: Bench) -> dict[str, float]:
    topic, queues = "bench-queues", bench.scaled(4_000)
    create_topic(bench.subject.broker.address, topic, queues)
    wait_for_route(bench.subject, topic)
    return bench.load("sync", topic=topic, threads=16, seconds=bench.seconds, **APPLICATION)


def wait_for_route(subject: Subject, topic: str, limit: float = 30) -> None:
    """Returns once the name server leads to the topic; raises `TimeoutError`."""
    deadline = time.monotonic() + limit
    while not subject.name_server.routes(topic, [subject.broker]):
        if time.monotonic() > deadline:
            raise TimeoutError(f"no route to {topic} within {limit:g} s")
        time.sleep(0.05)


def _recovery(bench: Bench) -> dict[str, float]:
    subject = bench.subject
    body = 4096
    bench.fill("bench-recovery", bench.scaled(2 * _LOG_FILE) // body, size=body)
    subject.broker.kill()
    subject.start_broker()
    return {"recovery_seconds": subject.start_seconds}


def _routes(bench: Bench) -> dict[str, float]:
    name_server = bench.subject.name_server
    with _registered_topics(name_server.address, 1_000):
        return bench.timed(
            [name_server],
            lambda: bench.client.run(
                "routes",
                namesrv=name_server.address,
                topics=1_000,
                threads=16,
                seconds=bench.seconds,
            ),
        )


@contextmanager
def _registered_topics(address: str, count: int) -> Iterator[None]:
    """A broker that exists only at the name server, for as long as its connection does."""
    topics = {
        f"bench-route-{number}": TopicConfig(topic_name=f"bench-route-{number}")
        for number in range(count)
    }
    body = encode_registration(
        RegisterBrokerBody(
            topic_config_serialize_wrapper=TopicConfigTable(topic_config_table=topics)
        ),
        compressed=False,
    )
    header = RegisterBrokerRequestHeader(
        broker_name="bench-routes",
        broker_addr="127.0.0.1:9",
        cluster_name="bench",
        ha_server_addr="127.0.0.1:10",
        broker_id=0,
    )
    with Connection(address) as connection:
        request = RemotingCommand.request(RequestCode.REGISTER_BROKER, header, body)
        response = connection.request(request)
        if response.code != ResponseCode.SUCCESS:
            raise RuntimeError(f"the topics cannot be registered: {response}")
        yield


def _pipelined(bench: Bench) -> dict[str, float]:
    address = bench.subject.broker.address
    return bench.timed(
        [bench.subject.broker],
        lambda: pipelined_sends(
            address, "bench-load", connections=4, window=16, seconds=bench.seconds
        ),
    )


_ALL = (STOCK, OURS, CEILING)
_QUICK = frozenset({"sync-16-128", "sync-64-128"})
_SIZES = {128: "128 B", 1024: "1 KiB", 16384: "16 KiB"}

CASES: tuple[Case, ...] = (
    *(
        Case(
            f"sync-{threads}-{size}",
            f"sync send, {threads} threads, {title}",
            _send("sync", threads=threads, size=size),
            _ALL,
            quick=f"sync-{threads}-{size}" in _QUICK,
        )
        for size, title in _SIZES.items()
        for threads in (1, 16, 64)
    ),
    *(
        Case(
            f"bare-{threads}-128",
            f"sync send without keys, tag and properties, {threads} threads, 128 B",
            _send("sync", threads=threads, size=128, shape="bare"),
            _ALL,
            quick=threads == 16,
        )
        for threads in (16, 64)
    ),
    Case("batch", "batches of 32", _send("sync", threads=4, batch=32), _ALL, quick=True),
    Case(
        "bare-batch",
        "batches of 32 without keys, tag and properties",
        _send("sync", threads=4, batch=32, shape="bare"),
        _ALL,
    ),
    Case("oneway", "oneway, 16 threads", _send("oneway", threads=16)),
    Case("async", "async, 256 under way", _send("async"), _ALL),
    Case("pipelined", "native generator: 4 x 16 under way", _pipelined, _ALL),
    Case(
        "transactions",
        "transactional sends, 16 threads",
        _send("sync", threads=16, transactional=1),
    ),
    Case("latency", "send to listener at 1,000/s", _latency),
    Case("catch-up", "push consumer catches up", _catch_up, quick=True),
    Case("tag-filter", "pull where 1 % match", _rare(expression="rare")),
    Case(
        "sql-filter",
        "pull where 1 % match an SQL92 expression",
        _rare(sql="TAGS='rare'"),
        settings={"enablePropertyFilter": "true"},
    ),
    Case("far-behind", "pull from the beginning", _far_behind),
    Case("idle-connections", "16 threads beside 2,000 idle connections", _idle_connections),
    Case("many-queues", "16 threads over 4,000 queues", _many_queues),
    Case("routes", "route look-ups, 1,000 topics", _routes),
    Case(
        "sync-flush",
        "SYNC_FLUSH, 16 threads",
        _send("sync", threads=16),
        settings={"flushDiskType": "SYNC_FLUSH"},
    ),
    Case(
        "replicated",
        "allAckInSyncStateSet, two replicas, 16 threads",
        _send("sync", threads=16),
        settings={"allAckInSyncStateSet": "true"},
        make=ReplicatedSubject,
    ),
    Case(
        "dledger",
        "a DLedger group of three, 16 threads",
        _send("sync", threads=16),
        make=GroupSubject,
    ),
    # Stock pops only with its timer.
    Case("pop", "pop and acknowledge each", _pop, settings={"timerWheelEnable": "true"}),
    Case(
        "timers",
        "timers in and out, 16 threads",
        _timers,
        settings={"timerWheelEnable": "true"},
    ),
    Case(
        "timers-2000",
        "timers at 2,000/s: how late",
        _timers_at_rate,
        settings={"timerWheelEnable": "true"},
    ),
    # Last: it ends the broker.
    Case(
        "recovery",
        "2 GiB log after kill -9",
        _recovery,
        settings={"brokerName": "recovery"},
        warms=False,
    ),
)
