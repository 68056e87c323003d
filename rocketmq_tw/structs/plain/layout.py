"""JSON in lines, for people."""

from __future__ import annotations

import re
from typing import Any

from rocketmq_tw.structs.plain.kinds import type_kind
from rocketmq_tw.structs.plain.raw import Raw
from rocketmq_tw.structs.plain.reader import Reader

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+"|[\[\]{},:]|[^ \t\r\n\[\]{},:"]++')


def in_lines(data: Any, *, indent: int = 2) -> Any:
    """Returns JSON, bytes or text, with each item and member in a line of its own, `indent` spaces
    in front of those that it is in; numbers and texts stay as they are. Raises `DecodeError`."""
    if isinstance(data, str):
        return in_lines(data.encode(), indent=indent).decode()
    Reader(data, strict=True).read(type_kind(Raw))
    parts: list[bytes] = []
    depth = 0
    previous = b""
    for token in _TOKEN.findall(data):
        if token in b"]}":
            depth -= 1
        if (token in b"]}" and previous not in b"[{") or (
            previous and previous in b"[{," and token not in b"]}"
        ):
            parts.append(b"\n" + b" " * (indent * depth))
        parts.append(b": " if token == b":" else token)
        if token in b"[{":
            depth += 1
        previous = token
    return b"".join(parts)
