"""What the state of a connection makes of frames, with h2 at the other end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    RemoteSettingsChanged,
    ResponseReceived,
    SettingsAcknowledged,
    StreamEnded,
    StreamReset,
    TrailersReceived,
    WindowUpdated,
)
from h2.settings import SettingCodes
from hpack import Encoder
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    Frame,
    HeadersFrame,
    PushPromiseFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)

from rocketmq_tw.proxy.http2.engine import Http2Engine
from rocketmq_tw.proxy.http2.frames import (
    PREFACE,
    ErrorCodes,
    FrameSplitter,
    Http2Error,
    go_away,
)
from rocketmq_tw.proxy.http2.interfaces import RequestHeaders
from rocketmq_tw.proxy.http2.limits import Http2Limits

REQUEST = [
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":authority", b"a"),
    (b":path", b"/a/B"),
    (b"te", b"trailers"),
]
TEXTS = [(name.decode(), value.decode()) for name, value in REQUEST]
LIMITS = Http2Limits(stream_window=1000, connection_window=70_000)


class Side:
    """A server's state, and all that it was told."""

    def __init__(self, limits: Http2Limits = LIMITS) -> None:
        self.told: list[tuple[Any, ...]] = []
        self.engine = Http2Engine(limits, self)
        self._splitter = FrameSplitter(20_000)
        self._splitter.feed(PREFACE)

    def take(self, data: bytes) -> list[tuple[Any, ...]]:
        """What the engine tells of these bytes."""
        self.told = []
        for frame in self._splitter.feed(data):
            self.engine.receive(frame)
        return self.told

    # IEngineEvents

    def request_came(self, stream_id: int, headers: RequestHeaders, *, ended: bool) -> None:
        self.told.append(("request", stream_id, list(headers), ended))

    def data_came(self, stream_id: int, data: bytes, size: int, *, ended: bool) -> None:
        self.told.append(("data", stream_id, data, size, ended))

    def request_ended(self, stream_id: int) -> None:
        self.told.append(("ended", stream_id))

    def stream_was_reset(self, stream_id: int) -> None:
        self.told.append(("reset", stream_id))
        self.engine.forget(stream_id)

    def window_grew(self, stream_id: int) -> None:
        self.told.append(("window", stream_id))

    def all_windows_grew(self) -> None:
        self.told.append(("all windows",))


class Pair(Side):
    """A server's state before h2 as its client."""

    def __init__(self, limits: Http2Limits = LIMITS) -> None:
        super().__init__(limits)
        self.client = H2Connection(H2Configuration(client_side=True))
        self.client.initiate_connection()
        assert self.client.data_to_send().startswith(PREFACE)

    def come(self) -> list[tuple[Any, ...]]:
        """What the engine tells of what the client has sent."""
        return self.take(self.client.data_to_send())

    def go(self) -> list[Any]:
        """What the client makes of what the engine has sent."""
        events: list[Any] = self.client.receive_data(self.engine.data_to_send())
        return events


def test_a_connection_begins_with_our_limits() -> None:
    pair = Pair()
    first = pair.go()
    assert any(isinstance(each, RemoteSettingsChanged) for each in first)
    settings = pair.client.remote_settings
    assert settings.initial_window_size == LIMITS.stream_window
    assert settings.max_concurrent_streams == LIMITS.streams
    assert settings.max_header_list_size == LIMITS.header_list
    assert pair.client.outbound_flow_control_window == LIMITS.connection_window
    # Its acknowledgement says nothing.
    assert pair.come() == []


@pytest.mark.parametrize("padding", [None, 0, 7])
def test_a_request_and_its_response(padding: int | None) -> None:
    pair = Pair()
    pair.go()
    pair.client.send_headers(1, REQUEST, priority_weight=3)
    assert pair.come() == [("request", 1, TEXTS, False)]
    pair.client.send_data(1, b"asked", end_stream=True, pad_length=padding)
    size = 5 if padding is None else 6 + padding
    assert pair.come() == [("data", 1, b"asked", size, True)]
    pair.engine.send_headers(1, ((b":status", b"200"),))
    pair.engine.send_data(1, b"answer")
    pair.engine.send_headers(1, ((b"grpc-status", b"0"),), end_stream=True)
    pair.engine.forget(1)
    headers, data, trailers, ended = pair.go()
    assert isinstance(headers, ResponseReceived) and isinstance(data, DataReceived)
    assert isinstance(trailers, TrailersReceived) and isinstance(ended, StreamEnded)
    assert data.data == b"answer"


def test_trailers_of_a_client_end_its_request() -> None:
    pair = Pair()
    pair.client.send_headers(1, REQUEST)
    pair.client.send_headers(1, [(b"x-sum", b"1")], end_stream=True)
    assert pair.come()[1:] == [("ended", 1)]


def test_a_block_in_several_frames_is_one() -> None:
    side = Side()
    block = Encoder().encode([*REQUEST, (b"x-long", b"x" * 500)])
    parts = [
        HeadersFrame(1, block[:10], flags=["END_STREAM"]),
        ContinuationFrame(1, block[10:11]),
        ContinuationFrame(1, b""),
        ContinuationFrame(1, block[11:], flags=["END_HEADERS"]),
    ]
    told = side.take(b"".join(part.serialize() for part in parts))
    assert told == [("request", 1, [*TEXTS, ("x-long", "x" * 500)], True)]


def test_windows_go_down_with_data_and_up_again() -> None:
    pair = Pair()
    pair.client.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 100})
    assert pair.come() == []
    pair.client.send_headers(1, REQUEST, end_stream=True)
    pair.come()
    engine = pair.engine
    assert engine.local_flow_control_window(1) == 100
    engine.send_headers(1, ((b":status", b"200"),))
    engine.send_data(1, b"x" * 100)
    assert engine.local_flow_control_window(1) == 0
    assert engine.outbound_flow_control_window == 65435
    assert any(isinstance(each, SettingsAcknowledged) for each in pair.go())
    pair.client.increment_flow_control_window(30, 1)
    pair.client.increment_flow_control_window(7)
    assert pair.come() == [("window", 1), ("window", 0)]
    assert engine.local_flow_control_window(1) == 30
    assert engine.outbound_flow_control_window == 65442
    # A smaller first window takes from those that are open, below 0.
    pair.client.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 10})
    pair.come()
    assert engine.local_flow_control_window(1) == -60
    pair.client.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 11})
    assert pair.come() == [("all windows",)]


def test_a_client_has_the_window_that_it_was_given() -> None:
    pair = Pair()
    pair.go()
    pair.client.send_headers(1, REQUEST)
    pair.client.send_data(1, b"x" * 1000)
    pair.come()
    pair.engine.increment_flow_control_window(500, 1)
    pair.engine.increment_flow_control_window(9)
    assert [type(each) for each in pair.go()] == [WindowUpdated, WindowUpdated]
    assert pair.client.local_flow_control_window(1) == 500
    pair.client.send_data(1, b"x" * 500)
    assert pair.come() == [("data", 1, b"x" * 500, 500, False)]
    with pytest.raises(Http2Error) as caught:
        pair.take(DataFrame(1, b"x").serialize())
    assert caught.value.code == ErrorCodes.FLOW_CONTROL_ERROR


def test_a_connections_window_holds_for_all_streams_even_those_that_are_over() -> None:
    side = Side(Http2Limits(stream_window=10**6, connection_window=70_000))
    open_and_reset(side)
    data = DataFrame(1, b"x" * 10_000).serialize()
    assert side.take(data * 7) == [("data", 1, b"", 10_000, False)] * 7
    with pytest.raises(Http2Error) as caught:
        side.take(DataFrame(1, b"x").serialize())
    assert caught.value.code == ErrorCodes.FLOW_CONTROL_ERROR


def test_a_client_hears_of_a_reset_and_of_the_end() -> None:
    pair = Pair()
    pair.client.send_headers(1, REQUEST)
    pair.come()
    pair.engine.reset_stream(1, ErrorCodes.REFUSED_STREAM)
    reset = pair.go()[-1]
    assert isinstance(reset, StreamReset)
    assert reset.error_code == ErrorCodes.REFUSED_STREAM
    (end,) = pair.client.receive_data(go_away(1, ErrorCodes.ENHANCE_YOUR_CALM, b"why"))
    assert isinstance(end, ConnectionTerminated)
    assert (end.last_stream_id, end.additional_data) == (1, b"why")
    assert end.error_code == ErrorCodes.ENHANCE_YOUR_CALM


def test_a_client_may_reset_a_stream() -> None:
    pair = Pair()
    pair.client.send_headers(1, REQUEST)
    pair.client.reset_stream(1, ErrorCodes.CANCEL)
    assert pair.come()[1:] == [("reset", 1)]


def open_and_reset(side: Side) -> None:
    side.take(opened(1, ended=False))
    side.engine.reset_stream(1, ErrorCodes.CANCEL)
    side.engine.forget(1)


def test_what_was_under_way_when_a_stream_was_reset_is_no_mistake() -> None:
    side = Side()
    open_and_reset(side)
    late = [
        DataFrame(1, b"late"),
        WindowUpdateFrame(1, 5),
        RstStreamFrame(1, 8),
        HeadersFrame(1, b"\x82", flags=["END_HEADERS", "END_STREAM"]),
    ]
    told = side.take(b"".join(frame.serialize() for frame in late))
    assert told == [("data", 1, b"", 4, False), ("ended", 1)]


def test_headers_that_nobody_wants_are_in_the_table_for_later_ones() -> None:
    side, client = Side(), Encoder()
    open_and_reset(side)
    late = HeadersFrame(1, client.encode([(b"x", b"kept")]), flags=["END_HEADERS", "END_STREAM"])
    side.take(late.serialize())
    block = client.encode([(b"x", b"kept")])
    assert len(block) == 1
    told = side.take(HeadersFrame(3, block, flags=["END_HEADERS"]).serialize())
    assert told == [("request", 3, [("x", "kept")], False)]


def opened(stream_id: int, *, ended: bool) -> bytes:
    flags = ["END_HEADERS", "END_STREAM"] if ended else ["END_HEADERS"]
    data: bytes = HeadersFrame(stream_id, b"\x83", flags=flags).serialize()
    return data


def _raw(kind: int, flags: int, stream_id: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3) + bytes([kind, flags]) + stream_id.to_bytes(4) + payload


PROTOCOL, CLOSED = ErrorCodes.PROTOCOL_ERROR, ErrorCodes.STREAM_CLOSED
SIZE, FLOW = ErrorCodes.FRAME_SIZE_ERROR, ErrorCodes.FLOW_CONTROL_ERROR


def _serialized(frame: Frame) -> bytes:
    data: bytes = frame.serialize()
    return data


@pytest.mark.parametrize(
    ("data", "code"),
    [
        # Stream 1 is open, stream 3 has ended, stream 5 is over.
        (_serialized(DataFrame(3, b"x")), CLOSED),
        (opened(3, ended=True), CLOSED),
        (opened(5, ended=True), CLOSED),
        (opened(1, ended=False), PROTOCOL),
        (opened(8, ended=True), PROTOCOL),
        (opened(2, ended=True), PROTOCOL),
        (_raw(1, 4, 0, b"\x83"), PROTOCOL),
        (_serialized(DataFrame(7, b"idle")), PROTOCOL),
        (_serialized(DataFrame(2, b"ours")), PROTOCOL),
        (_raw(0, 0, 0, b"x"), PROTOCOL),
        (_serialized(RstStreamFrame(7)), PROTOCOL),
        (_serialized(WindowUpdateFrame(7, 1)), PROTOCOL),
        (_raw(3, 0, 1, b"abc"), SIZE),
        (_raw(8, 0, 1, b"abc"), SIZE),
        (_raw(8, 0, 1, bytes(4)), PROTOCOL),
        (_raw(8, 0, 0, bytes(4)), PROTOCOL),
        (_serialized(WindowUpdateFrame(1, 2**31 - 1)), FLOW),
        (_serialized(WindowUpdateFrame(0, 2**31 - 1)), FLOW),
        # Padding that is longer than its frame, or not there.
        (_raw(0, 8, 1, b"\x03abc"[:3]), PROTOCOL),
        (_raw(0, 8, 1, b""), PROTOCOL),
        (_raw(1, 0xC, 7, b"\x02\x82"), PROTOCOL),
        # A priority that is cut off, and a stream that waits for itself.
        (_raw(1, 0x24, 7, b"\x00\x00\x00\x01"), SIZE),
        (_raw(1, 0x24, 7, b"\x00\x00\x00\x07\x10\x82"), PROTOCOL),
        (_serialized(PushPromiseFrame(1, 2, b"", flags=["END_HEADERS"])), PROTOCOL),
        (_raw(4, 0, 1, b""), PROTOCOL),
        (_raw(4, 0, 0, bytes(5)), SIZE),
        (_raw(4, 1, 0, bytes(6)), SIZE),
        (_serialized(SettingsFrame(0, {2: 2})), PROTOCOL),
        (_serialized(SettingsFrame(0, {4: 2**31})), FLOW),
        (_serialized(SettingsFrame(0, {5: 16383})), PROTOCOL),
        (_serialized(SettingsFrame(0, {5: 2**24})), PROTOCOL),
    ],
)
def test_what_breaks_a_rule_is_named(data: bytes, code: ErrorCodes) -> None:
    side = Side()
    side.take(opened(1, ended=False) + opened(3, ended=True))
    side.take(opened(5, ended=True))
    side.engine.forget(5)
    with pytest.raises(Http2Error) as caught:
        side.take(data)
    assert caught.value.code == code


def test_windows_of_streams_that_new_settings_make_too_large_end_the_connection() -> None:
    side = Side()
    side.take(opened(1, ended=False) + _serialized(WindowUpdateFrame(1, 2**31 - 1 - 65535)))
    with pytest.raises(Http2Error) as caught:
        side.take(_serialized(SettingsFrame(0, {4: 65536})))
    assert caught.value.code == FLOW


@pytest.mark.parametrize("step", [1, 2, 9, 13])
def test_it_is_the_same_however_the_bytes_are_cut(step: int) -> None:
    def conversation(send: Callable[[bytes], object]) -> None:
        client = H2Connection(H2Configuration(client_side=True))
        client.initiate_connection()
        client.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 5})
        client.send_headers(1, REQUEST)
        client.send_data(1, b"abc", pad_length=3)
        client.send_headers(3, REQUEST, end_stream=True)
        client.increment_flow_control_window(5, 1)
        client.send_headers(1, [(b"x", b"y")], end_stream=True)
        client.reset_stream(3, 8)
        send(client.data_to_send().removeprefix(PREFACE))

    whole, cut, told = Side(), Side(), []

    def in_parts(data: bytes) -> None:
        for start in range(0, len(data), step):
            told.extend(cut.take(data[start : start + step]))

    conversation(whole.take)
    conversation(in_parts)
    assert told == whole.told
    assert len(told) == 6
