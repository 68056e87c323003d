"""One Spark session and one broker of each kind for most tests; each test has its own topics."""

import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rocketmq_tw.client.message import Message
from rocketmq_tw.wire.bodies.queues import MessageQueue
from tests.support.cluster import OURS, Cluster
from tests.support.jars import STOCK_VERSIONS
from tests.support.spark import patient_client, session
from tests.support.stock import StockBroker, StockNameServer
from tests.support.wait import wait_until

_numbers = itertools.count(1)
#: Pulls as large as a data pipeline wants them, and SQL92; docs/spark.md says why.
SETTINGS = {
    "maxTransferCountOnMessageInMemory": "4096",
    "maxTransferBytesOnMessageInMemory": str(4 * 1024 * 1024),
    "enablePropertyFilter": "true",
}
TIMERS = {"timerWheelEnable": "true"}
#: What ends behind the last of these tests, and not with the process: a session and three clusters
#: that do nothing take a third of a core.
_ends: list[Callable[[], None]] = []


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    if nextitem is None or Path(__file__).parent not in nextitem.path.parents:
        _end()


def _end() -> None:
    while _ends:
        _ends.pop()()


class Topics:
    """A cluster with what tests do to it besides Spark."""

    def __init__(self, cluster: Cluster, prefix: str) -> None:
        self.cluster = cluster
        self._prefix = prefix
        self.client = patient_client(cluster.namesrv, group="test")

    @property
    def name_servers(self) -> str:
        return self.cluster.namesrv

    def name(self) -> str:
        """A topic of its own; the first send creates it with four queues."""
        return f"{self._prefix}-{next(_numbers)}"

    def fill(self, topic: str, bodies: list[str], **fields: Any) -> None:
        """Sends the bodies, 100 in a request; `fields` are the messages' others."""
        for at in range(0, len(bodies), 100):
            part = [Message(topic, body.encode(), **fields) for body in bodies[at : at + 100]]
            sent = self.client.send_batch(part)
        # Stock puts what it has stored into its queues a little later, one after the other.
        self.queues(topic)
        wait_until(
            lambda: self.client.max_offset(sent.queue) > sent.queue_offset, "the last in its queue"
        )

    def queues(self, topic: str) -> list[MessageQueue]:
        """Those of a topic that was sent to; stock tells its name server of a new one beside the
        answer to the send."""
        return wait_until(lambda: self.client.queues(topic), f"the route of {topic}")

    def filled(self, count: int, **fields: Any) -> str:
        """A new topic with the bodies m0 to m(count-1)."""
        topic = self.name()
        self.fill(topic, [f"m{number}" for number in range(count)], **fields)
        return topic

    def reader(self, reader: Any, topic: str, **options: Any) -> Any:
        """`reader` with format and options, not loaded."""
        given = {"nameServers": self.name_servers, "topic": topic, **options}
        return reader.format("rocketmq").options(**given)

    def bodies(self, topic: str) -> list[str]:
        """All bodies of a topic, read without Spark, queue after queue."""
        found = []
        for queue in self.queues(topic):
            offset, end = 0, self.client.max_offset(queue)
            while offset < end:
                pulled = self.client.pull(queue, offset, 1000)
                found += [message.body.decode() for message in pulled.messages]
                offset = pulled.next_offset
        return found


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    made = session(tmp_path_factory.mktemp("spark"))
    _ends.append(made.stop)
    yield made
    _end()


@pytest.fixture(scope="session")
def clusters() -> Iterator[dict[str, Cluster]]:
    """A cluster of each kind, started when first asked for."""
    yield {}
    _end()


def _cluster(clusters: dict[str, Cluster], kind: str, home: Path) -> Cluster:
    if kind not in clusters:
        settings = SETTINGS | TIMERS if kind == STOCK_VERSIONS[-1] else SETTINGS
        cluster = Cluster.of(home / kind, name_servers=[kind], brokers=[kind], settings=settings)
        for server in (*cluster.name_servers, *cluster.brokers):
            if isinstance(server, StockNameServer | StockBroker):
                server.tls_mode = "permissive"
        _ends.append(cluster.close)
        cluster.start()
        clusters[kind] = cluster
    return clusters[kind]


@pytest.fixture(params=[OURS, *STOCK_VERSIONS])
def topics(
    request: pytest.FixtureRequest,
    clusters: dict[str, Cluster],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Topics]:
    """Topics on our servers, then on servers of both versions of stock."""
    home = tmp_path_factory.getbasetemp() / "clusters"
    made = Topics(_cluster(clusters, request.param, home), _prefix(request))
    yield made
    made.client.close()


@pytest.fixture
def ours(
    request: pytest.FixtureRequest,
    clusters: dict[str, Cluster],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Topics]:
    """Topics on our servers alone, for what does not depend on the broker."""
    home = tmp_path_factory.getbasetemp() / "clusters"
    made = Topics(_cluster(clusters, OURS, home), _prefix(request))
    yield made
    made.client.close()


def _prefix(request: pytest.FixtureRequest) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", request.node.name.removeprefix("test_"))[:60].strip("-")
