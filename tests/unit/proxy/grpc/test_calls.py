"""Calls of all three kinds, with h2 as the client."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf.wrappers_pb2 import StringValue
from twisted.internet.defer import Deferred

from rocketmq_tw.proxy.grpc.interfaces import (
    BothStreams,
    GrpcError,
    GrpcStatus,
    ICall,
    RequestLimits,
    ServerStream,
    Unary,
)
from rocketmq_tw.proxy.grpc.server import GrpcConfig
from rocketmq_tw.proxy.http2.limits import Http2Limits
from tests.support.http2 import GrpcInMemory, Http2Client, framed, pieces

ECHO, LATER, COUNT, CHAT, FAILS = "/t/Echo", "/t/Later", "/t/Count", "/t/Chat", "/t/Fails"


class Service:
    """A service with a method of each kind; calls stand in `calls`, LATER waits in `held`."""

    def __init__(self) -> None:
        self.calls: list[ICall] = []
        self.held: list[Deferred[StringValue]] = []
        self.said: list[str] = []
        self.methods = {
            ECHO: Unary(StringValue, self.echo),
            LATER: Unary(StringValue, self.later),
            COUNT: ServerStream(StringValue, self.count),
            CHAT: BothStreams(StringValue, self.chat),
            FAILS: Unary(StringValue, self.fail),
        }

    def echo(self, request: StringValue, call: ICall) -> StringValue:
        self.calls.append(call)
        return StringValue(value=request.value)

    def later(self, request: StringValue, call: ICall) -> Deferred[StringValue]:
        self.calls.append(call)
        self.held.append(Deferred())
        return self.held[-1]

    async def count(self, request: StringValue, call: ICall) -> None:
        self.calls.append(call)
        for number in range(int(request.value)):
            call.send(StringValue(value=str(number)))

    def chat(self, call: ICall) -> Callable[[StringValue], None]:
        self.calls.append(call)

        def hear(message: StringValue) -> None:
            self.said.append(message.value)
            call.send(StringValue(value=message.value.upper()))

        return hear

    def fail(self, request: StringValue, call: ICall) -> StringValue:
        if request.value == "refused":
            raise GrpcError(GrpcStatus.NOT_FOUND, "50 % of größe is missing\n")
        raise RuntimeError("boom")


def text(value: str) -> bytes:
    return StringValue(value=value).SerializeToString()


def values(messages: list[bytes]) -> list[str]:
    return [StringValue.FromString(message).value for message in messages]


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
def server(service: Service) -> GrpcInMemory:
    return GrpcInMemory(service.methods)


@pytest.fixture
def client(server: GrpcInMemory) -> Http2Client:
    return server.connect()


def test_a_unary_call_is_answered(server: GrpcInMemory, client: Http2Client) -> None:
    response = client.call(ECHO, text("hello"))
    server.settle()
    assert values(response.messages) == ["hello"]
    assert response.headers[":status"] == "200"
    assert response.headers["content-type"] == "application/grpc"
    assert (response.status, response.ended, response.reset) == (0, True, None)
    assert server.used == 0


def test_a_call_knows_who_asks_and_how(
    server: GrpcInMemory, client: Http2Client, service: Service
) -> None:
    client.call(ECHO, text(""), x_mq_client_id="me", grpc_timeout="2S")
    server.settle()
    (call,) = service.calls
    assert call.metadata["x-mq-client-id"] == "me"
    assert (call.method, call.authority) == (ECHO, "proxy:8081")
    assert call.address.startswith("10.0.0.9:")
    assert call.local_address == "10.0.0.1:8081"
    assert call.deadline == 2.0


@pytest.mark.parametrize("kind", ["application/grpc+proto", "application/grpc;charset=utf-8"])
def test_a_content_type_may_say_more(server: GrpcInMemory, client: Http2Client, kind: str) -> None:
    response = client.call(ECHO, text("x"), content_type=kind)
    server.settle()
    assert response.status == 0


def test_an_answer_may_come_later(
    server: GrpcInMemory, client: Http2Client, service: Service
) -> None:
    first, second = client.call(LATER, text("")), client.call(LATER, text(""))
    server.settle()
    service.held[1].callback(StringValue(value="second"))
    server.settle()
    assert (first.ended, values(second.messages)) == (False, ["second"])
    service.held[0].callback(StringValue(value="first"))
    server.settle()
    assert values(first.messages) == ["first"]
    assert server.used == 0


def test_a_stream_of_responses_ends_with_its_handler(
    server: GrpcInMemory, client: Http2Client
) -> None:
    response = client.call(COUNT, text("3"))
    server.settle()
    assert values(response.messages) == ["0", "1", "2"]
    assert (response.status, response.ended) == (0, True)
    empty = client.call(COUNT, text("0"))
    server.settle()
    assert (empty.messages, empty.status) == ([], 0)


def test_both_sides_talk_until_the_client_ends(
    server: GrpcInMemory, client: Http2Client, service: Service
) -> None:
    stream_id, response = client.open(CHAT)
    client.send(stream_id, framed(text("a")) + framed(text("b"))[:4])
    server.settle()
    assert values(response.messages) == ["A"]
    client.send(stream_id, framed(text("b"))[4:])
    server.settle()
    assert values(response.messages) == ["A", "B"]
    client.send(stream_id, b"", end=True)
    server.settle()
    assert (response.status, response.ended) == (0, True)
    assert service.calls[0].is_over


def test_both_sides_talk_until_the_server_ends(
    server: GrpcInMemory, client: Http2Client, service: Service
) -> None:
    stream_id, response = client.open(CHAT)
    client.send(stream_id, framed(text("a")))
    server.settle()
    service.calls[0].finish()
    service.calls[0].send(StringValue(value="dropped"))
    server.settle()
    assert (values(response.messages), response.status) == (["A"], 0)
    assert server.made[0].unanswered == 0


@pytest.mark.parametrize(
    ("request_text", "status", "message"),
    [
        ("refused", GrpcStatus.NOT_FOUND, "50 %25 of gr%C3%B6%C3%9Fe is missing%0A"),
        ("boom", GrpcStatus.INTERNAL, "/t/Fails failed with RuntimeError; see the server's log"),
    ],
)
def test_errors_become_statuses(
    server: GrpcInMemory,
    client: Http2Client,
    request_text: str,
    status: GrpcStatus,
    message: str,
) -> None:
    response = client.call(FAILS, text(request_text))
    server.settle()
    assert (response.status, response.headers["grpc-message"]) == (status, message)


@pytest.mark.parametrize(
    ("path", "body", "headers", "status"),
    [
        ("/t/None", framed(b""), {}, GrpcStatus.UNIMPLEMENTED),
        (ECHO, framed(b"\xff"), {}, GrpcStatus.INVALID_ARGUMENT),
        (ECHO, framed(b"\x0a\x02\xc3\x28"), {}, GrpcStatus.INVALID_ARGUMENT),
        (ECHO, framed(b"\x1b" * 900), {}, GrpcStatus.INVALID_ARGUMENT),
        (ECHO, b"", {}, GrpcStatus.INVALID_ARGUMENT),
        (ECHO, framed(b"")[:3], {}, GrpcStatus.INVALID_ARGUMENT),
        (ECHO, framed(b"") * 2, {}, GrpcStatus.INVALID_ARGUMENT),
        (ECHO, b"\x07" + framed(b"")[1:], {}, GrpcStatus.INTERNAL),
        (ECHO, framed(b"", compressed=True), {}, GrpcStatus.INTERNAL),
        (ECHO, framed(b""), {"grpc-encoding": "br"}, GrpcStatus.UNIMPLEMENTED),
        (ECHO, framed(b""), {"grpc-timeout": "soon"}, GrpcStatus.INVALID_ARGUMENT),
        (ECHO, framed(b""), {"grpc-timeout": "0S"}, GrpcStatus.DEADLINE_EXCEEDED),
        (ECHO, framed(bytes(1001)), {}, GrpcStatus.RESOURCE_EXHAUSTED),
        (
            ECHO,
            framed(gzip.compress(bytes(1_000_000)), compressed=True),
            {"grpc-encoding": "gzip"},
            GrpcStatus.RESOURCE_EXHAUSTED,
        ),
        (
            ECHO,
            framed(b"no gzip", compressed=True),
            {"grpc-encoding": "gzip"},
            GrpcStatus.INTERNAL,
        ),
    ],
)
def test_bad_calls_get_a_status(
    service: Service, path: str, body: bytes, headers: dict[str, str], status: GrpcStatus
) -> None:
    server = GrpcInMemory(service.methods, GrpcConfig(largest_message=1000))
    client = server.connect()
    stream_id, response = client.open(path, headers)
    client.send(stream_id, body, end=True)
    server.settle()
    assert response.status == status, response
    assert response.headers["grpc-message"]
    # The connection goes on.
    again = client.call(ECHO, text("again"))
    server.settle()
    assert values(again.messages) == ["again"]
    assert (server.made[0].unanswered, server.used) == (0, 0)


def test_a_method_says_what_a_compressed_request_unpacks_to() -> None:
    """16 KiB would keep the reactor busy for 16 MiB, which the method refuses then."""
    limits = RequestLimits(largest=10_000, unpacked=5_000)
    echo = Unary(StringValue, lambda request, call: request, limits)
    server = GrpcInMemory({ECHO: echo})
    client = server.connect()
    statuses = {}
    for size, compressed in ((4000, True), (6000, True), (6000, False), (11_000, False)):
        body = text("x" * size)
        headers = {"grpc-encoding": "gzip"} if compressed else {}
        stream_id, response = client.open(ECHO, headers)
        sent = gzip.compress(body) if compressed else body
        client.send(stream_id, framed(sent, compressed=compressed), end=True)
        server.settle()
        statuses[size, compressed] = response.status
    assert statuses == {
        (4000, True): GrpcStatus.OK,
        (6000, True): GrpcStatus.RESOURCE_EXHAUSTED,
        (6000, False): GrpcStatus.OK,
        (11_000, False): GrpcStatus.RESOURCE_EXHAUSTED,
    }


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({":method": "GET"}, "405"),
        ({"content-type": "text/html"}, "415"),
        ({"content-type": "application/grpc-web"}, "415"),
    ],
)
def test_what_is_no_grpc_gets_a_status_of_http(
    server: GrpcInMemory, client: Http2Client, headers: dict[str, str], status: str
) -> None:
    _, response = client.open(ECHO, headers, end=True)
    server.settle()
    assert (response.headers[":status"], response.ended) == (status, True)


def test_a_compressed_request_is_read(server: GrpcInMemory, client: Http2Client) -> None:
    stream_id, response = client.open(ECHO, {"grpc-encoding": "gzip"})
    client.send(stream_id, framed(gzip.compress(text("x" * 5000)), compressed=True), end=True)
    server.settle()
    assert values(response.messages) == ["x" * 5000]


def test_unpacking_takes_little_time(server: GrpcInMemory, client: Http2Client) -> None:
    """However large messages may be."""
    stream_id, response = client.open(ECHO, {"grpc-encoding": "gzip"})
    client.send(stream_id, framed(gzip.compress(bytes(17 * 1024 * 1024)), compressed=True))
    server.settle()
    assert response.status == GrpcStatus.RESOURCE_EXHAUSTED


def test_the_deadline_ends_a_call(
    server: GrpcInMemory, client: Http2Client, service: Service
) -> None:
    response = client.call(LATER, text(""), grpc_timeout="1500m")
    ended: list[bool] = []
    server.settle()
    service.calls[0].on_end(lambda: ended.append(True))
    server.advance(1.4)
    assert not response.ended
    server.advance(0.2)
    server.settle()
    assert (response.status, ended) == (GrpcStatus.DEADLINE_EXCEEDED, [True])
    # What the handler says then is dropped.
    service.held[0].callback(StringValue())
    server.settle()
    assert server.used == 0


def test_a_client_that_resets_or_leaves_ends_its_calls(
    server: GrpcInMemory, client: Http2Client, service: Service
) -> None:
    ended: list[int] = []
    for number in range(2):
        client.call(LATER, text(""))
        server.settle()
        service.calls[number].on_end(lambda number=number: ended.append(number))  # type: ignore[misc]
    client.h2.reset_stream(1)
    client.flush()
    server.settle()
    assert (ended, service.calls[0].is_over) == ([0], True)
    client.transport.loseConnection()  # type: ignore[union-attr]
    server.settle()
    assert ended == [0, 1]
    assert len(server.listener.connections) == 0
    for held in service.held:
        held.callback(StringValue(value="too late"))
    assert server.used == 0


def test_large_messages_pass_windows_in_both_directions(
    server: GrpcInMemory, client: Http2Client
) -> None:
    value = "v" * 3_000_000
    body = framed(text(value))
    stream_id, response = client.open(ECHO)
    sent = 0
    while sent < len(body):
        room = min(client.h2.local_flow_control_window(stream_id), 16384, len(body) - sent)
        assert room, "the window is not opened again"
        client.send(stream_id, body[sent : sent + room], end=sent + room == len(body))
        sent += room
        server.settle(4)
    server.settle(400)
    assert values(response.messages) == [value]
    assert server.used == 0


def script() -> tuple[bytes, Http2Client]:
    """Returns the bytes of calls of all kinds, and the client that takes the answers."""
    client = Http2Client()
    client.corked = True
    client.call(ECHO, text("one"))
    stream_id, _ = client.open(CHAT)
    client.send(stream_id, framed(text("two")))
    client.h2.ping(b"12345678")
    client.call(COUNT, text("2"))
    client.send(stream_id, framed(text("three")), end=True)
    return client.h2.data_to_send(), client


def test_the_bytes_may_be_cut_anywhere(service: Service) -> None:
    """The same calls, cut into two at each place, and into single bytes."""
    data, _ = script()
    places: list[Any] = [[cut] for cut in range(1, len(data))]
    for cuts in [*places, range(1, len(data))]:
        server = GrpcInMemory(service.methods)
        _, client = script()
        connected = server.connect(lambda client=client: client)
        for piece in pieces(data, cuts):
            server.receive(piece)
        server.settle(2)
        assert [values(each.messages) for each in client.responses.values()] == [
            ["one"],
            ["TWO", "THREE"],
            ["0", "1"],
        ], cuts
        assert [each.status for each in client.responses.values()] == [0, 0, 0]
        connected.transport.loseConnection()


def test_headers_longer_than_a_frame_are_read(service: Service) -> None:
    config = GrpcConfig(connections=Http2Limits(header_list=64 * 1024))
    server = GrpcInMemory(service.methods, config)
    client = server.connect()
    client.corked = True
    response = client.call(ECHO, text("one"), long="h" * 40000)
    data = client.h2.data_to_send()
    for piece in pieces(data, range(1, len(data), 999)):
        server.receive(piece)
    server.settle()
    assert values(response.messages) == ["one"]
    assert service.calls[0].metadata["long"] == "h" * 40000
