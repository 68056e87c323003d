"""Frames of the remoting protocol, sans I/O (docs/formats/remoting.md).

A frame is a 4-byte big-endian length of all that follows, one byte that names the header's
serialisation, a 24-bit header length, the header, and the body up to the frame's end.
"""

from struct import Struct

from rocketmq_tw.structs import msgspec
from rocketmq_tw.wire.errors import WireError

#: Stock's com.rocketmq.remoting.frameMaxLength: 16 MiB with the length field.
DEFAULT_FRAME_LIMIT = 16 * 1024 * 1024
MAX_HEADER_LENGTH = 0xFFFFFF

#: How other protocols begin that clients speak to a port by mistake, each with what to do about it.
#: Read as lengths they are beyond every usual limit.
_OTHER_PROTOCOLS = {
    b"\x16\x03": "TLS, which this port does not take: let the client speak plaintext, or give the"
    " server a certificate (a proxy: tlsCertPath, tlsKeyPath) and tls.server.mode permissive",
    b"PRI ": "HTTP/2, which clients of RocketMQ 5 speak to the port of a proxy",
    b"GET ": "HTTP",
    b"POST": "HTTP",
}

_LENGTHS = Struct(">iI")
_pack_lengths = _LENGTHS.pack


class Frame(msgspec.Struct, frozen=True, gc=False):
    """One frame: the header's serialisation byte, the header's bytes and the body's bytes."""

    serialization: int
    header: bytes
    body: bytes


def encode_frame(serialization: int, header: bytes, body: bytes = b"") -> bytes:
    """Returns the frame's bytes. Raises `WireError` where the header does not fit 24 bits."""
    length = len(header)
    if length > MAX_HEADER_LENGTH:
        raise WireError(f"a header of {length} bytes does not fit the 24-bit length")
    lengths = _pack_lengths(4 + length + len(body), serialization << 24 | length)
    return lengths + header + body


class FrameDecoder:
    """Cuts a stream of bytes into frames.

    At most one incomplete frame is held, and never more than `limit` bytes of it: a length over
    the limit is refused as soon as its four bytes are there.
    """

    def __init__(self, limit: int = DEFAULT_FRAME_LIMIT) -> None:
        self._limit = limit
        self._buffer = bytearray()
        self._needed = 0

    @property
    def buffered(self) -> int:
        """Bytes held of a frame that is not complete yet."""
        return len(self._buffer)

    def feed(self, data: bytes) -> list[Frame]:
        """Returns the frames that `data` completes, in order.

        Raises `WireError` where a length is beyond the limit or contradicts the frame; the frames
        before the bad one are lost with the connection that sent it.
        """
        if self._buffer:
            self._buffer += data
            if len(self._buffer) < self._needed:
                return []
            data = bytes(self._buffer)
            self._buffer.clear()
        frames: list[Frame] = []
        position, end, most = 0, len(data), self._limit - 4
        while end - position >= 8:
            length, mixed = _LENGTHS.unpack_from(data, position)
            header_length = mixed & MAX_HEADER_LENGTH
            frame_end = position + 4 + length
            if frame_end > end or length > most or header_length > length - 4:
                # Incomplete, or wrong: `_frame_size` tells which.
                break
            header_end = position + 8 + header_length
            frames.append(
                Frame(mixed >> 24, data[position + 8 : header_end], data[header_end:frame_end])
            )
            position = frame_end
        self._needed = self._frame_size(data, position)
        if position < end:
            self._buffer += data[position:]
        return frames

    def _frame_size(self, data: bytes, position: int) -> int:
        """Returns how many bytes the frame at `position` has, or how many tell more about it."""
        available = len(data) - position
        if available < 4:
            return 4
        length = int.from_bytes(data[position : position + 4], "big", signed=True)
        if not 4 <= length <= self._limit - 4:
            for first, name in _OTHER_PROTOCOLS.items():
                if data.startswith(first, position):
                    raise WireError(f"it looks like {name}")
            raise WireError(f"a frame length of {length} is not within 4..{self._limit - 4}")
        if available < 8:
            return 8
        header_length = int.from_bytes(data[position + 5 : position + 8], "big")
        if header_length > length - 4:
            raise WireError(f"a header of {header_length} bytes does not fit its frame of {length}")
        return 4 + length
