"""The frames of an HTTP/2 connection (RFC 9113, section 4): cuts bytes into whole ones, and makes
them."""

from __future__ import annotations

from enum import IntEnum
from struct import Struct

from rocketmq_tw.structs import msgspec

#: What each client sends first.
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
#: The longest payload of a frame that we take: HTTP/2's default.
LARGEST_PAYLOAD = 16384

HEADER_LENGTH = 9
END_STREAM = 0x1
ACK = 0x1
END_HEADERS = 0x4
PADDED = 0x8
PRIORITY = 0x20

_HEADER = Struct(">HBBBL")
_NUMBERS = Struct(">LL")


class ErrorCodes(IntEnum):
    """Why a stream or a connection ends."""

    NO_ERROR = 0x0
    PROTOCOL_ERROR = 0x1
    INTERNAL_ERROR = 0x2
    FLOW_CONTROL_ERROR = 0x3
    SETTINGS_TIMEOUT = 0x4
    STREAM_CLOSED = 0x5
    FRAME_SIZE_ERROR = 0x6
    REFUSED_STREAM = 0x7
    CANCEL = 0x8
    COMPRESSION_ERROR = 0x9
    CONNECT_ERROR = 0xA
    ENHANCE_YOUR_CALM = 0xB
    INADEQUATE_SECURITY = 0xC
    HTTP_1_1_REQUIRED = 0xD


class Http2Error(Exception):
    """The other end broke a rule of HTTP/2 or a limit: the connection ends with `code`."""

    def __init__(self, code: ErrorCodes, message: str) -> None:
        super().__init__(message)
        self.code = code


class FrameType(IntEnum):
    """Types of frames; those beyond are ignored."""

    DATA = 0
    HEADERS = 1
    PRIORITY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PUSH_PROMISE = 5
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9


#: What a header block comes in. Looked up once: each look into an enumeration costs, and this is
#: for each frame.
_OF_BLOCKS = (int(FrameType.HEADERS), int(FrameType.CONTINUATION))


class Http2Frame(msgspec.Struct, frozen=True, gc=False):
    """A whole frame."""

    type: int
    flags: int
    stream_id: int
    #: Its header and payload.
    data: bytes


def make_frame(kind: int, flags: int, stream_id: int, payload: bytes | memoryview = b"") -> bytes:
    """Returns a frame; `payload` has 2**24 - 1 bytes at most."""
    size = len(payload)
    return _HEADER.pack(size >> 8, size & 0xFF, kind, flags, stream_id) + payload


def go_away(last_stream: int, code: int, why: bytes) -> bytes:
    """Returns the frame that says which stream was served last, and why no more are."""
    return make_frame(FrameType.GOAWAY, 0, 0, _NUMBERS.pack(last_stream, code) + why)


class FrameSplitter:
    """Takes bytes as they come, the client's preface first, and returns whole frames.

    It holds one frame that is not complete at most, and bounds what the frames of one header block
    have together, which nobody can decode before its end.
    """

    def __init__(self, block_limit: int) -> None:
        """`block_limit`: bytes that the frames of one header block may have."""
        self._block_limit = block_limit
        self._preface_left = PREFACE
        self._held = bytearray()
        #: The stream whose header block is not complete, 0 for none, and the block's length.
        self._block_stream = 0
        self._block_length = 0

    @property
    def buffered(self) -> int:
        """Bytes held, of frames and header blocks that are not complete."""
        return len(self._held) + self._block_length

    def feed(self, data: bytes) -> list[Http2Frame]:
        """Returns the frames that are complete; raises `Http2Error`."""
        if self._preface_left:
            data = self._skip_preface(data)
        if self._held:
            self._held += data
            if len(self._held) < HEADER_LENGTH:
                return []
            length = int.from_bytes(self._held[:3])
            if HEADER_LENGTH + length > len(self._held) and length <= LARGEST_PAYLOAD:
                return []
            data = bytes(self._held)
            self._held.clear()
        frames = []
        start, end = 0, len(data)
        while end - start >= HEADER_LENGTH:
            high, low, kind, flags, stream_id = _HEADER.unpack_from(data, start)
            length = high << 8 | low
            if length > LARGEST_PAYLOAD:
                raise Http2Error(
                    ErrorCodes.FRAME_SIZE_ERROR,
                    f"a frame of {length} bytes; the largest is {LARGEST_PAYLOAD}",
                )
            after = start + HEADER_LENGTH + length
            if after > end:
                break
            stream_id &= 0x7FFFFFFF
            if self._block_stream or kind in _OF_BLOCKS:
                self._count_block(kind, flags, stream_id, length)
            frames.append(Http2Frame(kind, flags, stream_id, data[start:after]))
            start = after
        if start < end:
            self._held += data[start:]
        return frames

    def _skip_preface(self, data: bytes) -> bytes:
        known = min(len(data), len(self._preface_left))
        if data[:known] != self._preface_left[:known]:
            raise Http2Error(ErrorCodes.PROTOCOL_ERROR, "it begins as no HTTP/2 client does")
        self._preface_left = self._preface_left[known:]
        return data[known:]

    def _count_block(self, kind: int, flags: int, stream_id: int, length: int) -> None:
        if self._block_stream:
            if kind != FrameType.CONTINUATION or stream_id != self._block_stream:
                raise Http2Error(
                    ErrorCodes.PROTOCOL_ERROR, "another frame stands within a header block"
                )
        elif kind != _OF_BLOCKS[0]:
            raise Http2Error(ErrorCodes.PROTOCOL_ERROR, "a CONTINUATION without its HEADERS")
        elif not stream_id:
            raise Http2Error(ErrorCodes.PROTOCOL_ERROR, "a HEADERS of no stream")
        # An empty frame costs as well.
        self._block_length += length + HEADER_LENGTH
        if self._block_length > self._block_limit:
            raise Http2Error(
                ErrorCodes.ENHANCE_YOUR_CALM,
                f"a header block of more than {self._block_limit} bytes",
            )
        if flags & END_HEADERS:
            self._block_stream = self._block_length = 0
        else:
            self._block_stream = stream_id
