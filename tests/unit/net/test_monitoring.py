"""The HTTP port for monitoring, as a browser and Prometheus use it, over transports in memory."""

from __future__ import annotations

import pytest
from twisted.internet.address import IPv4Address
from twisted.internet.error import ConnectionDone
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.python.failure import Failure

from rocketmq_tw.config.load import load
from rocketmq_tw.config.monitoring import MonitoringConfig
from rocketmq_tw.config.properties import ConfigError, Setting
from rocketmq_tw.metrics.instruments import Metric, gauge
from rocketmq_tw.net.monitoring import MAX_CONNECTIONS, QUESTION_SECONDS, Monitoring
from rocketmq_tw.runtime.threads import at_once

_PEER = IPv4Address("TCP", "127.0.0.1", 50000)


class _Server:
    def __init__(self, *settings: tuple[str, str]) -> None:
        self.reactor = MemoryReactorClock()
        self.figures: list[Metric] = [gauge("rocketmq_topic_number", 3)]
        self.reason = ""
        given = [("metricsExporterType", "PROM"), *settings]
        loaded = load(
            [MonitoringConfig], [Setting(key, value, "test") for key, value in given], "/"
        )
        self.monitoring = Monitoring(
            self.reactor,
            loaded[MonitoringConfig],
            at_once,
            lambda: self.figures,
            lambda: self.reason,
        )
        self.monitoring.start()
        self.listening = self.reactor.tcpServers[0]

    def connect(self) -> tuple[object, StringTransport] | None:
        protocol = self.listening[1].buildProtocol(_PEER)
        if protocol is None:
            return None
        transport = StringTransport(peerAddress=_PEER)
        protocol.makeConnection(transport)
        return protocol, transport

    def get(self, path: str) -> tuple[int, str]:
        connected = self.connect()
        assert connected is not None
        protocol, transport = connected
        protocol.dataReceived(f"GET {path} HTTP/1.0\r\nHost: x\r\n\r\n".encode())
        self.reactor.pump([0.0] * 20)
        head, _, body = transport.value().partition(b"\r\n\r\n")
        protocol.connectionLost(Failure(ConnectionDone()))
        return int(head.split()[1]), body.decode()


def test_prometheus_gets_the_figures_of_now_with_the_labels_of_the_configuration() -> None:
    server = _Server(("metricsLabel", "zone:a, rack:r1"))
    status, page = server.get("/metrics")
    assert status == 200
    assert 'rocketmq_topic_number{rack="r1",zone="a"} 3.0\n' in page
    server.figures = [gauge("rocketmq_topic_number", 4)]
    assert 'rocketmq_topic_number{rack="r1",zone="a"} 4.0\n' in server.get("/metrics")[1]


def test_it_listens_on_loopback_unless_another_address_is_given() -> None:
    assert (_Server().listening[0], _Server().listening[3]) == (5557, "127.0.0.1")
    other = _Server(
        ("metricsPromExporterHost", "10.0.0.1"), ("metricsPromExporterPort", "7")
    ).listening
    assert (other[0], other[3]) == (7, "10.0.0.1")


def test_nothing_is_opened_unless_it_is_asked_for() -> None:
    reactor = MemoryReactorClock()
    Monitoring(reactor, MonitoringConfig(), at_once, list, lambda: "").start()
    assert (reactor.tcpServers, reactor.getDelayedCalls()) == ([], [])


def test_health_says_that_it_lives_and_readiness_why_it_cannot_serve_yet() -> None:
    server = _Server()
    assert server.get("/healthz") == (200, "ok\n")
    assert server.get("/readyz") == (200, "ok\n")
    server.reason = "the store is being loaded"
    assert server.get("/healthz") == (200, "ok\n")
    assert server.get("/readyz") == (503, "the store is being loaded\n")


def test_the_longest_delay_of_the_reactor_is_told_for_a_minute_or_two() -> None:
    """So that whoever asks once a minute sees it, whoever else asks."""
    server = _Server()
    server.reactor.advance(0.25)
    server.reactor.advance(1.75)

    def told() -> str:
        lines = server.get("/metrics")[1].splitlines()
        (line,) = (one for one in lines if one.startswith("rocketmq_reactor_longest_delay"))
        return line.split()[1]

    assert told() == told() == "1500.0"
    server.reactor.pump([0.25] * 4 * 60)
    assert told() == "1500.0"
    server.reactor.pump([0.25] * 4 * 60)
    assert told() == "0.0"


def test_strangers_who_ask_nothing_keep_nobody_out() -> None:
    server = _Server()
    held = [server.connect() for _ in range(MAX_CONNECTIONS)]
    assert server.get("/healthz") == (200, "ok\n")
    assert [transport.disconnecting for _, transport in held] == [True] + [False] * (
        MAX_CONNECTIONS - 1
    )


def test_a_connection_that_asks_is_closed_after_those_that_ask_nothing() -> None:
    server = _Server()
    protocol, transport = server.connect()
    for _ in range(3):
        held = [server.connect() for _ in range(MAX_CONNECTIONS - 1)]
        protocol.dataReceived(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        server.reactor.pump([0.0])
        assert transport.value().endswith(b"ok\n")
        assert not transport.disconnecting
    assert not held[-1][1].disconnecting


def test_questions_that_are_being_answered_are_not_cut() -> None:
    server = _Server()
    asking = [server.connect() for _ in range(MAX_CONNECTIONS)]
    for protocol, _ in asking:
        protocol.dataReceived(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    assert server.connect() is None
    server.reactor.pump([0.0] * 20)
    assert all(b"rocketmq_topic_number 3" in transport.value() for _, transport in asking)


def test_a_connection_has_a_few_seconds_for_its_first_question() -> None:
    server = _Server()
    protocol, transport = server.connect()
    asking, kept = server.connect()
    asking.dataReceived(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    for _ in range(QUESTION_SECONDS):
        protocol.dataReceived(b"G")
        server.reactor.advance(1)
    assert transport.disconnecting
    assert not kept.disconnecting
    asking.connectionLost(Failure(ConnectionDone()))
    protocol.connectionLost(Failure(ConnectionDone()))
    server.monitoring.stop()
    assert server.reactor.getDelayedCalls() == []


def test_a_further_question_has_a_few_seconds_too() -> None:
    server = _Server()
    protocol, transport = server.connect()
    protocol.dataReceived(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    server.reactor.advance(3 * QUESTION_SECONDS)
    assert not transport.disconnecting, "it may ask again"
    for _ in range(QUESTION_SECONDS):
        protocol.dataReceived(b"G")
        server.reactor.advance(1)
    assert transport.disconnecting
    protocol.connectionLost(Failure(ConnectionDone()))
    server.monitoring.stop()
    assert server.reactor.getDelayedCalls() == []


def test_a_question_that_is_being_answered_is_not_cut_for_what_comes_behind_it() -> None:
    server = _Server()
    protocol, transport = server.connect()
    protocol.dataReceived(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" * 2)
    protocol.dataReceived(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 2)
    protocol.dataReceived(b"GET")
    server.reactor.advance(QUESTION_SECONDS)
    assert not transport.disconnecting


def test_questions_that_come_together_are_answered_one_a_turn() -> None:
    server = _Server()
    protocol, transport = server.connect()
    turns: list[int] = []

    def turn() -> None:
        turns.append(transport.value().count(b"HTTP/1.1 200 "))
        if turns[-1] < 100:
            server.reactor.callLater(0, turn)

    protocol.dataReceived(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" * 100)
    turn()
    server.reactor.pump([0.0])
    assert turns == list(range(101))


def test_a_question_goes_with_its_connection() -> None:
    server = _Server()
    protocol, _ = server.connect()
    protocol.dataReceived(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" * 2)
    protocol.connectionLost(Failure(ConnectionDone()))
    server.monitoring.stop()
    assert server.reactor.getDelayedCalls() == []


@pytest.mark.parametrize(
    "head",
    [
        pytest.param("a: b\r\n" + " \r\n" * 2000, id="a header that goes on"),
        pytest.param("a:\r\n" * 101, id="many headers"),
        pytest.param(f"Cookie: {'a;' * 2048}\r\n", id="a long one"),
    ],
)
def test_a_head_that_is_slow_to_read_is_refused(head: str) -> None:
    server = _Server()
    protocol, transport = server.connect()
    protocol.dataReceived(f"GET /healthz HTTP/1.1\r\n{head}\r\n".encode() * 2)
    server.reactor.pump([0.0])
    assert transport.value().startswith(b"HTTP/1.1 400 ")
    assert transport.value().count(b"HTTP/1.1") == 1
    assert transport.disconnecting


@pytest.mark.parametrize("method", ["GET", "POST", "PUT"])
@pytest.mark.parametrize("head", ["Content-Length: 900000000000", "Transfer-Encoding: chunked"])
def test_a_body_is_refused_before_it_comes(method: str, head: str) -> None:
    server = _Server()
    protocol, transport = server.connect()
    protocol.dataReceived(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    server.reactor.pump([0.0])
    transport.clear()
    asked = f"{method} /metrics HTTP/1.1\r\nHost: x\r\n{head}\r\n\r\n".encode()
    protocol.dataReceived(asked + b"7\r\nabcdefg\r\n")
    assert transport.value().startswith(b"HTTP/1.1 413 ")
    assert transport.value().count(b"HTTP/1.1") == 1
    assert transport.disconnecting
    protocol.dataReceived(b"x" * 100)
    assert transport.value().count(b"HTTP/1.1") == 1


def test_an_empty_body_is_none() -> None:
    server = _Server()
    protocol, transport = server.connect()
    protocol.dataReceived(b"GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
    server.reactor.pump([0.0])
    assert transport.value().startswith(b"HTTP/1.1 200 ")
    assert not transport.disconnecting


def test_a_server_that_stops_is_not_ready() -> None:
    server = _Server()
    protocol, transport = server.connect()
    server.monitoring.stop()
    protocol.dataReceived(b"GET /readyz HTTP/1.0\r\nHost: x\r\n\r\n")
    server.reactor.pump([0.0])
    assert transport.value().startswith(b"HTTP/1.0 503 ")
    assert transport.value().endswith(b"it is being stopped\n")


def test_a_server_that_is_being_stopped_says_so_for_as_long_as_that_takes() -> None:
    server = _Server()
    server.monitoring.server_stops()
    assert server.get("/healthz") == (200, "ok\n")
    assert server.get("/readyz") == (503, "it is being stopped\n")
    assert "topic_number" not in server.get("/metrics")[1]


def test_an_error_of_a_figure_is_an_answer_and_ends_nothing(caplog: object) -> None:
    server = _Server()

    class Bad(list):
        def __iter__(self):
            raise ValueError("no figure today")

    server.figures = Bad()
    assert server.get("/metrics")[0] == 500
    server.figures = []
    assert server.get("/metrics")[0] == 200


@pytest.mark.parametrize("label", ["zone", "zone:", "a b:c", ":x"])
def test_a_label_that_prometheus_would_refuse_is_refused_at_the_start(label: str) -> None:
    with pytest.raises(ConfigError, match="name:value"):
        _Server(("metricsLabel", label))


def test_a_label_that_is_given_twice_is_refused_at_the_start() -> None:
    with pytest.raises(ConfigError, match="the label x is given twice"):
        _Server(("metricsLabel", "x:1,y:1,x:2"))


@pytest.mark.parametrize("label", ["le", "quantile", "__name__"])
def test_a_label_of_prometheus_itself_is_refused_at_the_start(label: str) -> None:
    with pytest.raises(ConfigError, match=f"a label {label} already: give another name"):
        _Server(("metricsLabel", f"zone:a,{label}:5"))


@pytest.mark.parametrize("kind", ["OTLP_GRPC", "LOG", "prom"])
def test_an_exporter_that_is_not_there_is_refused_at_the_start(kind: str) -> None:
    with pytest.raises(ConfigError, match="DISABLE, PROM"):
        _Server(("metricsExporterType", kind))
