"""How many fields a protobuf message has, before it is parsed: objects may take thirty times the
bytes that they have on the wire."""

from __future__ import annotations

#: Messages up to this many bytes are parsed as they are.
SMALL = 64 * 1024

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def has_few_fields(data: bytes, most: int) -> bool:
    """Returns whether a message has at most so many fields at its top level. False for groups,
    which proto3 does not have; what is cut off is left to the parser."""
    position, end = 0, len(data)
    for _ in range(most):
        tag, position = _varint(data, position)
        kind = tag & 7
        if kind == _BYTES:
            length, position = _varint(data, position)
            position += length
        elif kind == _VARINT:
            _, position = _varint(data, position)
        elif kind == _FIXED64:
            position += 8
        elif kind == _FIXED32:
            position += 4
        else:
            return False
        if position >= end:
            return True
    return False


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """Returns a number and the place behind it; no number has more than ten bytes."""
    value = shift = 0
    for byte in data[position : position + 10]:
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    return value, len(data)
