"""Messages of a gRPC stream: each with a flag, its length and maybe compressed."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from struct import Struct

from rocketmq_tw.inflating import inflater
from rocketmq_tw.proxy.grpc.interfaces import GrpcError, GrpcStatus

IDENTITY, GZIP = "identity", "gzip"
#: Encodings of messages that we read.
ENCODINGS = (IDENTITY, GZIP)

_PREFIX = Struct(">BL")
PREFIX_LENGTH = 5


def encode_message(message: bytes) -> bytes:
    """Returns a message with its prefix, not compressed."""
    return _PREFIX.pack(0, len(message)) + message


class MessageReader:
    """Takes a stream's bytes as they come and returns whole messages."""

    __slots__ = ("_encoding", "_held", "_largest", "_unpacked")

    def __init__(self, largest: int, unpacked: int, encoding: str = IDENTITY) -> None:
        """`largest` are the bytes that a message may have as it comes, `unpacked` those of a
        compressed one when it is read."""
        self._largest = largest
        self._unpacked = unpacked
        self._encoding = encoding
        #: Made once a message comes in parts, which few do.
        self._held: bytearray | None = None

    @property
    def buffered(self) -> int:
        """Bytes held of a message that is not complete."""
        return 0 if self._held is None else len(self._held)

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yields the messages that are complete, each of them unpacked when it is asked for; raises
        `GrpcError`."""
        held = self._held
        if held:
            held += data
            if len(held) < PREFIX_LENGTH or len(held) < PREFIX_LENGTH + self._length(held, 0):
                return
            data = bytes(held)
            held.clear()
        start, end = 0, len(data)
        while end - start >= PREFIX_LENGTH:
            after = start + PREFIX_LENGTH + self._length(data, start)
            if after > end:
                break
            message = data[start + PREFIX_LENGTH : after]
            yield self._decompressed(message) if data[start] else message
            start = after
        if start < end:
            if held is None:
                self._held = bytearray(data[start:])
            else:
                held += data[start:]

    def _length(self, data: bytes | bytearray, start: int) -> int:
        flag, length = _PREFIX.unpack_from(data, start)
        if flag > 1:
            raise GrpcError(
                GrpcStatus.INTERNAL, f"the flag of a message is {flag}; gRPC has 0 and 1"
            )
        if length > self._largest:
            raise self._too_large(length)
        return int(length)

    def _decompressed(self, message: bytes) -> bytes:
        if self._encoding != GZIP:
            raise GrpcError(
                GrpcStatus.INTERNAL,
                "a message is compressed, and grpc-encoding does not say how",
            )
        largest = self._unpacked
        unzip = inflater(16 + zlib.MAX_WBITS)
        try:
            content = unzip.decompress(message, largest + 1)
        except zlib.error as error:
            raise GrpcError(GrpcStatus.INTERNAL, f"a message is no gzip: {error}") from error
        if len(content) > largest:
            raise self._too_large(len(content))
        if not unzip.eof:
            raise GrpcError(GrpcStatus.INTERNAL, "the gzip of a message ends too early")
        return content

    def _too_large(self, length: int) -> GrpcError:
        return GrpcError(
            GrpcStatus.RESOURCE_EXHAUSTED,
            f"a message of {length} bytes or more; the largest of this method is {self._largest},"
            f" {self._unpacked} where gzip is unpacked: send less at a time",
        )
