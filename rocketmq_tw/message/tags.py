"""Tags: Java's hash code of one, and the expression that a consumer subscribes with."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection
from functools import lru_cache
from sys import byteorder
from typing import NamedTuple

TAG_TYPE = "TAG"
SQL92_TYPE = "SQL92"
SUBSCRIBE_ALL = "*"

#: What Java's `String.trim` takes off.
_BLANKS = "".join(map(chr, range(0x21)))
_UTF_16 = "utf-16-le" if byteorder == "little" else "utf-16-be"


class TagExpression(NamedTuple):
    """What an expression asks for."""

    #: The expression as a subscription carries it; `*` for every message.
    text: str
    tags: frozenset[str]
    #: The tags' hash codes, as consume queues keep them.
    codes: frozenset[int]

    def matches(self, tag: str | None) -> bool:
        """Whether a message with this tag matches: what a consumer looks at last."""
        return self.text == SUBSCRIBE_ALL or tag in self.tags


@lru_cache(maxsize=4096)
def java_hash_code(text: str) -> int:
    """`String.hashCode`: over UTF-16 units, a signed 32-bit number."""
    code = 0
    for unit in array("H", text.encode(_UTF_16, "surrogatepass")):
        code = code * 31 + unit & 0xFFFFFFFF
    return code - 0x100000000 if code & 0x80000000 else code


def tags_code(tags: str | None) -> int:
    """The hash code that a consume queue keeps for the property `TAGS`; 0 without tags."""
    return java_hash_code(tags) if tags else 0


@lru_cache(maxsize=1024)
def parse_tag_expression(text: str | None) -> TagExpression:
    """Parses `*`, `a` or `a || b`; raises `ValueError` where only bars are there.

    Blank tags between bars are passed over; blanks alone name no tag and so match nothing.
    """
    if not text or text == SUBSCRIBE_ALL:
        return TagExpression(SUBSCRIBE_ALL, frozenset(), frozenset())
    parts = text.split("||")
    if not any(parts):
        raise ValueError(f"the expression {text!r} names no tag: write a tag, `a || b` or *")
    tags = frozenset(part.strip(_BLANKS) for part in parts) - {""}
    return TagExpression(text, tags, frozenset(map(java_hash_code, tags)))


def tag_match(text: str | None, codes: Collection[int]) -> Callable[[int], bool] | None:
    """What a consume queue's code is asked for a subscription; None where every message matches.

    Codes collide, so a match only says that the message may have one of the tags.
    """
    if text == SUBSCRIBE_ALL:
        return None
    return frozenset(codes).__contains__
