"""The body of a batch: several messages of one topic in one request (code 320).

Format: docs/formats/message.md.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from struct import Struct

from rocketmq_tw.interpreter import IS_PYPY
from rocketmq_tw.memo import remembered
from rocketmq_tw.message.properties import MAX_PROPERTIES_LENGTH
from rocketmq_tw.structs import msgspec

# Total size, magic and CRC (both 0 and never read), flag, body length.
_HEAD = Struct(">iiiii")
_PROPERTIES_LENGTH = Struct(">h")


class BatchedMessage(msgspec.Struct, gc=False):
    """One message of a batch; `properties` as on the wire."""

    flag: int
    body: bytes
    properties: bytes


class Batch(msgspec.Struct, gc=False):
    """The messages of a batch by columns, since there is no object for each on its way through a
    broker; all have the same length. `common` stands behind the properties of each, which then end
    with their separator."""

    flags: Sequence[int]
    bodies: Sequence[bytes]
    properties: Sequence[bytes]
    common: bytes = b""

    @classmethod
    def of(cls, messages: Iterable[BatchedMessage]) -> Batch:
        """Returns a batch of `messages`; `common` is left empty."""
        every = list(messages)
        return cls(
            [each.flag for each in every],
            [each.body for each in every],
            [each.properties for each in every],
        )

    def __len__(self) -> int:
        return len(self.bodies)

    def __iter__(self) -> Iterator[BatchedMessage]:
        whole = [properties + self.common for properties in self.properties]
        return map(BatchedMessage, self.flags, self.bodies, whole)


def encode_batch(messages: Iterable[BatchedMessage]) -> bytes:
    """Returns the body of a batch; raises `ValueError` where a message's properties are too
    long."""
    parts: list[bytes] = []
    for message in messages:
        body, properties = message.body, message.properties
        if len(properties) > MAX_PROPERTIES_LENGTH:
            raise ValueError(
                f"properties of {len(properties)} bytes: at most {MAX_PROPERTIES_LENGTH} fit"
            )
        size = _HEAD.size + len(body) + _PROPERTIES_LENGTH.size + len(properties)
        parts += (
            _HEAD.pack(size, 0, 0, message.flag, len(body)),
            body,
            _PROPERTIES_LENGTH.pack(len(properties)),
            properties,
        )
    return b"".join(parts)


def decode_batch(data: bytes, most: int = sys.maxsize) -> Batch:
    """Returns the messages of a batch's body; raises `ValueError` where a length contradicts the
    body, and where these are more than `most`, as soon as that is known."""
    # A layout for each length would be read anew by each call of PyPy's.
    alike = None if IS_PYPY else _decode_alike(data, most)
    return alike or _decode_any(data, most)


def _decode_alike(data: bytes, most: int) -> Batch | None:
    """Returns a decoded batch whose messages all have the lengths of the first, as one producer's
    often have; None where they have not, or would be more than `most`."""
    if len(data) < _HEAD.size:
        return None
    size, _, _, _, body_length = _HEAD.unpack_from(data)
    properties_length = size - _HEAD.size - body_length - _PROPERTIES_LENGTH.size
    if body_length < 0 or not 0 <= properties_length <= MAX_PROPERTIES_LENGTH or len(data) % size:
        return None
    if len(data) // size > most:
        return None
    messages = _layout(body_length, properties_length).iter_unpack(data)
    sizes, flags, body_lengths, bodies, properties_lengths, properties = zip(*messages, strict=True)
    count = len(sizes)
    if (
        sizes.count(size) == count
        and body_lengths.count(body_length) == count
        and properties_lengths.count(properties_length) == count
    ):
        return Batch(flags, bodies, properties)
    return None


@remembered(256)
def _layout(body_length: int, properties_length: int) -> Struct:
    """Returns total size, flag, body length, body, properties' length, properties."""
    return Struct(f">i8xii{body_length}sh{properties_length}s")


def _decode_any(data: bytes, most: int) -> Batch:
    flags: list[int] = []
    bodies: list[bytes] = []
    properties: list[bytes] = []
    position, end = 0, len(data)
    head_at, head_size = _HEAD.unpack_from, _HEAD.size
    length_at, length_size = _PROPERTIES_LENGTH.unpack_from, _PROPERTIES_LENGTH.size
    while position < end:
        if end - position < head_size + length_size:
            raise ValueError(f"{end - position} bytes at {position} are no message of a batch")
        if len(flags) == most:
            raise ValueError(f"more than {most} messages: send at most so many at once")
        size, _, _, flag, body_length = head_at(data, position)
        body_start = position + head_size
        body_end = body_start + body_length
        properties_start = body_end + length_size
        if body_length < 0 or properties_start > end:
            raise ValueError(
                f"a body of {body_length} bytes at {body_start} passes the batch's end"
            )
        (properties_length,) = length_at(data, body_end)
        following = properties_start + properties_length
        if properties_length < 0 or following > end or following - position != size:
            raise ValueError(
                f"the message at {position} says {size} bytes, its parts {following - position}"
            )
        flags.append(flag)
        bodies.append(data[body_start:body_end])
        properties.append(data[properties_start:following])
        position = following
    return Batch(flags, bodies, properties)
