"""Health and reflection, which tools and load balancers ask for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool
from twisted.internet.task import Clock

from rocketmq_tw.proxy.grpc.health import HealthService
from rocketmq_tw.proxy.grpc.interfaces import GrpcStatus
from rocketmq_tw.proxy.grpc.reflection import ReflectionService
from rocketmq_tw.proxy.proto import (
    messages,
    reflection_pb2,
    reflection_v1alpha_pb2,
)
from rocketmq_tw.proxy.proto.health_pb2 import HealthCheckRequest, HealthCheckResponse
from tests.support.http2 import GrpcInMemory, framed

MESSAGING = "apache.rocketmq.v2.MessagingService"
CHECK, WATCH = "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"
SERVING, NOT_SERVING, UNKNOWN = (
    HealthCheckResponse.SERVING,
    HealthCheckResponse.NOT_SERVING,
    HealthCheckResponse.SERVICE_UNKNOWN,
)


def asked(service: str) -> bytes:
    return HealthCheckRequest(service=service).SerializeToString()


def statuses(messages: list[bytes]) -> list[int]:
    return [HealthCheckResponse.FromString(message).status for message in messages]


def health_of(clock: Clock, reason: Callable[[], str] = lambda: "") -> HealthService:
    return HealthService(clock, [MESSAGING], reason)


@pytest.mark.parametrize("service", ["", MESSAGING])
def test_health_is_told(service: str) -> None:
    health = health_of(Clock())
    server = GrpcInMemory(health.methods())
    client = server.connect()
    before = client.call(CHECK, asked(service))
    server.settle()
    health.stop()
    after = client.call(CHECK, asked(service))
    server.settle()
    assert statuses(before.messages + after.messages) == [SERVING, NOT_SERVING]


def test_the_health_of_what_is_not_served() -> None:
    server = GrpcInMemory(health_of(Clock()).methods())
    client = server.connect()
    checked = client.call(CHECK, asked("x.Y"))
    watched = client.call(WATCH, asked("x.Y"))
    server.settle()
    assert checked.status == GrpcStatus.NOT_FOUND
    assert statuses(watched.messages) == [UNKNOWN]
    assert not watched.ended


def test_the_end_of_the_server_is_told_to_those_that_watch_it() -> None:
    health = health_of(Clock())
    server = GrpcInMemory(health.methods())
    client, other = server.connect(), server.connect()
    response = client.call(WATCH, asked(MESSAGING))
    left = other.call(WATCH, asked(MESSAGING))
    server.settle()
    other.transport.loseConnection()
    server.settle()
    health.stop()
    server.settle()
    assert statuses(response.messages) == [SERVING, NOT_SERVING]
    assert (response.status, left.ended) == (0, False)
    client.transport.loseConnection()
    server.settle()
    assert server.used == 0


def test_a_server_that_is_not_ready_is_not_serving_yet() -> None:
    clock, reasons = Clock(), ["no broker is known"]
    health = health_of(clock, lambda: reasons[0])
    server = GrpcInMemory(health.methods(), clock=clock)
    client = server.connect()
    watched = client.call(WATCH, asked(MESSAGING))
    before = client.call(CHECK, asked(""))
    server.settle()
    clock.advance(5)
    server.settle()
    assert statuses(watched.messages) == statuses(before.messages) == [NOT_SERVING]
    reasons[0] = ""
    clock.advance(1)
    after = client.call(CHECK, asked(""))
    server.settle()
    assert statuses(watched.messages) == [NOT_SERVING, SERVING]
    assert statuses(after.messages) == [SERVING]


class Tool:
    """Asks for what a server serves, as grpcurl does."""

    def __init__(self, version: Any) -> None:
        self.version = version
        reflection = ReflectionService([messages.DESCRIPTOR])
        self.server = GrpcInMemory(reflection.methods())
        client = self.server.connect()
        service = version.DESCRIPTOR.services_by_name["ServerReflection"].full_name
        self.stream, self.response = client.open(f"/{service}/ServerReflectionInfo")
        self.client = client

    def ask(self, **request: Any) -> Any:
        message = self.version.ServerReflectionRequest(**request)
        self.client.send(self.stream, framed(message.SerializeToString()))
        self.server.settle()
        return self.version.ServerReflectionResponse.FromString(self.response.messages[-1])


@pytest.fixture(params=[reflection_pb2, reflection_v1alpha_pb2], ids=["v1", "v1alpha"])
def tool(request: pytest.FixtureRequest) -> Tool:
    return Tool(request.param)


def test_services_are_listed(tool: Tool) -> None:
    listed = tool.ask(list_services="").list_services_response.service
    assert [each.name for each in listed] == [
        MESSAGING,
        "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection",
        "grpc.reflection.v1alpha.ServerReflection",
    ]


@pytest.mark.parametrize(
    "asked",
    [
        {"file_containing_symbol": MESSAGING},
        {"file_containing_symbol": f"{MESSAGING}.SendMessage"},
        {"file_containing_symbol": "apache.rocketmq.v2.Message"},
        {"file_containing_symbol": "apache.rocketmq.v2.Code"},
        {"file_by_filename": messages.DESCRIPTOR.name},
    ],
)
def test_files_come_with_all_that_they_need(tool: Tool, asked: dict[str, str]) -> None:
    files = tool.ask(**asked).file_descriptor_response.file_descriptor_proto
    pool = descriptor_pool.DescriptorPool()
    for file in files:
        pool.Add(descriptor_pb2.FileDescriptorProto.FromString(file))
    service = pool.FindServiceByName(MESSAGING)
    assert service.methods_by_name["SendMessage"].input_type.fields_by_name["messages"]


@pytest.mark.parametrize(
    "asked",
    [
        {"file_containing_symbol": "x.Y"},
        {"file_by_filename": "/etc/passwd"},
        {"all_extension_numbers_of_type": "x.Y"},
        {"file_containing_extension": {"containing_type": MESSAGING, "extension_number": 1}},
        {},
    ],
)
def test_what_is_not_there(tool: Tool, asked: dict[str, Any]) -> None:
    error = tool.ask(**asked).error_response
    assert error.error_code == GrpcStatus.NOT_FOUND
    assert error.error_message
    # The stream goes on.
    assert tool.ask(list_services="").list_services_response.service


def test_messages_have_no_extensions(tool: Tool) -> None:
    answer = tool.ask(all_extension_numbers_of_type="apache.rocketmq.v2.Message")
    response = answer.all_extension_numbers_response
    assert (response.base_type_name, list(response.extension_number)) == (
        "apache.rocketmq.v2.Message",
        [],
    )
