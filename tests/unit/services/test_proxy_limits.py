"""The keys of a proxy that bound its gRPC connections and calls have their effect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.protobuf.wrappers_pb2 import BytesValue
from h2.settings import SettingCodes
from twisted.internet.defer import Deferred

from rocketmq_tw.config.proxy import ProxyConfig
from rocketmq_tw.proxy.grpc.interfaces import BothStreams, GrpcStatus, ICall, Unary
from rocketmq_tw.services.proxy import Options, grpc_config
from tests.support.http2 import GrpcInMemory

ECHO, LATER, CHAT = "/t/Echo", "/t/Later", "/t/Chat"


def later(request: BytesValue, call: ICall) -> Deferred[BytesValue]:
    return Deferred()


def chat(call: ICall) -> Callable[[BytesValue], None]:
    return call.send


METHODS = {
    ECHO: Unary(BytesValue, lambda request, call: request),
    LATER: Unary(BytesValue, later),
    CHAT: BothStreams(BytesValue, chat),
}


def served(*keys: str) -> GrpcInMemory:
    """A server as a proxy of these keys has it."""
    options = Options({})
    options.parseOptions(["-n", "a:1", *(word for key in keys for word in ("-o", key))])
    return GrpcInMemory(METHODS, grpc_config(options.loaded[ProxyConfig]))


def of_size(size: int) -> bytes:
    """A message of so many bytes, up to 130."""
    message = BytesValue(value=bytes(size - 2)).SerializeToString()
    assert len(message) == size
    return message


def test_messages_have_their_largest_size() -> None:
    server = served("grpcMaxInboundMessageSize=100")
    client = server.connect()
    taken, refused = client.call(ECHO, of_size(100)), client.call(ECHO, of_size(101))
    server.settle()
    assert (taken.status, taken.messages) == (GrpcStatus.OK, [of_size(100)])
    assert refused.status == GrpcStatus.RESOURCE_EXHAUSTED


def test_a_connection_has_so_many_calls() -> None:
    server = served("grpcMaxStreams=2")
    client = server.connect()
    assert client.h2.remote_settings[SettingCodes.MAX_CONCURRENT_STREAMS] == 2


def test_headers_have_their_largest_size() -> None:
    server = served("grpcMaxMetadataBytes=500")
    client = server.connect()
    assert client.h2.remote_settings[SettingCodes.MAX_HEADER_LIST_SIZE] == 500
    taken, refused = client.call(ECHO, of_size(10)), client.call(ECHO, of_size(10), x="y" * 500)
    server.settle()
    assert taken.status == GrpcStatus.OK
    assert not refused.messages


def test_an_idle_connection_is_closed() -> None:
    server = served("grpcClientIdleTimeMills=20000")
    client = server.connect()
    server.advance(14)
    assert not client.lost
    server.advance(12)
    assert client.lost


def test_a_silent_connection_is_asked_whether_it_lives() -> None:
    server = served("grpcKeepaliveSeconds=10")
    client = server.connect()
    client.open(CHAT)
    server.settle()
    client.transport.freeze()
    server.advance(9)
    assert len(server.listener.connections) == 1
    server.advance(36)
    assert len(server.listener.connections) == 0


def test_calls_get_their_time_when_the_proxy_stops() -> None:
    server = served("grpcShutdownTimeSeconds=7")
    client = server.connect()
    client.call(LATER, of_size(10))
    server.settle()
    stopped: list[Any] = []
    server.remoting.stop().addBoth(stopped.append)
    server.advance(6)
    assert not client.lost
    server.advance(5)
    assert client.lost
    assert stopped == [None]
