"""The requests of a server, counted, and the line that tells of all metrics."""

from collections.abc import Mapping
from typing import Any

from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent

from rocketmq_tw.metrics.instruments import MAX_HISTOGRAM_SERIES, gauge
from rocketmq_tw.net.interfaces import WRITTEN
from rocketmq_tw.net.server_metrics import (
    LOG_SECONDS,
    MAX_LOGGED,
    OF_A_LINE,
    MetricsLog,
    request_latency,
)
from rocketmq_tw.wire.codes import RequestCode
from tests.support.memory_server import MemoryServer

ONEWAY = 2


def said(labels: Mapping[str, str]) -> str:
    """The response code, or why there is none at the other end."""
    return labels["response_code"] if labels["result"] == "success" else labels["result"]


def test_requests_are_counted_by_their_codes_with_the_time_they_took() -> None:
    server = MemoryServer()
    latency = request_latency()
    server.listener.observe(latency.record)
    held: list[Any] = []
    server.listener.register(RequestCode.HEART_BEAT, lambda request, peer: request.response())
    server.listener.register(RequestCode.PULL_MESSAGE, lambda *asked: held.append(asked))
    client = server.connect()
    client.send(RequestCode.HEART_BEAT)
    client.send(RequestCode.HEART_BEAT, flag=ONEWAY)
    client.send(9999, opaque=2)
    client.send(RequestCode.PULL_MESSAGE, opaque=3)
    server.clock.advance(0)
    server.clock.advance(0.5)
    for request, peer in held:
        peer.reply(request.response())
    seen = {
        (figure.labels["request_code"], said(figure.labels)): figure.value
        for figure in latency.metrics()
    }
    assert {codes: value.counts for codes, value in seen.items()} == {
        ("heart_beat", "success"): (1, 0, 0, 0, 0, 0, 0, 0, 0, 0),
        ("heart_beat", "oneway"): (1, 0, 0, 0, 0, 0, 0, 0, 0, 0),
        ("unknown", "request_code_not_supported"): (1, 0, 0, 0, 0, 0, 0, 0, 0, 0),
        ("pull_message", "success"): (0, 0, 0, 0, 0, 0, 1, 0, 0, 0),
    }
    assert seen["pull_message", "success"].total == 500
    assert all(figure.name == "rocketmq_rpc_latency" for figure in latency.metrics())


def test_metrics_are_logged_every_ten_minutes() -> None:
    clock = Clock()
    figures = [gauge("waiting", 1), gauge("unused", 0), gauge("idle", 0.0)]
    lines = MetricsLog(clock, lambda: figures)
    lines.start()
    with capturedLogs() as logs:
        clock.advance(LOG_SECONDS)
        figures.append(gauge("more", 2, {"topic": "T"}))
        clock.advance(LOG_SECONDS)
        clock.advance(LOG_SECONDS)
        figures[0] = gauge("waiting", 0)
        clock.advance(LOG_SECONDS)
        lines.stop()
        clock.advance(LOG_SECONDS)
    assert [formatEvent(event) for event in logs] == [
        "metrics: waiting{} 1",
        "metrics: more{topic=T} 2",
        "metrics: waiting{} 0",
    ]


def test_many_metrics_take_several_lines() -> None:
    clock = Clock()
    figures = [gauge(f"figure_{number}", number) for number in range(1, MAX_LOGGED + 50)]
    lines = MetricsLog(clock, lambda: figures)
    lines.start()
    with capturedLogs() as logs:
        clock.advance(LOG_SECONDS)
    said = [str(formatEvent(event)) for event in logs]
    assert [line.count("figure_") for line in said] == [OF_A_LINE] * (MAX_LOGGED // OF_A_LINE)


def test_a_request_that_is_not_answered_has_no_response_code() -> None:
    server = MemoryServer()
    latency = request_latency()
    server.listener.observe(latency.record)
    server.listener.register(RequestCode.PULL_MESSAGE, lambda request, peer: None)
    client = server.connect()
    client.send(RequestCode.PULL_MESSAGE)
    server.clock.advance(0)
    assert list(latency.metrics()) == []
    client.transport.abortConnection()
    server.clock.advance(0)
    (figure,) = latency.metrics()
    assert figure.labels == {
        "protocol_type": "remoting",
        "request_code": "pull_message",
        "is_long_polling": "false",
        "result": "write_channel_failed",
    }


def test_invented_codes_are_one_series() -> None:
    server = MemoryServer()
    latency = request_latency()
    server.listener.observe(latency.record)
    client = server.connect()
    for number in range(3):
        client.send(100_000 + number, opaque=number)
    server.clock.advance(0)
    for number in range(MAX_HISTOGRAM_SERIES):
        latency.record((900_000 + number, 300_000 + number, False, WRITTEN), 1.0)
    latency.record((RequestCode.HEART_BEAT, 0, False, WRITTEN), 1.0)
    seen = {
        (figure.labels.get("request_code"), figure.labels.get("response_code")): figure.value
        for figure in latency.metrics()
    }
    assert {codes: sum(value.counts) for codes, value in seen.items()} == {
        ("unknown", "request_code_not_supported"): 3,
        ("unknown", "unknown"): MAX_HISTOGRAM_SERIES,
        ("heart_beat", "success"): 1,
    }
