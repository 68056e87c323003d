"""The HTTP/2 state of a server's connection (RFC 9113): windows, settings, header blocks and which
streams there are. It takes whole frames and returns bytes; what it says no to ends the
connection."""

from __future__ import annotations

from struct import Struct
from typing import Protocol

from rocketmq_tw.proxy.http2.frames import (
    ACK,
    END_HEADERS,
    END_STREAM,
    HEADER_LENGTH,
    LARGEST_PAYLOAD,
    PADDED,
    PRIORITY,
    ErrorCodes,
    FrameType,
    Http2Error,
    Http2Frame,
    make_frame,
)
from rocketmq_tw.proxy.http2.header_blocks import NO_TABLE, HeaderDecoder, encode_headers
from rocketmq_tw.proxy.http2.interfaces import HeaderList, RequestHeaders
from rocketmq_tw.proxy.http2.limits import Http2Limits

#: HTTP/2's window at the beginning.
_FIRST_WINDOW = 65535
_MOST_WINDOW = 2**31 - 1
#: Streams whose end by a reset is remembered: what their client had sent by then is no mistake.
_MOST_REMEMBERED = 100
#: Bytes of the fields of a HEADERS frame that say a priority.
_PRIORITY_LENGTH = 5

_NUMBER = Struct(">L")
_SETTING = Struct(">HL")

# Looked up once: each look into an enumeration costs, and these are for each frame.
_DATA = int(FrameType.DATA)
_HEADERS = int(FrameType.HEADERS)

# Settings (section 6.5.2)
_ENABLE_PUSH = 0x2
_MAX_CONCURRENT_STREAMS = 0x3
_INITIAL_WINDOW_SIZE = 0x4
_MAX_FRAME_SIZE = 0x5
_MAX_HEADER_LIST_SIZE = 0x6
_LARGEST_FRAME = 2**24 - 1


class IEngineEvents(Protocol):
    """Told what the client does, while its frame is received."""

    def request_came(self, stream_id: int, headers: RequestHeaders, *, ended: bool) -> None:
        """A new stream; with `ended` the client has sent all of it."""

    def data_came(self, stream_id: int, data: bytes, size: int, *, ended: bool) -> None:
        """Data, which took `size` bytes of the windows; of a stream that may be over."""

    def request_ended(self, stream_id: int) -> None:
        """The client has sent all of a stream, which may be over."""

    def stream_was_reset(self, stream_id: int) -> None:
        """The client does not want the stream any more."""

    def window_grew(self, stream_id: int) -> None:
        """The client takes more of a stream; of all together where it is 0."""

    def all_windows_grew(self) -> None:
        """The windows of all streams have grown."""


class _Stream:
    __slots__ = ("client_ended", "inbound", "outbound")

    def __init__(self, inbound: int, outbound: int, *, client_ended: bool) -> None:
        #: What the client may send, and what it takes.
        self.inbound = inbound
        self.outbound = outbound
        self.client_ended = client_ended


class Http2Engine:
    """Keeps what a connection's two ends know of each other."""

    def __init__(self, limits: Http2Limits, events: IEngineEvents) -> None:
        self._events = events
        self._decoder = HeaderDecoder(limits.header_list)
        self._streams: dict[int, _Stream] = {}
        #: Those that we reset last, in order.
        self._reset: dict[int, None] = {}
        self._stream_window = limits.stream_window
        self._inbound = limits.connection_window
        self._first_outbound = _FIRST_WINDOW
        #: The highest stream that the client opened.
        self.highest_inbound_stream_id = 0
        #: Bytes that the client takes of all streams together, and of one frame.
        self.outbound_flow_control_window = _FIRST_WINDOW
        self.max_outbound_frame_size = LARGEST_PAYLOAD
        #: The header block that is not complete, its frame's flags and what it has so far.
        self._block: bytearray | None = None
        self._block_flags = 0
        self._told_no_table = False
        self._out: list[bytes] = []
        settings = (
            (_MAX_CONCURRENT_STREAMS, limits.streams),
            (_INITIAL_WINDOW_SIZE, limits.stream_window),
            (_MAX_HEADER_LIST_SIZE, limits.header_list),
        )
        payload = b"".join([_SETTING.pack(*each) for each in settings])
        self._send(FrameType.SETTINGS, 0, 0, payload)
        if limits.connection_window > _FIRST_WINDOW:
            grown = limits.connection_window - _FIRST_WINDOW
            self._send(FrameType.WINDOW_UPDATE, 0, 0, _NUMBER.pack(grown))

    # What goes

    def data_to_send(self) -> bytes:
        """Returns the frames that were made since the last call."""
        out = self._out
        if not out:
            return b""
        data = b"".join(out)
        out.clear()
        return data

    def send_headers(
        self, stream_id: int, headers: HeaderList, *, end_stream: bool = False
    ) -> None:
        """Sends a response's headers or trailers, which take one frame."""
        block = encode_headers(headers)
        if not self._told_no_table:
            self._told_no_table = True
            block = NO_TABLE + block
        flags = END_HEADERS | END_STREAM if end_stream else END_HEADERS
        self._out.append(make_frame(_HEADERS, flags, stream_id, block))

    def send_data(self, stream_id: int, data: bytes | memoryview) -> None:
        """Sends data of a stream, not more than its window, the connection's and a frame take."""
        self._streams[stream_id].outbound -= len(data)
        self.outbound_flow_control_window -= len(data)
        self._out.append(make_frame(_DATA, 0, stream_id, data))

    def reset_stream(self, stream_id: int, code: int) -> None:
        """Ends a stream without the rest; what its client still sends is passed over."""
        self._send(FrameType.RST_STREAM, 0, stream_id, _NUMBER.pack(code))
        remembered = self._reset
        remembered[stream_id] = None
        if len(remembered) > _MOST_REMEMBERED:
            del remembered[next(iter(remembered))]

    def increment_flow_control_window(self, size: int, stream_id: int = 0) -> None:
        """Lets the client send so many bytes more, of a stream or of all together."""
        if not stream_id:
            self._inbound += size
        else:
            self._streams[stream_id].inbound += size
        self._send(FrameType.WINDOW_UPDATE, 0, stream_id, _NUMBER.pack(size))

    def local_flow_control_window(self, stream_id: int) -> int:
        """Returns how many bytes the client takes of a stream now."""
        return min(self._streams[stream_id].outbound, self.outbound_flow_control_window)

    def forget(self, stream_id: int) -> None:
        """Drops a stream that is over."""
        self._streams.pop(stream_id, None)

    def _send(self, kind: int, flags: int, stream_id: int, payload: bytes = b"") -> None:
        self._out.append(make_frame(kind, flags, stream_id, payload))

    # What comes

    def receive(self, frame: Http2Frame) -> None:
        """Takes a frame that the client sent, header blocks in one piece as `FrameSplitter` checks;
        raises `Http2Error`."""
        kind = frame.type
        if kind == _DATA:
            self._data(frame)
        elif kind == _HEADERS:
            self._headers(frame)
        elif kind == FrameType.CONTINUATION:
            self._continuation(frame)
        elif kind == FrameType.WINDOW_UPDATE:
            self._window_update(frame)
        elif kind == FrameType.RST_STREAM:
            self._rst_stream(frame)
        elif kind == FrameType.SETTINGS:
            self._settings(frame)
        elif kind == FrameType.PUSH_PROMISE:
            raise _against("a client promises a stream")

    def _data(self, frame: Http2Frame) -> None:
        size = len(frame.data) - HEADER_LENGTH
        stream = self._streams.get(frame.stream_id)
        ended = bool(frame.flags & END_STREAM)
        data = _without_padding(frame) if frame.flags & PADDED else frame.data[HEADER_LENGTH:]
        self._inbound -= size
        if self._inbound < 0:
            raise _overflow("more data than the connection's window has room for")
        if stream is None:
            self._check_over(frame)
            data, ended = b"", False
        elif stream.client_ended:
            raise Http2Error(
                ErrorCodes.STREAM_CLOSED, f"data behind the end of stream {frame.stream_id}"
            )
        else:
            stream.client_ended = ended
            stream.inbound -= size
            if stream.inbound < 0:
                raise _overflow(f"more data than stream {frame.stream_id} has room for")
        self._events.data_came(frame.stream_id, data, size, ended=ended)

    def _headers(self, frame: Http2Frame) -> None:
        flags = frame.flags
        block = _without_padding(frame) if flags & PADDED else frame.data[HEADER_LENGTH:]
        if flags & PRIORITY:
            if len(block) < _PRIORITY_LENGTH:
                raise Http2Error(ErrorCodes.FRAME_SIZE_ERROR, "a HEADERS without its priority")
            if _NUMBER.unpack_from(block)[0] & 0x7FFFFFFF == frame.stream_id:
                raise _against(f"stream {frame.stream_id} depends on itself")
            block = block[_PRIORITY_LENGTH:]
        if flags & END_HEADERS:
            self._block_came(frame.stream_id, block, ended=bool(flags & END_STREAM))
        else:
            self._block, self._block_flags = bytearray(block), flags

    def _continuation(self, frame: Http2Frame) -> None:
        block = self._block
        if block is None:
            raise _against("a CONTINUATION without its HEADERS")
        block += frame.data[HEADER_LENGTH:]
        if frame.flags & END_HEADERS:
            self._block = None
            ended = bool(self._block_flags & END_STREAM)
            self._block_came(frame.stream_id, bytes(block), ended=ended)

    def _block_came(self, stream_id: int, block: bytes, *, ended: bool) -> None:
        # Even where nobody wants them: blocks that come later refer to them.
        headers = self._decoder.decode(block)
        stream = self._streams.get(stream_id)
        if stream is not None:
            if stream.client_ended:
                raise Http2Error(
                    ErrorCodes.STREAM_CLOSED, f"headers behind the end of stream {stream_id}"
                )
            if not ended:
                raise _against(f"trailers that do not end stream {stream_id}")
            stream.client_ended = True
            self._events.request_ended(stream_id)
        elif not stream_id % 2:
            raise _against(f"headers of stream {stream_id}, which is none of a client's")
        elif stream_id > self.highest_inbound_stream_id:
            self.highest_inbound_stream_id = stream_id
            self._streams[stream_id] = _Stream(
                self._stream_window, self._first_outbound, client_ended=ended
            )
            self._events.request_came(stream_id, headers, ended=ended)
        elif stream_id in self._reset:
            self._events.request_ended(stream_id)
        else:
            raise Http2Error(ErrorCodes.STREAM_CLOSED, f"headers of stream {stream_id}, it is over")

    def _rst_stream(self, frame: Http2Frame) -> None:
        _number_of(frame)
        if frame.stream_id in self._streams:
            self._events.stream_was_reset(frame.stream_id)
        else:
            self._check_over(frame)

    def _window_update(self, frame: Http2Frame) -> None:
        grown = _number_of(frame) & _MOST_WINDOW
        if not grown:
            raise _against("a window that grows by nothing")
        stream_id = frame.stream_id
        if not stream_id:
            self.outbound_flow_control_window += grown
            if self.outbound_flow_control_window > _MOST_WINDOW:
                raise _overflow("the connection's window is too large")
        else:
            stream = self._streams.get(stream_id)
            if stream is None:
                self._check_over(frame)
                return
            stream.outbound += grown
            if stream.outbound > _MOST_WINDOW:
                raise _overflow(f"the window of stream {stream_id} is too large")
        self._events.window_grew(stream_id)

    def _settings(self, frame: Http2Frame) -> None:
        size = len(frame.data) - HEADER_LENGTH
        if frame.stream_id:
            raise _against("settings of a stream")
        if size % _SETTING.size or (frame.flags & ACK and size):
            raise Http2Error(ErrorCodes.FRAME_SIZE_ERROR, f"settings of {size} bytes")
        if frame.flags & ACK:
            return
        # The last one of each holds. Those of tables and streams concern what we never send.
        settings = dict(_SETTING.iter_unpack(frame.data[HEADER_LENGTH:]))
        if settings.get(_ENABLE_PUSH, 0) > 1:
            raise _against(f"a setting for pushes of {settings[_ENABLE_PUSH]}")
        largest = settings.get(_MAX_FRAME_SIZE, self.max_outbound_frame_size)
        if not LARGEST_PAYLOAD <= largest <= _LARGEST_FRAME:
            raise _against(f"frames of up to {largest} bytes")
        self.max_outbound_frame_size = largest
        window = settings.get(_INITIAL_WINDOW_SIZE, self._first_outbound)
        if window > _MOST_WINDOW:
            raise _overflow(f"windows of {window} bytes")
        grown, self._first_outbound = window - self._first_outbound, window
        if grown:
            for stream in self._streams.values():
                stream.outbound += grown
                if stream.outbound > _MOST_WINDOW:
                    raise _overflow("windows of streams are too large")
        self._send(FrameType.SETTINGS, ACK, 0)
        if grown > 0:
            self._events.all_windows_grew()

    def _check_over(self, frame: Http2Frame) -> None:
        """Raises `Http2Error` where a frame's stream is none that was open before."""
        stream_id = frame.stream_id
        if not stream_id % 2 or stream_id > self.highest_inbound_stream_id:
            raise _against(f"a frame of type {frame.type} of stream {stream_id}, which is not open")


def _without_padding(frame: Http2Frame) -> bytes:
    """Returns the payload of a frame that has padding."""
    data = frame.data
    if len(data) == HEADER_LENGTH or data[HEADER_LENGTH] >= len(data) - HEADER_LENGTH:
        raise _against(f"a frame of type {frame.type} that has more padding than bytes")
    return data[HEADER_LENGTH + 1 : len(data) - data[HEADER_LENGTH]]


def _number_of(frame: Http2Frame) -> int:
    """Returns the number that is all of a frame's payload."""
    if len(frame.data) != HEADER_LENGTH + _NUMBER.size:
        raise Http2Error(
            ErrorCodes.FRAME_SIZE_ERROR, f"a frame of type {frame.type} of the wrong size"
        )
    number: int = _NUMBER.unpack_from(frame.data, HEADER_LENGTH)[0]
    return number


def _against(why: str) -> Http2Error:
    return Http2Error(ErrorCodes.PROTOCOL_ERROR, why)


def _overflow(why: str) -> Http2Error:
    return Http2Error(ErrorCodes.FLOW_CONTROL_ERROR, why)
