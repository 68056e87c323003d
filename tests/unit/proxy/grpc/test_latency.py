"""What is measured of calls."""

from __future__ import annotations

from google.protobuf.wrappers_pb2 import BytesValue
from twisted.internet.defer import Deferred

from rocketmq_tw.metrics.instruments import Distribution
from rocketmq_tw.proxy.grpc.interfaces import BothStreams, GrpcError, GrpcStatus, ICall, Unary
from rocketmq_tw.proxy.grpc.latency import call_latency
from tests.support.http2 import GrpcInMemory


def test_calls_are_counted_by_method_and_status() -> None:
    later: Deferred[BytesValue] = Deferred()

    def refuse(request: BytesValue, call: ICall) -> None:
        raise GrpcError(GrpcStatus.NOT_FOUND, "nothing here")

    latency = call_latency()
    methods = {
        "/a.b/SendMessage": Unary(BytesValue, lambda request, call: later),
        "/a.b/Refuse": Unary(BytesValue, refuse),
        "/a.b/Telemetry": BothStreams(BytesValue, lambda call: call.send),
    }
    server = GrpcInMemory(methods, observe=latency.record)
    client = server.connect()
    client.call("/a.b/SendMessage")
    client.call("/a.b/Refuse")
    client.call("/a.b/Invented")
    client.call("/a.b/Telemetry")
    server.settle()
    server.advance(2)
    later.callback(BytesValue())
    found = {}
    for metric in latency.metrics():
        assert isinstance(metric.value, Distribution)
        assert metric.labels["protocol_type"] == "grpc"
        key = metric.labels["request_code"], metric.labels["response_code"]
        found[key] = (sum(metric.value.counts), round(metric.value.total))
    assert found == {("send_message", "ok"): (1, 2000), ("refuse", "not_found"): (1, 0)}
