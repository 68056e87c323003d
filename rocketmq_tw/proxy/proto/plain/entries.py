"""Reads the entries of maps."""

from __future__ import annotations

from typing import Any

from google.protobuf.message import DecodeError

from rocketmq_tw.proxy.proto.plain.wire import (
    TRUNCATED,
    number_bytes,
    read_length,
    read_tag,
    skip,
)

#: Texts of the fields 1 and 2.
_KEY, _VALUE = 10, 18


def read_entry(
    message: Any, tag: int, items: dict[str, str], data: bytes, at: int, end: int, depth: int
) -> None:
    """Takes over an entry from text to text, which `data` has from `at` on up to `end`. One that
    has unknown fields is an unknown field `tag` of its message. Raises as `wire.skip`."""
    key = value = ""
    unknown: list[bytes] = []
    while at < end:
        start = at
        inner = data[at]
        at += 1
        if inner > 127:
            inner, at = read_tag(data, at - 1)
        if inner == _KEY:
            length = data[at]
            at += 1
            if length > 127:
                length, at = read_length(data, at - 1)
            after = at + length
            if after > end:
                raise DecodeError(TRUNCATED)
            key = data[at:after].decode()
            at = after
            if at >= end:
                break
            # As a rule the value comes next: read in the same turn, since a loop's second turn for
            # each entry costs PyPy a tenth of a whole send.
            start = at
            inner = data[at]
            at += 1
            if inner > 127:
                inner, at = read_tag(data, at - 1)
        if inner == _VALUE:
            length = data[at]
            at += 1
            if length > 127:
                length, at = read_length(data, at - 1)
            after = at + length
            if after > end:
                raise DecodeError(TRUNCATED)
            value = data[at:after].decode()
            at = after
            if at >= end:
                break
        elif inner == _KEY:
            # Once more.
            at = start
        else:
            at = skip(data, at, end, inner, depth)
            unknown.append(data[start:at])
    if at > end:
        raise DecodeError(TRUNCATED)
    if not unknown:
        items[key] = value
        return
    known = b""
    for field, text in ((_KEY, key), (_VALUE, value)):
        if text:
            raw = text.encode()
            known += number_bytes(field) + number_bytes(len(raw)) + raw
    entry = known + b"".join(unknown)
    message.add_unknown_(number_bytes(tag) + number_bytes(len(entry)) + entry)
