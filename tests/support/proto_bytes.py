"""Bytes of messages, right ones and such as no client should send, made from their descriptors."""

from __future__ import annotations

from random import Random
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from rocketmq_tw.proxy.proto.plain.fields import is_repeated

VARINT, FIXED64, BYTES, START_GROUP, END_GROUP, FIXED32 = range(6)

_WIRE_TYPES = {
    FieldDescriptor.TYPE_STRING: BYTES,
    FieldDescriptor.TYPE_BYTES: BYTES,
    FieldDescriptor.TYPE_MESSAGE: BYTES,
    FieldDescriptor.TYPE_FLOAT: FIXED32,
}
_TEXTS = ["", "a", "topic", "é", "\U0001f600\u2028", "\0", "x" * 127, "x" * 128, "x" * 20_000]
_NO_TEXTS = [b"\xff", b"\xed\xa0\x80", b"\xc0\x80", b"\xc3", b"\xf4\x90\x80\x80", b"a\xe2\x82"]
_FLOATS = [
    b"\0\0\0\0",
    b"\0\0\0\x80",
    b"\0\0\x80\x3f",
    b"\0\0\x80\x7f",
    b"\0\0\xc0\x7f",
    b"\1\0\0\0",
]


def number(value: int, extra: int = 0) -> bytes:
    """Returns a number on the wire, in so many bytes more than it takes."""
    value &= (1 << 64) - 1
    parts = []
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    if extra:
        parts += [value | 128, *[128] * (extra - 1), 0]
    else:
        parts.append(value)
    return bytes(parts)


def field(number_: int, wire_type: int, content: bytes) -> bytes:
    """Returns a field on the wire; of bytes `content` is what stands behind their length."""
    length = number(len(content)) if wire_type == BYTES else b""
    return number(number_ << 3 | wire_type) + length + content


class MessageBytes:
    """Makes bytes of messages; some in `odd` fields are not as they should be (0 to 1)."""

    def __init__(self, random: Random, odd: float) -> None:
        self._random = random
        self._odd = odd

    def of(self, kind: Descriptor, depth: int = 5) -> bytes:
        """Returns bytes of a message of a kind."""
        random = self._random
        most = len(kind.fields)
        chosen = random.sample(list(kind.fields), random.randint(0, most))
        if not self._is_odd():
            chosen.sort(key=lambda each: each.number)
        parts = []
        for each in chosen:
            several = is_repeated(each) or self._is_odd()
            for _ in range(random.choice([1, 1, 2, 3]) if several else 1):
                parts.append(self._field(each, depth))
        if self._is_odd():
            parts.insert(random.randint(0, len(parts)), self._unknown(3))
        return b"".join(parts)

    def damaged(self, data: bytes) -> bytes:
        """Returns bytes cut, changed, or with some more in them."""
        random = self._random
        at = random.randint(0, len(data))
        way = random.randrange(4)
        if way == 0:
            return data[:at]
        more = random.randbytes(random.randint(1, 3))
        if way == 1:
            return data[:at] + more + data[at:]
        if way == 2:
            return data[:at] + more + data[at + len(more) :]
        return data[:at] + random.choice([b"\xff" * 11, b"\x80" * 9 + b"\1", b"\x0b", b"\0"])

    def _is_odd(self) -> bool:
        return self._random.random() < self._odd

    def _field(self, each: Any, depth: int) -> bytes:
        wire_type = _WIRE_TYPES.get(each.type, VARINT)
        if self._is_odd():
            wire_type = self._random.choice([VARINT, FIXED64, BYTES, START_GROUP, FIXED32])
        tag = number(
            each.number << 3 | wire_type, self._random.choice([0, 0, 1, 3]) * self._is_odd()
        )
        if wire_type == VARINT:
            return tag + self._varint()
        if wire_type in (FIXED64, FIXED32):
            fixed = self._random.choice(_FLOATS)
            return tag + (fixed if wire_type == FIXED32 else fixed * 2)
        if wire_type == START_GROUP:
            return tag + self._unknown(2) + number(each.number << 3 | END_GROUP)
        content = self._content(each, depth)
        size = len(content) + self._random.choice([-1, 1, 1 << 31, 1 << 35]) * (
            self._is_odd() and self._is_odd()
        )
        return tag + number(size, self._random.choice([0, 1, 3, 5]) * self._is_odd()) + content

    def _content(self, each: Any, depth: int) -> bytes:
        random = self._random
        if each.type == FieldDescriptor.TYPE_MESSAGE:
            return self.of(each.message_type, depth - 1) if depth else b""
        if each.type == FieldDescriptor.TYPE_STRING:
            if self._is_odd():
                return random.choice(_NO_TEXTS)
            return random.choice(_TEXTS).encode()
        if each.type == FieldDescriptor.TYPE_BYTES:
            return random.randbytes(random.choice([0, 1, 300]))
        return b"".join(self._varint() for _ in range(random.randint(0, 3)))

    def _varint(self) -> bytes:
        random = self._random
        if self._is_odd():
            return random.choice(
                [b"\x80", b"\xff" * 9 + b"\1", b"\xff" * 9 + b"\x7f", b"\xff" * 11]
            )
        value = random.getrandbits(random.choice([1, 7, 8, 14, 31, 32, 33, 63, 64]))
        return number(random.choice([value, -value, 1 << 31, 1 << 63]), 2 * self._is_odd())

    def _unknown(self, depth: int) -> bytes:
        random = self._random
        number_ = random.choice([25, 99, 2048])
        if depth == 3 and self._is_odd():
            # Within groups not every version of protobuf refuses the field 0.
            number_ = random.choice([0, 15, 16, 2047, (1 << 29) - 1, 1 << 29])
        wire_type = random.randrange(8) if self._is_odd() else random.choice([0, 1, 2, 3, 5])
        content = b""
        if wire_type == VARINT:
            content = self._varint()
        elif wire_type in (FIXED32, FIXED64):
            content = random.randbytes(4 if wire_type == FIXED32 else 8)
        elif wire_type == BYTES:
            content = random.randbytes(random.randint(0, 9))
        elif wire_type == START_GROUP:
            end = number_ + self._is_odd()
            inside = self._unknown(depth - 1) if depth else b""
            content = inside + number(end << 3 | END_GROUP)
        return field(number_, wire_type, content)
