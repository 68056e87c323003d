"""The body of a batch: several messages of one topic in one request (code 320)."""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct

import msgspec

from rocketmq_tw.message.properties import MAX_PROPERTIES_LENGTH

# Total size, magic and CRC (both 0, nobody reads them), flag, body length.
_HEAD = Struct(">iiiii")
_PROPERTIES_LENGTH = Struct(">h")


class BatchedMessage(msgspec.Struct, gc=False):
    """One message of a batch; `properties` as on the wire."""

    flag: int
    body: bytes
    properties: bytes


def encode_batch(messages: Iterable[BatchedMessage]) -> bytes:
    """The body of a batch; raises `ValueError` where a message's properties are too long."""
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


def decode_batch(data: bytes) -> list[BatchedMessage]:
    """The messages of a batch's body; raises `ValueError` where a length contradicts the body."""
    messages = []
    position, end = 0, len(data)
    head_at, head_size = _HEAD.unpack_from, _HEAD.size
    length_at, length_size = _PROPERTIES_LENGTH.unpack_from, _PROPERTIES_LENGTH.size
    while position < end:
        if end - position < head_size + length_size:
            raise ValueError(f"{end - position} bytes at {position} are no message of a batch")
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
        messages.append(
            BatchedMessage(flag, data[body_start:body_end], data[properties_start:following])
        )
        position = following
    return messages
