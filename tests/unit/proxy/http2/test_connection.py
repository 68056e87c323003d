"""Connections of HTTP/2: limits, floods, slow readers, keepalive, the end."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from google.protobuf.wrappers_pb2 import BytesValue
from h2.errors import ErrorCodes
from h2.settings import SettingCodes
from hpack import Encoder
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    Frame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    PriorityFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)
from twisted.internet.defer import Deferred

from rocketmq_tw.net.limits import LONG_ROUND
from rocketmq_tw.proxy.grpc.interfaces import BothStreams, GrpcStatus, ICall, ServerStream, Unary
from rocketmq_tw.proxy.grpc.server import GrpcConfig
from rocketmq_tw.proxy.http2.frames import PREFACE
from rocketmq_tw.proxy.http2.limits import Http2Limits
from tests.support.http2 import GrpcInMemory, Http2Client, framed
from tests.support.memory_server import RawClient
from tests.unit.net.test_request_turns import Rounds

ECHO, LATER, MUCH, CHAT = "/t/Echo", "/t/Later", "/t/Much", "/t/Chat"
MIB = 1024 * 1024


class Service:
    """`held` are the calls of LATER that wait; MUCH sends as many MiB as its request has bytes, as
    fast as the client takes them."""

    def __init__(self) -> None:
        self.held: list[Deferred[BytesValue]] = []
        self.sent = 0
        self.calls: list[ICall] = []
        self.methods = {
            ECHO: Unary(BytesValue, lambda request, call: request),
            LATER: Unary(BytesValue, self.later),
            MUCH: ServerStream(BytesValue, self.much),
            CHAT: BothStreams(BytesValue, self.chat),
        }

    def later(self, request: BytesValue, call: ICall) -> Deferred[BytesValue]:
        self.held.append(Deferred())
        return self.held[-1]

    def much(self, request: BytesValue, call: ICall) -> Deferred[None]:
        done: Deferred[None] = Deferred()
        call.on_end(lambda: done.called or done.callback(None))
        left = len(request.value)

        def more() -> None:
            nonlocal left
            if not left:
                call.finish()
                return
            left -= 1
            self.sent += 1
            call.send(BytesValue(value=bytes(MIB)))
            call.when_ready(more)

        more()
        return done

    def chat(self, call: ICall) -> Callable[[BytesValue], None]:
        self.calls.append(call)
        return lambda message: call.send(message)


def value(data: bytes) -> bytes:
    return BytesValue(value=data).SerializeToString()


@pytest.fixture
def service() -> Service:
    return Service()


def served(service: Service, *, largest: int = 10 * MIB, streams: int = 1024) -> GrpcInMemory:
    config = GrpcConfig(largest_message=largest, connections=Http2Limits(streams=streams))
    return GrpcInMemory(service.methods, config)


def raw(server: GrpcInMemory) -> RawClient:
    """A client that sends frames of the test's own."""
    client = server.connect(RawClient)
    # What comes is no remoting.
    client.dataReceived = lambda data: None
    client.transport.write(PREFACE + SettingsFrame(0).serialize())
    server.settle()
    return client


# Streams


def test_streams_beyond_the_limit_are_refused(service: Service) -> None:
    server = served(service, streams=2)
    client = server.connect()
    assert client.h2.remote_settings.max_concurrent_streams == 2
    # As a client that has not heard of the limit.
    client.h2.remote_settings[SettingCodes.MAX_CONCURRENT_STREAMS] = 100
    client.h2.remote_settings.acknowledge()
    first, _, third = (client.call(LATER, value(b"")) for _ in range(3))
    server.settle()
    assert (third.reset, first.reset) == (ErrorCodes.REFUSED_STREAM, None)
    service.held[0].callback(BytesValue())
    fourth = client.call(LATER, value(b""))
    server.settle()
    assert (first.status, fourth.reset, len(service.held)) == (0, None, 3)


def test_work_that_goes_on_keeps_its_place_when_its_call_is_reset(service: Service) -> None:
    """Calls that are reset at once begin no more work than others (rapid reset)."""
    server = served(service, streams=5)
    client = server.connect()
    for _ in range(100):
        client.call(LATER, value(b""))
        client.h2.reset_stream(client.h2.highest_outbound_stream_id)
        client.flush()
        server.settle(3)
    assert len(service.held) == 5
    for held in service.held:
        held.callback(BytesValue())
    assert server.used == 0
    answered = client.call(ECHO, value(b"x"))
    server.settle()
    assert answered.status == 0


def test_what_a_call_holds_is_counted_until_its_work_ends(service: Service) -> None:
    server = served(service)
    client = server.connect()
    client.call(LATER, value(bytes(10_000)))
    server.settle()
    assert server.used >= 10_000
    client.transport.loseConnection()
    server.settle()
    assert server.used >= 10_000
    service.held[0].callback(BytesValue())
    assert server.used == 0


def test_requests_beyond_the_memory_of_the_server_are_refused(service: Service) -> None:
    server = GrpcInMemory(service.methods, max_bytes_in_flight=MIB)
    client = server.connect()
    stream_id, response = client.open(ECHO)
    client.send(stream_id, framed(bytes(3 * MIB))[:60_000])
    server.settle()
    assert server.used >= 60_000
    for _ in range(30):
        if response.ended:
            break
        client.send(stream_id, bytes(50_000))
        server.settle()
    assert response.status == GrpcStatus.RESOURCE_EXHAUSTED
    assert server.used == 0


def test_a_whole_request_that_does_not_end_is_counted_and_has_its_time(service: Service) -> None:
    server = GrpcInMemory(service.methods, max_bytes_in_flight=MIB)
    client = server.connect()
    waiting = [client.open(LATER, {"grpc-timeout": "99999999H"}) for _ in range(6)]
    for stream_id, _ in waiting:
        client.send(stream_id, framed(value(bytes(200_000))))
        server.settle()
        assert server.used <= MIB * 1.1
    refused = [response.status for _, response in waiting]
    assert refused == [-1] * 5 + [GrpcStatus.RESOURCE_EXHAUSTED]
    server.advance(61)
    assert {response.status for _, response in waiting[:5]} == {GrpcStatus.DEADLINE_EXCEEDED}
    assert server.used == 0


def test_a_request_that_is_complete_keeps_the_time_of_its_call(service: Service) -> None:
    server = served(service)
    client = server.connect()
    short, long, endless = (
        client.call(LATER, value(b""), **headers)
        for headers in ({"grpc_timeout": "1S"}, {"grpc_timeout": "100S"}, {})
    )
    server.advance(99)
    assert (short.status, long.status) == (GrpcStatus.DEADLINE_EXCEEDED, -1)
    server.advance(2)
    assert (long.status, endless.status) == (GrpcStatus.DEADLINE_EXCEEDED, -1)


@pytest.mark.parametrize("path", [LATER, CHAT])
def test_open_calls_and_their_headers_are_counted(service: Service, path: str) -> None:
    server = GrpcInMemory(service.methods, max_bytes_in_flight=MIB)
    client = server.connect()
    opened = []
    for _ in range(100):
        opened.append(client.open(path, {"x-long": "v" * 12_000})[1])
        server.settle(3)
    refused = [response for response in opened if response.ended]
    assert {response.status for response in refused} == {GrpcStatus.RESOURCE_EXHAUSTED}
    assert 20 < len(refused) < 60
    assert server.used <= MIB
    client.transport.loseConnection()
    server.settle()
    assert server.used == 0


def test_what_a_handler_holds_is_counted_until_it_ends(service: Service) -> None:
    class Holding(Service):
        def later(self, request: BytesValue, call: ICall) -> Deferred[BytesValue]:
            call.hold(len(request.value) * 1000)
            return super().later(request, call)

    holding = Holding()
    server = GrpcInMemory(holding.methods, max_bytes_in_flight=MIB)
    client = server.connect()
    taken, refused = (client.call(LATER, value(bytes(800))) for _ in range(2))
    server.settle()
    assert (taken.status, refused.status) == (-1, GrpcStatus.RESOURCE_EXHAUSTED)
    client.h2.reset_stream(1)
    client.flush()
    server.settle()
    assert server.used > 800_000
    holding.held[0].callback(BytesValue())
    assert server.used == 0


def test_a_connection_with_many_frames_takes_turns(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = served(service)
    greedy = server.connect()
    monkeypatch.setattr(server.made[0]._incoming._scheduler, "is_late", lambda: True)
    greedy.corked = True
    responses = [greedy.call(ECHO, value(b"")) for _ in range(100)]
    server.receive(greedy.h2.data_to_send())
    # A few frames are served; the others wait, and are counted.
    assert len(server.made[0]._incoming._later) > 150
    assert server.used > 1000
    greedy.corked = False
    server.settle(200)
    assert {each.status for each in responses} == {0}
    assert server.used == 0


def test_a_connection_that_is_lost_while_frames_wait_has_none_counted(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = served(service)
    greedy = server.connect()
    monkeypatch.setattr(server.made[0]._incoming._scheduler, "is_late", lambda: True)
    greedy.corked = True
    for _ in range(100):
        greedy.call(ECHO, value(b""))
    # What it sent last comes with the news of its end. The last frame is not whole.
    server.network.ends("10.0.0.1")[-1].break_off()
    server.receive(greedy.h2.data_to_send()[:-1])
    assert server.used > 1000
    server.settle(200)
    assert server.used == 0


def chat_in_one_frame(server: GrpcInMemory, *messages: bytes) -> Any:
    """A client, and the answers of a CHAT whose messages the server reads in one piece."""
    client = server.connect()
    chat, response = client.open(CHAT)
    server.settle()
    client.corked = True
    client.send(chat, b"".join(messages))
    server.receive(client.h2.data_to_send())
    client.corked = False
    return response


def slow_echo(service: Service, rounds: Rounds, seconds: float) -> GrpcInMemory:
    """A server whose ECHO takes so long each time."""

    def slow(request: BytesValue, call: ICall) -> BytesValue:
        rounds.rightNow += seconds
        return request

    service.methods[ECHO] = Unary(BytesValue, slow)
    return GrpcInMemory(service.methods, clock=rounds)


def test_messages_of_one_frame_take_turns(service: Service) -> None:
    rounds = Rounds()
    heard: list[int] = []

    def slow(call: ICall) -> Callable[[BytesValue], None]:
        def hear(message: BytesValue) -> None:
            rounds.rightNow += 0.012
            heard.append(int(message.value))

        return hear

    service.methods[CHAT] = BothStreams(BytesValue, slow)
    server = GrpcInMemory(service.methods, clock=rounds)
    other = server.connect()
    chat_in_one_frame(server, *[framed(value(b"%d" % number)) for number in range(186)])
    assert len(heard) == 2
    response = other.call(ECHO, value(b"hello"))
    took = [rounds.round() for _ in range(8)]
    assert max(took) <= 2 * LONG_ROUND and response.status == 0
    assert len(heard) < 40
    while rounds.calls and len(heard) < 186:
        assert rounds.round() <= 2 * LONG_ROUND
    assert heard == list(range(186))
    assert server.used < MIB


def test_frames_that_take_long_take_turns(service: Service) -> None:
    rounds = Rounds()
    server = slow_echo(service, rounds, 0.05)
    client = server.connect()
    client.corked = True
    responses = [client.call(ECHO, value(b"%d" % number)) for number in range(100)]
    server.receive(client.h2.data_to_send())
    client.corked = False
    assert rounds.rightNow < 0.1
    for _ in range(300):
        assert rounds.round() < 0.1
    assert {each.status for each in responses} == {0}


def test_one_dear_frame_of_each_of_many_clients_takes_turns(service: Service) -> None:
    rounds = Rounds()
    server = slow_echo(service, rounds, 0.03)
    clients = [server.connect() for _ in range(64)]
    answers = [client.call(ECHO, value(b"dear")) for client in clients]
    # What all of them have sent is read in one round.
    assert max(rounds.round() for _ in range(300)) < 0.1
    assert {each.status for each in answers} == {0}
    assert server.used == 0


def test_a_call_that_is_over_hears_nothing_more_of_a_frame(service: Service) -> None:
    heard: list[bytes] = []

    def once(call: ICall) -> Callable[[BytesValue], None]:
        def hear(message: BytesValue) -> None:
            heard.append(message.value)
            call.finish()

        return hear

    service.methods[CHAT] = BothStreams(BytesValue, once)
    server = served(service)
    # What stands behind is not even looked at.
    response = chat_in_one_frame(server, framed(value(b"a")), framed(value(b"b")), b"\xff" * 5)
    server.settle()
    assert heard == [b"a"] and response.status == 0


def test_a_connection_that_is_lost_drops_what_is_left_of_a_frame(service: Service) -> None:
    rounds = Rounds()
    heard: list[bytes] = []

    def slow(call: ICall) -> Callable[[BytesValue], None]:
        def hear(message: BytesValue) -> None:
            rounds.rightNow += 0.05
            heard.append(message.value)

        return hear

    service.methods[CHAT] = BothStreams(BytesValue, slow)
    server = GrpcInMemory(service.methods, clock=rounds)
    chat_in_one_frame(server, *[framed(value(b"x"))] * 10)
    server.network.ends("10.0.0.9")[-1].abortConnection()
    server.settle()
    assert len(heard) < 5 and server.used == 0


def test_settings_that_open_no_window_wake_no_stream(service: Service) -> None:
    server = served(service)
    client = server.connect()
    client.takes = False
    client.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 0})
    client.flush()
    server.settle()
    client.call(ECHO, value(b"hello"))
    server.settle()
    (stream,) = server.made[0]._streams.values()
    woken: list[None] = []
    server.made[0]._blocked[1] = cast(Any, SimpleNamespace(go_on=lambda: woken.append(None)))
    server.receive(SettingsFrame(0, {SettingCodes.INITIAL_WINDOW_SIZE: 0}).serialize())
    assert woken == [] and stream.queued


# Slow readers


def test_a_stream_waits_for_its_window(service: Service) -> None:
    server = served(service)
    client = server.connect()
    client.takes = False
    response = client.call(MUCH, value(bytes(4)))
    other = client.call(ECHO, value(b""))
    server.settle(200)
    assert service.sent == 1
    assert len(response.data) == 65535
    assert server.used < 2 * MIB
    # Calls without data are answered meanwhile; this one waits as the window is used up.
    assert not other.ended
    client.takes = True
    client.h2.acknowledge_received_data(65535, 1)
    client.flush()
    server.settle(400)
    assert (len(response.messages), response.status, other.status) == (4, 0, 0)
    assert server.used == 0


def test_a_blocked_stream_does_not_hold_up_others(service: Service) -> None:
    server = served(service)
    client = server.connect(lambda: Http2Client({SettingCodes.INITIAL_WINDOW_SIZE: 1000}))
    client.h2.increment_flow_control_window(10 * MIB)
    client.takes = False
    blocked = client.call(MUCH, value(b"1"))
    server.settle()
    answered = client.call(ECHO, value(b"x" * 500))
    server.settle()
    assert (len(blocked.data), answered.status) == (1000, 0)
    # Settings that come later open windows too.
    client.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 2 * MIB})
    client.flush()
    server.settle(100)
    assert len(blocked.messages) == 1


@pytest.mark.parametrize("window", [0, 100])
def test_a_stream_that_is_not_taken_is_cut(service: Service, window: int) -> None:
    server = served(service)
    client = server.connect(lambda: Http2Client({SettingCodes.INITIAL_WINDOW_SIZE: window}))
    client.takes = False
    stuck = client.call(MUCH, value(b"1"))
    answered = client.call(ECHO)
    client.h2.increment_flow_control_window(1000, 3)
    for _ in range(11):
        server.advance(5)
        # It takes a little of it.
        client.h2.increment_flow_control_window(10, 1)
        client.flush()
    assert stuck.reset is None and server.used > 900_000
    server.advance(11)
    assert stuck.reset == ErrorCodes.ENHANCE_YOUR_CALM
    assert server.used == 0
    server.settle()
    assert (answered.status, client.lost) == (0, False)


def test_a_stream_that_is_taken_slowly_is_not_cut(service: Service) -> None:
    server = served(service)
    client = server.connect(lambda: Http2Client({SettingCodes.INITIAL_WINDOW_SIZE: 0}))
    client.takes = False
    client.h2.increment_flow_control_window(10 * MIB)
    slow = client.call(MUCH, value(b"1"))
    server.settle()
    for _ in range(110):
        if slow.ended or slow.reset is not None:
            break
        client.h2.increment_flow_control_window(10_000, 1)
        client.flush()
        server.advance(5)
    assert (len(slow.messages), slow.status) == (1, 0)


def test_nothing_is_read_from_a_client_that_does_not_read(service: Service) -> None:
    server = served(service)
    client = server.connect(lambda: Http2Client({SettingCodes.INITIAL_WINDOW_SIZE: 2**31 - 1}))
    client.h2.increment_flow_control_window(2**31 - 1 - 65535)
    client.flush()
    server.settle()
    client.transport.hold()
    client.call(MUCH, value(bytes(50)))
    server.settle()
    # The transport's buffer, and what waits for it.
    assert service.sent <= 2
    assert server.used < 3 * MIB
    server.advance(59)
    assert not client.lost
    server.advance(10)
    assert len(server.listener.connections) == 0
    assert server.used == 0


@pytest.mark.parametrize("grown_by", ["settings", "a window"])
def test_many_streams_that_may_send_at_once_stop_where_the_client_does_not_read(
    service: Service, grown_by: str
) -> None:
    server = served(service)
    stream_window = 0 if grown_by == "settings" else 2**31 - 1
    client = server.connect(lambda: Http2Client({SettingCodes.INITIAL_WINDOW_SIZE: stream_window}))
    client.takes = False
    if grown_by == "settings":
        client.h2.increment_flow_control_window(100 * MIB)
    for _ in range(60):
        stream_id, _ = client.open(CHAT)
        client.send(stream_id, framed(value(bytes(60_000))))
        server.settle()
    waiting = server.used
    assert waiting > 3_000_000
    client.transport.hold()
    if grown_by == "settings":
        client.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 65_535})
    else:
        client.h2.increment_flow_control_window(100 * MIB)
    client.flush()
    server.settle()
    (connection,) = server.made
    unsent = sum(map(len, connection.transport.unsent))
    assert unsent < MIB // 2
    # What is not sent is counted still.
    assert server.used + unsent > waiting - MIB // 4


@pytest.mark.parametrize("frame_size", [16 * 1024, 2**24 - 1])
def test_a_client_of_large_frames_has_what_waits_for_it_counted(
    service: Service, frame_size: int
) -> None:
    server = served(service)
    settings = {
        SettingCodes.INITIAL_WINDOW_SIZE: 2**31 - 1,
        SettingCodes.MAX_FRAME_SIZE: frame_size,
    }
    client = server.connect(lambda: Http2Client(settings))
    client.h2.increment_flow_control_window(2**31 - 1 - 65535)
    client.flush()
    server.settle()
    client.transport.hold()
    response = client.call(MUCH, value(b"1"))
    server.settle()
    (connection,) = server.made
    unsent = sum(map(len, connection.transport.unsent))
    assert unsent < MIB // 4
    assert server.used + unsent > MIB
    client.transport.let_go()
    server.settle(200)
    assert (len(response.messages), response.status, server.used) == (1, 0, 0)


def test_headers_of_a_call_are_counted_with_what_they_take(service: Service) -> None:
    server = served(service)
    server.connect().open(CHAT, {f"x{number}": "" for number in range(300)})
    server.settle()
    assert server.used > 300 * 150


def test_answers_without_data_wait_for_a_client_that_does_not_read(service: Service) -> None:
    server = served(service)
    client = raw(server)
    client.transport.hold()
    encoder = Encoder()
    headers = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/" + b"\xff" * 250)]
    calls = b"".join(
        HeadersFrame(
            2 * number + 1, encoder.encode(headers), flags=["END_HEADERS", "END_STREAM"]
        ).serialize()
        for number in range(4000)
    )
    server.receive(calls[:65_000])
    (connection,) = server.made
    assert sum(map(len, connection.transport.unsent)) < MIB // 4
    assert server.used > 0
    client.transport.let_go()
    server.settle(200)
    assert server.used == 0 and not client.lost


def test_a_client_that_reads_slowly_gets_all(service: Service) -> None:
    server = served(service)
    client = server.connect(lambda: Http2Client({SettingCodes.INITIAL_WINDOW_SIZE: 2**31 - 1}))
    client.h2.increment_flow_control_window(2**31 - 1 - 65535)
    client.flush()
    response = client.call(MUCH, value(bytes(5)))
    for _ in range(60):
        client.transport.hold()
        server.settle(2)
        client.transport.let_go()
        server.settle(2)
    assert (len(response.messages), response.status) == (5, 0)


def test_a_client_that_asks_on_and_takes_nothing_is_refused(service: Service) -> None:
    server = served(service)
    client = server.connect()
    client.takes = False
    stream_id, response = client.open(CHAT)
    for _ in range(40):
        client.send(stream_id, framed(value(bytes(50_000))))
        server.settle()
        assert server.used < 2 * MIB
    client.takes = True
    client.h2.acknowledge_received_data(65535, stream_id)
    client.flush()
    server.settle(200)
    assert response.status == GrpcStatus.RESOURCE_EXHAUSTED
    assert server.used == 0


# Floods


@pytest.mark.parametrize(
    ("frame", "allowed"),
    [
        (PingFrame(0, b"12345678"), 2000),
        (SettingsFrame(0, {1: 4096}), 200),
        (PriorityFrame(1), 2000),
        (WindowUpdateFrame(0, 1), 2000),
        (RstStreamFrame(1), 2000),
        (GoAwayFrame(0), 2000),
    ],
)
def test_floods_end_the_connection(service: Service, frame: Frame, allowed: int) -> None:
    server = served(service)
    client = raw(server)
    client.transport.write(b"".join(_opened(1)) + frame.serialize() * (allowed - 50))
    server.settle()
    assert not client.lost
    client.transport.write(frame.serialize() * 100)
    server.settle()
    assert client.lost
    assert server.used == 0


def test_all_calls_may_be_reset_at_once(service: Service) -> None:
    server = served(service)
    client = server.connect()
    streams = [client.open(CHAT)[0] for _ in range(700)]
    server.settle(10)
    for stream_id in streams:
        client.h2.reset_stream(stream_id)
    client.flush()
    server.settle(10)
    assert not client.lost
    response = client.call(ECHO, value(b"x"))
    server.settle(3)
    assert response.status == 0


def test_empty_data_is_a_flood_too(service: Service) -> None:
    server = served(service)
    client = raw(server)
    client.transport.write(b"".join(_opened(1)) + DataFrame(1, b"").serialize() * 2100)
    server.settle()
    assert client.lost


@pytest.mark.parametrize(
    "frame",
    [
        DataFrame(1, b"", flags=["END_STREAM"]),
        HeadersFrame(1, b"\x82", flags=["END_HEADERS", "END_STREAM"]),
    ],
)
def test_frames_of_a_stream_that_is_over_are_a_flood_too(service: Service, frame: Frame) -> None:
    server = served(service)
    client = raw(server)
    refused = HeadersFrame(1, b"\x82", flags=["END_HEADERS"]).serialize()
    client.transport.write(refused + frame.serialize() * 1900)
    server.settle()
    assert not client.lost
    client.transport.write(frame.serialize() * 200)
    server.settle()
    assert client.lost
    assert server.used == 0


def _pong(value: bytes) -> bytes:
    frame: bytes = PingFrame(0, value, flags=["ACK"]).serialize()
    return frame


def test_the_answer_to_a_ping_leaves_with_what_leaves_next(service: Service) -> None:
    server = served(service)
    client = raw(server)
    came: list[bytes] = []
    client.dataReceived = came.append  # type: ignore[method-assign]
    client.transport.write(b"".join(_opened(1)) + PingFrame(0, b"12345678").serialize())
    server.settle()
    assert came == []
    client.transport.write(DataFrame(1, framed(value(b"said"))).serialize())
    server.settle()
    assert len(came) == 1 and came[0].startswith(_pong(b"12345678"))
    server.advance(0.1)
    assert len(came) == 1


def test_a_ping_is_answered_soon_though_nothing_else_leaves(service: Service) -> None:
    server = served(service)
    client = raw(server)
    came: list[bytes] = []
    client.dataReceived = came.append  # type: ignore[method-assign]
    for number in range(2):
        client.transport.write(PingFrame(0, b"ping%04d" % number).serialize())
    server.settle()
    server.advance(0.01)
    assert came == [_pong(b"ping0000") + _pong(b"ping0001")]


def test_ordinary_calls_are_no_flood(service: Service) -> None:
    """A ping and a window for each answer, for thousands of calls within a second."""
    server = served(service)
    client = server.connect()
    for _ in range(700):
        response = client.call(ECHO, value(b"x" * 600))
        client.h2.ping(b"12345678")
        client.h2.increment_flow_control_window(1)
        client.flush()
        server.settle(3)
        assert response.status == 0
    assert not client.lost


def _opened(stream_id: int) -> list[bytes]:
    """A request whose body does not end."""
    client = Http2Client()
    client.corked = True
    client.h2.data_to_send()
    client.open(CHAT)
    return [client.h2.data_to_send()]


def test_a_header_block_without_end_is_bounded(service: Service) -> None:
    server = served(service)
    client = raw(server)
    client.transport.write(HeadersFrame(1, b"\x00" * 100).serialize())
    for _ in range(100):
        client.transport.write(ContinuationFrame(1, b"\x00" * 1000).serialize())
        server.settle(2)
        assert server.used < 40_000
    assert client.lost
    client = raw(server)
    client.transport.write(HeadersFrame(1, b"").serialize())
    client.transport.write(ContinuationFrame(1, b"").serialize() * 5000)
    server.settle()
    assert client.lost


def test_a_header_bomb_is_refused(service: Service) -> None:
    """A table entry of 4000 bytes, named again and again by one byte each."""
    server = served(service)
    client = raw(server)
    bomb = b"\x40\x01a\x7f\xa1\x1e" + b"b" * 4000 + b"\xbe" * 10_000
    frame = HeadersFrame(1, bomb, flags=["END_HEADERS"])
    client.transport.write(frame.serialize())
    server.settle()
    assert client.lost
    assert server.used == 0


def test_a_large_header_table_is_not_ours(service: Service) -> None:
    """A client that wants a table of 1 GiB for our headers does not get it, nor does one pay for
    a table that may have nothing."""
    server = served(service)
    client = server.connect()
    client.h2.update_settings({SettingCodes.HEADER_TABLE_SIZE: 2**30})
    client.flush()
    server.settle()
    response = client.call(ECHO, value(b""))
    server.settle()
    assert response.status == 0
    assert not client.h2.decoder.header_table.dynamic_entries


@pytest.mark.parametrize(
    "data",
    [
        b"PRI * HTTP/1.1\r\n\r\n",
        PREFACE + b"\xff\xff\xff\x00\x00\x00\x00\x00\x01",
        PREFACE + DataFrame(1, b"idle").serialize(),
        PREFACE + ContinuationFrame(1, b"").serialize(),
        PREFACE + HeadersFrame(1, b"").serialize() + PingFrame(0, b"12345678").serialize(),
        PREFACE + HeadersFrame(2, b"\x82", flags=["END_HEADERS"]).serialize(),
        PREFACE + bytes([0, 0, 1, 1, 0, 0, 0, 0, 0, 0x82]),
        PREFACE + HeadersFrame(1, b"\xff\xff\xff\xff\xff", flags=["END_HEADERS"]).serialize(),
        PREFACE
        + PingFrame(0, b"12345678").serialize()[:3]
        + b"\x06\x00\x00\x00\x00\x01"
        + b"x" * 8,
        PREFACE + WindowUpdateFrame(0, 2**31 - 1).serialize() * 2,
        PREFACE + bytes([0, 0, 0, 8, 0, 0, 0, 0, 0]),
        PREFACE + SettingsFrame(0, {4: 2**31}).serialize(),
    ],
)
def test_what_breaks_the_rules_ends_the_connection(service: Service, data: bytes) -> None:
    server = served(service)
    client = server.connect(RawClient)
    client.dataReceived = lambda data: None
    client.transport.write(data)
    server.settle()
    server.advance(6)
    assert client.lost
    assert len(server.listener.connections) == 0
    assert server.used == 0


@pytest.mark.parametrize("seed", range(10))
def test_random_bytes_and_changed_frames_leave_nothing(service: Service, seed: int) -> None:
    """Other connections go on, and nothing is held at the end."""
    server = served(service)
    good = server.connect()
    chance = random.Random(seed)
    for _ in range(20):
        client = raw(server)
        sender = Http2Client()
        sender.corked = True
        sender.h2.data_to_send()
        for _ in range(5):
            sender.call(chance.choice([ECHO, LATER, MUCH, CHAT]), value(bytes(20)))
        data = bytearray(sender.h2.data_to_send())
        for _ in range(chance.randrange(1, 10)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        client.transport.write(bytes(data))
        server.settle(5)
        client.transport.loseConnection()
        server.settle(5)
    response = good.call(ECHO, value(b"good"))
    server.settle()
    assert response.status == 0, seed
    for held in service.held:
        held.callback(BytesValue())
    assert len(server.listener.connections) == 1, seed
    assert server.used == 0, seed


# Time


def test_an_idle_connection_is_told_and_closed(service: Service) -> None:
    server = served(service)
    client = server.connect()
    client.call(ECHO, value(b""))
    server.settle()
    server.advance(115)
    assert not client.lost
    server.advance(15)
    server.settle()
    assert client.lost
    assert client.goaway == (ErrorCodes.NO_ERROR, b"idle")


def test_a_stream_keeps_its_connection(service: Service) -> None:
    server = served(service)
    client = server.connect()
    client.open(CHAT)
    for _ in range(10):
        server.advance(60)
        server.settle()
    assert not client.lost


def test_a_client_that_is_gone_is_noticed(service: Service) -> None:
    server = served(service)
    client = server.connect()
    client.open(CHAT)
    server.settle()
    client.transport.freeze()
    server.advance(90)
    assert service.calls[0].is_over
    assert len(server.listener.connections) == 0


# The end


def test_a_server_that_stops_lets_calls_end(service: Service) -> None:
    server = served(service)
    client = server.connect()
    waiting = client.call(LATER, value(b""))
    _, talk = client.open(CHAT)
    server.settle()
    stopped: list[Any] = []
    server.remoting.stop(10).addBoth(stopped.append)
    server.settle()
    assert talk.status == GrpcStatus.UNAVAILABLE
    assert client.goaway is not None
    service.held[0].callback(BytesValue(value=b"answer"))
    server.advance(1)
    server.settle()
    assert (waiting.status, client.lost, stopped) == (0, True, [None])


def test_a_second_goodbye_names_no_later_stream(service: Service) -> None:
    """RFC 9113, section 6.8."""
    server = served(service)
    client = server.connect()
    client.call(LATER, value(b""))
    server.settle()
    server.remoting.stop(10)
    # On its way when the client was told, and data of no stream, which breaks a rule.
    late = HeadersFrame(3, b"\x82", flags=["END_HEADERS"]).serialize()
    client.transport.write(late + bytes(9))
    server.settle()
    assert client.last_streams == [1, 1]


def test_calls_that_do_not_end_are_cut(service: Service) -> None:
    server = served(service)
    client = server.connect()
    client.call(LATER, value(b""))
    server.settle()
    stopped: list[Any] = []
    server.remoting.stop(3).addBoth(stopped.append)
    server.advance(4)
    server.settle()
    assert (client.lost, stopped) == (True, [None])


def test_a_client_that_says_goodbye_still_gets_its_answers(service: Service) -> None:
    """As the Java client, which sends GOAWAY and waits for its calls."""
    server = served(service)
    client = server.connect()
    waiting = client.call(LATER, value(b""))
    server.settle()
    client.transport.write(GoAwayFrame(0, 0, 0).serialize())
    server.settle()
    service.held[0].callback(BytesValue())
    server.settle()
    assert waiting.status == 0
