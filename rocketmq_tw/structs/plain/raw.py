"""A piece of JSON that stands for itself."""

from __future__ import annotations

from typing import Any


class Raw(bytes):
    """JSON that is written as it is, and is cut out of what is read as it came. Equal only to its
    own kind, and no key."""

    __slots__ = ()

    def __new__(cls, text: Any = b"") -> Raw:
        if isinstance(text, int):
            raise TypeError("a bytes-like object is required, not 'int'")
        return bytes.__new__(cls, text.encode() if isinstance(text, str) else text)

    def __eq__(self, other: object) -> bool:
        return type(other) is Raw and bytes.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None  # type: ignore[assignment]
