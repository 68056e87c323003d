"""Frames of the remoting protocol, sans I/O (docs/formats/remoting.md).

A frame is a 4-byte big-endian length of all that follows, one byte that names the header's
serialisation, a 24-bit header length, the header, and the body up to the frame's end.
"""

from struct import Struct
from typing import NamedTuple

from rocketmq_tw.wire.errors import WireError

#: Stock's com.rocketmq.remoting.frameMaxLength: 16 MiB with the length field.
DEFAULT_FRAME_LIMIT = 16 * 1024 * 1024
MAX_HEADER_LENGTH = 0xFFFFFF

_LENGTHS = Struct(">II")


class Frame(NamedTuple):
    """One frame: the header's serialisation byte, the header's bytes and the body's bytes."""

    serialization: int
    header: bytes
    body: bytes


def encode_frame(serialization: int, header: bytes, body: bytes = b"") -> bytes:
    """The frame's bytes. Raises `WireError` where the header does not fit 24 bits."""
    if len(header) > MAX_HEADER_LENGTH:
        raise WireError(f"a header of {len(header)} bytes does not fit the 24-bit length")
    return b"".join(
        (
            _LENGTHS.pack(4 + len(header) + len(body), serialization << 24 | len(header)),
            header,
            body,
        )
    )


class FrameDecoder:
    """Cuts a stream of bytes into frames.

    `feed` takes what arrived; iterate `frames()` for the frames that are complete. At most one
    incomplete frame is held, and never more than `limit` bytes of it: a length over the limit is
    refused as soon as its four bytes are there.
    """

    def __init__(self, limit: int = DEFAULT_FRAME_LIMIT) -> None:
        self._limit = limit
        self._buffer = bytearray()

    @property
    def buffered(self) -> int:
        """Bytes held of a frame that is not complete yet."""
        return len(self._buffer)

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that `data` completes, in order.

        Raises `WireError` where a length is beyond the limit or contradicts the frame; the frames
        before the bad one are lost with the connection that sent it.
        """
        if self._buffer:
            self._buffer += data
            source: bytes | bytearray = self._buffer
        else:
            source = data
        frames: list[Frame] = []
        position, end = 0, len(source)
        while end - position >= 4:
            length = int.from_bytes(source[position : position + 4], "big", signed=True)
            if not 4 <= length <= self._limit - 4:
                raise WireError(f"a frame length of {length} is not within 4..{self._limit - 4}")
            if end - position < 8:
                break
            mixed = int.from_bytes(source[position + 4 : position + 8], "big")
            header_length = mixed & MAX_HEADER_LENGTH
            if header_length > length - 4:
                raise WireError(
                    f"a header of {header_length} bytes does not fit its frame of {length}"
                )
            if end - position < 4 + length:
                break
            header_end = position + 8 + header_length
            frame_end = position + 4 + length
            frames.append(
                Frame(
                    mixed >> 24,
                    bytes(source[position + 8 : header_end]),
                    bytes(source[header_end:frame_end]),
                )
            )
            position = frame_end
        if source is data:
            self._buffer += data[position:]
        else:
            del self._buffer[:position]
        return frames
