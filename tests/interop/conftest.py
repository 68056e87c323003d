"""One JVM for each client version and one cluster for most tests, shared by the whole run.

Tests keep apart by topics and groups of their own (`names`).
"""

import itertools
import re
from collections.abc import Iterator

import pytest

from tests.support.cluster import Cluster
from tests.support.jars import STOCK_VERSIONS
from tests.support.java_client import JavaClients, Producer, PullConsumer

_numbers = itertools.count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "/interop/" in item.nodeid:
            item.add_marker(pytest.mark.interop)


class Names:
    """Topic and group names that no other test uses."""

    def __init__(self, test: str) -> None:
        self._test = re.sub(r"[^A-Za-z0-9]+", "_", test).strip("_")[:60]

    def new(self, kind: str) -> str:
        return f"{kind}-{self._test}-{next(_numbers)}"

    @property
    def topic(self) -> str:
        return self.new("t")

    @property
    def group(self) -> str:
        return self.new("g")


@pytest.fixture
def names(request: pytest.FixtureRequest) -> Names:
    return Names(request.node.name.removeprefix("test_"))


@pytest.fixture(scope="session")
def jvms(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, JavaClients]]:
    """Both versions' clients, each in a JVM."""
    home = tmp_path_factory.mktemp("jvms")
    started = {version: JavaClients(version, home / version) for version in STOCK_VERSIONS}
    yield started
    for java in started.values():
        java.close()


@pytest.fixture(params=STOCK_VERSIONS)
def java(request: pytest.FixtureRequest, jvms: dict[str, JavaClients]) -> JavaClients:
    """The stock clients of one version after the other."""
    return jvms[request.param]


@pytest.fixture(scope="session")
def cluster(servers: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A name server and a broker under test; no test stops them."""
    home = tmp_path_factory.mktemp("cluster")
    with Cluster.of(home, name_servers=[servers], brokers=[servers]) as started:
        yield started


@pytest.fixture(scope="session")
def producers(jvms: dict[str, JavaClients], cluster: Cluster) -> dict[str, Producer]:
    """A producer of each version for all tests: one alone needs seconds to start and stop."""
    return {version: java.producer(cluster.namesrv) for version, java in jvms.items()}


@pytest.fixture
def producer(java: JavaClients, producers: dict[str, Producer]) -> Producer:
    return producers[java.version]


@pytest.fixture(scope="session")
def pullers(jvms: dict[str, JavaClients], cluster: Cluster) -> dict[str, PullConsumer]:
    return {version: java.puller(cluster.namesrv) for version, java in jvms.items()}


@pytest.fixture
def puller(java: JavaClients, pullers: dict[str, PullConsumer]) -> PullConsumer:
    return pullers[java.version]
