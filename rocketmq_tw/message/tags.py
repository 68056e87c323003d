"""Tags: Java's hash code of one, and the expression that a consumer subscribes with.

Format: docs/formats/message.md, "Tags".
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable
from sys import byteorder
from typing import NamedTuple

from rocketmq_tw.memo import remembered

TAG_TYPE = "TAG"
SQL92_TYPE = "SQL92"
SUBSCRIBE_ALL = "*"

#: Characters of an expression; parsing a longer one takes too long.
MAX_TAGS_EXPRESSION = 65_536
#: Characters of a text whose hash code, or of an expression whose tags, are remembered.
_SHORT_TEXT = 255
_SHORT_EXPRESSION = 1024
#: Codes that are kept as a set; more of them take a tenth of the memory in an array.
_FEW_CODES = 64
#: What an array can hold; no consume queue has another code.
_LONG = range(-(1 << 63), 1 << 63)

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
        """Returns whether a message with this tag matches: what a consumer looks at last."""
        return self.text == SUBSCRIBE_ALL or tag in self.tags


class FewTagCodes:
    """Hash codes of tags, few enough to be looked for in turn. A call with a code says whether it
    is one of them. Two are equal only where they are one: a client may choose codes whose hashes
    collide."""

    __slots__ = ("codes",)

    def __init__(self, codes: Iterable[int]) -> None:
        self.codes = frozenset(codes)

    def __call__(self, code: int) -> bool:
        return code in self.codes


def is_tag_type(kind: str | None) -> bool:
    """Returns whether a subscription of this type is one by tags; that is also what none stands
    for."""
    return not kind or kind == TAG_TYPE


def java_hash_code(text: str) -> int:
    """Returns `String.hashCode`: over UTF-16 units, a signed 32-bit number."""
    return _remembered_hash(text) if len(text) <= _SHORT_TEXT else _hash(text)


def _hash(text: str) -> int:
    code = 0
    for unit in array("H", text.encode(_UTF_16, "surrogatepass")):
        code = code * 31 + unit & 0xFFFFFFFF
    return code - 0x100000000 if code & 0x80000000 else code


_remembered_hash = remembered(4096)(_hash)


def tags_code(tags: str | None) -> int:
    """Returns the hash code that a consume queue keeps for the property `TAGS`; 0 without tags."""
    return java_hash_code(tags) if tags else 0


def parse_tag_expression(text: str | None) -> TagExpression:
    """Parses `*`, `a` or `a || b`; raises `ValueError` where only bars are there, or more than
    `MAX_TAGS_EXPRESSION` characters.

    Blank tags between bars are passed over; blanks alone name no tag and so match nothing.
    """
    if not text or text == SUBSCRIBE_ALL:
        return _EVERYTHING
    if len(text) <= _SHORT_EXPRESSION:
        return _remembered_expression(text)
    if len(text) > MAX_TAGS_EXPRESSION:
        raise ValueError(
            f"an expression of {len(text)} characters: {MAX_TAGS_EXPRESSION} are the limit,"
            " write fewer tags or *"
        )
    return _parse(text)


def wants_tag(text: str, tag: str | None) -> bool:
    """Returns whether a message with this tag matches the expression `text`, which
    `parse_tag_expression` has read once; a long one is looked through each time, since what it
    would be parsed to takes thirty times its memory."""
    if text == SUBSCRIBE_ALL:
        return True
    if len(text) <= _SHORT_EXPRESSION:
        return _remembered_expression(text).matches(tag)
    if not tag or tag not in text:
        return False
    return any(part.strip(_BLANKS) == tag for part in text.split("||"))


def _parse(text: str) -> TagExpression:
    parts = text.split("||")
    if not any(parts):
        raise ValueError(f"the expression {text!r} names no tag: write a tag, `a || b` or *")
    tags = frozenset(part.strip(_BLANKS) for part in parts) - {""}
    return TagExpression(text, tags, frozenset(map(java_hash_code, tags)))


_EVERYTHING = TagExpression(SUBSCRIBE_ALL, frozenset(), frozenset())
_remembered_expression = remembered(1024)(_parse)


def tag_match(text: str | None, codes: Collection[int]) -> Callable[[int], bool] | None:
    """Returns what a consume queue's code is asked for a subscription, `FewTagCodes` where it has
    few; None where every message matches.

    Codes collide, so a match only says that the message may have one of the tags.
    """
    if text == SUBSCRIBE_ALL:
        return None
    possible = [code for code in codes if code in _LONG]
    if len(possible) <= _FEW_CODES:
        return FewTagCodes(possible)
    ordered = array("q", sorted(possible))

    def is_wanted(code: int) -> bool:
        place = bisect_left(ordered, code)
        return place < len(ordered) and ordered[place] == code

    return is_wanted
