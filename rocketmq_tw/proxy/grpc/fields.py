"""Looks at what a protobuf message has before it is parsed: objects may take a hundred times the
bytes that they have on the wire, and much more time than a long text or body of as many bytes."""

from __future__ import annotations

from collections.abc import Iterator

from rocketmq_tw.proxy.grpc.interfaces import GrpcError, GrpcStatus, RequestLimits

#: Messages up to this many bytes are parsed as they are.
SMALL_MESSAGE = 64 * 1024
#: Messages within a message up to this many bytes are counted whole, and not looked into.
_SMALL_INSIDE = 1024
#: Fields that are looked at in all messages within a message.
_MOST_INSIDE = 32 * 1024

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def check_fields(data: bytes, limits: RequestLimits) -> None:
    """Raises `GrpcError` (INVALID_ARGUMENT) where a message is not to be parsed: it has too many
    fields at its top level, or too many bytes beside `limits.bulk`. What is cut off is left to the
    parser."""
    outer, inner = limits.bulk
    beside, looks = len(data), _MOST_INSIDE
    number = 0
    for number, (field, start, end) in enumerate(_fields(data, 0, len(data)), 1):
        if number > limits.fields:
            break
        if field != outer or end - start <= _SMALL_INSIDE:
            continue
        for inside, first, behind in _fields(data, start, end):
            looks -= 1
            if inside == inner:
                beside -= behind - first
            if looks < 0:
                raise _refusal(f"more than {_MOST_INSIDE} fields in its messages")
    if number > limits.fields:
        raise _refusal(f"more than {limits.fields} fields")
    if beside > limits.beside:
        raise _refusal(f"{beside} bytes beside its longest texts, {limits.beside} are the limit")


def _refusal(what: str) -> GrpcError:
    return GrpcError(GrpcStatus.INVALID_ARGUMENT, f"the request has {what}: send less at a time")


def _fields(data: bytes, position: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yields the number of each field, and where its content begins and ends. Raises `GrpcError`
    for groups, which proto3 does not have."""
    while position < end:
        tag, position = _varint(data, position)
        kind = tag & 7
        if kind == _BYTES:
            length, position = _varint(data, position)
            after = min(position + length, end)
        elif kind == _VARINT:
            _, after = _varint(data, position)
        elif kind == _FIXED64:
            after = position + 8
        elif kind == _FIXED32:
            after = position + 4
        else:
            raise _refusal(f"a field of the kind {kind}, which there is not")
        yield tag >> 3, position, after
        position = after


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
