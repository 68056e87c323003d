"""The body of a batch: several messages of one topic in one request (code 320)."""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import NamedTuple

from rocketmq_tw.message.properties import MAX_PROPERTIES_LENGTH

# Total size, magic and CRC (both 0, nobody reads them), flag, body length.
_HEAD = Struct(">iiiii")
_PROPERTIES_LENGTH = Struct(">h")


class BatchedMessage(NamedTuple):
    """One message of a batch; `properties` as on the wire."""

    flag: int
    body: bytes
    properties: bytes


def encode_batch(messages: Iterable[BatchedMessage]) -> bytes:
    """The body of a batch; raises `ValueError` where a message's properties are too long."""
    parts: list[bytes] = []
    for flag, body, properties in messages:
        if len(properties) > MAX_PROPERTIES_LENGTH:
            raise ValueError(
                f"properties of {len(properties)} bytes: at most {MAX_PROPERTIES_LENGTH} fit"
            )
        size = _HEAD.size + len(body) + _PROPERTIES_LENGTH.size + len(properties)
        parts += (
            _HEAD.pack(size, 0, 0, flag, len(body)),
            body,
            _PROPERTIES_LENGTH.pack(len(properties)),
            properties,
        )
    return b"".join(parts)


def decode_batch(data: bytes) -> list[BatchedMessage]:
    """The messages of a batch's body; raises `ValueError` where a length contradicts the body."""
    messages = []
    position, end = 0, len(data)
    while position < end:
        if end - position < _HEAD.size + _PROPERTIES_LENGTH.size:
            raise ValueError(f"{end - position} bytes at {position} are no message of a batch")
        size, _, _, flag, body_length = _HEAD.unpack_from(data, position)
        body_start = position + _HEAD.size
        body_end = body_start + body_length
        if body_length < 0 or body_end + _PROPERTIES_LENGTH.size > end:
            raise ValueError(
                f"a body of {body_length} bytes at {body_start} passes the batch's end"
            )
        (properties_length,) = _PROPERTIES_LENGTH.unpack_from(data, body_end)
        properties_start = body_end + _PROPERTIES_LENGTH.size
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
