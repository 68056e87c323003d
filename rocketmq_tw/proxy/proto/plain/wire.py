"""Numbers, tags and lengths as protobuf has them on the wire, and what is passed over."""

from __future__ import annotations

from collections.abc import Callable

from google.protobuf.message import DecodeError

TRUNCATED = "Truncated message."
#: Messages and groups within each other.
MOST_NESTED = 100

VARINT, _FIXED64, BYTES, _START_GROUP, _END_GROUP, FIXED32 = range(6)
_LAST = tuple(bytes([value]) for value in range(128))
#: Others follow.
_MORE = tuple(bytes([value | 128]) for value in range(128))


# A loop would be compiled by itself on PyPy, and every number that goes in or out take memory.


def read_number(data: bytes, at: int) -> tuple[int, int]:
    """Returns a number of up to ten bytes, 0 to 2**64 - 1, and the place behind it. Raises
    `IndexError` where `data` ends before, `DecodeError` where the number does not end."""
    value = data[at]
    if value < 128:
        return value, at + 1
    byte = data[at + 1]
    value += (byte - 1) << 7
    if byte < 128:
        return value, at + 2
    byte = data[at + 2]
    value += (byte - 1) << 14
    if byte < 128:
        return value, at + 3
    byte = data[at + 3]
    value += (byte - 1) << 21
    if byte < 128:
        return value, at + 4
    byte = data[at + 4]
    value += (byte - 1) << 28
    if byte < 128:
        return value, at + 5
    return _long_number(data, at + 5, value)


def _long_number(data: bytes, at: int, value: int) -> tuple[int, int]:
    for shift in range(35, 70, 7):
        byte = data[at]
        at += 1
        value += (byte - 1) << shift
        if byte < 128:
            return value & 0xFFFFFFFFFFFFFFFF, at
    raise DecodeError("a number of more than ten bytes")


def read_tag(data: bytes, at: int) -> tuple[int, int]:
    """Returns the tag of a field and the place behind it; raises as `read_number`."""
    tag, after = read_number(data, at)
    if after - at > 5 or tag > 0xFFFFFFFF:
        raise DecodeError("a tag of more than 32 bits")
    return tag, after


def read_length(data: bytes, at: int) -> tuple[int, int]:
    """Returns a length in bytes and the place behind it; raises as `read_number`."""
    length, after = read_number(data, at)
    if after - at > 5 or length > 0x7FFFFFFF:
        raise DecodeError("a length of more than 31 bits")
    return length, after


def skip(data: bytes, at: int, end: int, tag: int, depth: int) -> int:
    """Returns the place behind the content at `at` of an unknown field; `depth` groups may be in
    each other there. Raises as `read_number`, and `DecodeError` for what is no field."""
    if tag < 8:
        raise DecodeError("Field number 0 is illegal.")
    kind = tag & 7
    if kind == VARINT:
        _, at = read_number(data, at)
    elif kind == BYTES:
        length, at = read_length(data, at)
        at += length
    elif kind == FIXED32:
        at += 4
    elif kind == _FIXED64:
        at += 8
    elif kind == _START_GROUP:
        return _skip_group(data, at, end, tag - _START_GROUP + _END_GROUP, depth - 1)
    elif kind == _END_GROUP:
        raise DecodeError("Unexpected end-group tag.")
    else:
        raise DecodeError("Wrong wire type in tag.")
    if at > end:
        raise DecodeError(TRUNCATED)
    return at


def _skip_group(data: bytes, at: int, end: int, end_tag: int, depth: int) -> int:
    if depth < 0:
        raise DecodeError("Error parsing message: too many levels of nesting.")
    while at < end:
        tag, at = read_tag(data, at)
        if tag == end_tag:
            return at
        at = skip(data, at, end, tag, depth)
    raise DecodeError(TRUNCATED)


def number_size(value: int) -> int:
    """Returns how many bytes a number takes, -2**63 to 2**64 - 1."""
    if value < 0:
        return 10
    size = 1
    if value >= 1 << 7:
        size += 1
        if value >= 1 << 14:
            size += 1
            if value >= 1 << 21:
                size += 1
                if value >= 1 << 28:
                    size += 1
                    if value >= 1 << 35:
                        size = (value.bit_length() + 6) // 7
    return size


def put_number(put: Callable[[bytes], object], value: int) -> None:
    """Has `put` take a number as it is written, -2**63 to 2**64 - 1, byte by byte."""
    if value < 0:
        value += 1 << 64
    if value < 128:
        put(_LAST[value])
        return
    put(_MORE[value & 127])
    value >>= 7
    if value < 128:
        put(_LAST[value])
        return
    put(_MORE[value & 127])
    value >>= 7
    if value < 128:
        put(_LAST[value])
        return
    put(_MORE[value & 127])
    value >>= 7
    if value < 128:
        put(_LAST[value])
        return
    put(_MORE[value & 127])
    value >>= 7
    while value > 127:
        put(_MORE[value & 127])
        value >>= 7
    put(_LAST[value])


def number_bytes(value: int) -> bytes:
    """Returns a number as it is written, -2**63 to 2**64 - 1."""
    parts: list[bytes] = []
    put_number(parts.append, value)
    return b"".join(parts)


def text_size(text: str) -> int:
    """Returns how many bytes a text takes, without the length before it."""
    return len(text) if text.isascii() else len(text.encode())
