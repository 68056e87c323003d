"""TLS only: stock's clients on our servers, ours on stock's, brokers of both on name servers."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.support.cluster import OURS
from tests.support.jars import STOCK_VERSIONS
from tests.support.java_client import JavaClients
from tests.support.processes import BrokerProcess, NameServerProcess
from tests.support.rmqadmin import answer, rmqadmin
from tests.support.servers import OurBroker, OurNameServer
from tests.support.stock import StockBroker, StockNameServer
from tests.support.wait import wait_until

#: What servers say once they serve: each question is a program of its own, so none comes before.
OUR_WORDS = {"names": " listening on ", "broker": " serves at "}
STOCKS_WORD = " boot success"


def _answers(names: NameServerProcess) -> bool:
    return rmqadmin(names.address, "clusterList --tls").returncode == 0


class OurTlsNameServer(OurNameServer):
    def ready(self) -> bool:
        return OUR_WORDS["names"] in self.log_text() and _answers(self)

    def command(self) -> list[str]:
        return [*super().command(), "-o", "tls.server.mode=enforcing"]


class StockTlsNameServer(StockNameServer):
    tls_mode = "enforcing"

    def ready(self) -> bool:
        return STOCKS_WORD in self.log_text() and _answers(self)


def _is_registered(broker: BrokerProcess) -> bool:
    (names,) = broker.name_servers
    rows = answer(names.address, "clusterList --tls")["brokers"]
    return [row["active"] for row in rows if row["address"] == broker.address] == [True]


class OurTlsBroker(OurBroker):
    def ready(self) -> bool:
        return OUR_WORDS["broker"] in self.log_text() and _is_registered(self)

    def command(self) -> list[str]:
        return [*super().command(), "-o", "tls.server.mode=enforcing"]


class StockTlsBroker(StockBroker):
    tls_mode = "enforcing"

    def ready(self) -> bool:
        return STOCKS_WORD in self.log_text() and _is_registered(self)


@pytest.fixture(scope="module", params=[OURS, "5.3.3"])
def tls_names(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The address of a name server that takes TLS only, of ours or stock's; a broker of the other
    kind is registered there, and of that kind too."""
    home = tmp_path_factory.mktemp("tls")
    names: NameServerProcess
    if request.param == OURS:
        names = OurTlsNameServer(home / "names")
    else:
        names = StockTlsNameServer(request.param, home / "names")
    brokers = [
        OurTlsBroker("broker-ours", home / "ours", [names]),
        StockTlsBroker("5.3.3", "broker-stock", home / "stock", [names]),
    ]
    try:
        names.start()
        for broker in brokers:
            broker.start()
        yield names.address
    finally:
        for server in (*brokers, names):
            server.close()


@pytest.fixture(scope="module")
def tls_jvms(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, JavaClients]]:
    """Stock's clients of both versions, with TLS."""
    before = os.environ.get("JAVA_TOOL_OPTIONS")
    os.environ["JAVA_TOOL_OPTIONS"] = "-Dtls.enable=true"
    home = tmp_path_factory.mktemp("java")
    try:
        started = {version: JavaClients(version, home / version) for version in STOCK_VERSIONS}
    finally:
        if before is None:
            del os.environ["JAVA_TOOL_OPTIONS"]
        else:
            os.environ["JAVA_TOOL_OPTIONS"] = before
    yield started
    for java in started.values():
        java.close()


@pytest.fixture(params=STOCK_VERSIONS)
def tls_java(request: pytest.FixtureRequest, tls_jvms: dict[str, JavaClients]) -> JavaClients:
    """The clients of one version after the other."""
    return tls_jvms[request.param]


def test_stock_clients_and_ours_share_messages(
    tls_names: str, tls_java: JavaClients, names
) -> None:
    topic = names.topic
    answer(tls_names, f"updateTopic --tls -t {topic} -c TestCluster -r 1 -w 1")
    brokers = ("broker-ours", "broker-stock")
    wait_until(
        lambda: len(answer(tls_names, f"topicRoute --tls -t {topic}")["brokerDatas"]) == 2,
        "the route",
    )
    for broker in brokers:
        sent = answer(tls_names, f"sendMessage --tls -t {topic} -p from-us -b {broker} -i 0")
        assert sent["sendStatus"] == "SEND_OK"
    with (
        tls_java.producer(tls_names) as producer,
        tls_java.consumer(tls_names, names.group, {topic: "*"}) as consumer,
    ):
        for _ in brokers:
            producer.send({"topic": topic, "body": "from-stock"})
        assert sorted(message["body"] for message in consumer.received(4)) == [
            *["from-stock"] * 2,
            *["from-us"] * 2,
        ]
    read = answer(tls_names, f"consumeMessage --tls -t {topic}")["messages"]
    assert sorted(message["body"] for message in read) == ["from-stock"] * 2 + ["from-us"] * 2


def test_a_plain_client_is_told_what_is_missing(tls_names: str) -> None:
    plain = rmqadmin(tls_names, "clusterList")
    assert plain.returncode == 1
    assert "a server that takes TLS only" in plain.stderr
