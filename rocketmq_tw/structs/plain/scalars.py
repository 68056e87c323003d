"""Numbers and texts of a kind, by the same rules for JSON and for values."""

from __future__ import annotations

import re
from binascii import a2b_base64
from enum import Enum
from typing import Any

from rocketmq_tw.structs.plain.errors import Misfit
from rocketmq_tw.structs.plain.kinds import TypeKind

NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*+)(\.[0-9]++)?([eE][+-]?[0-9]++)?", re.ASCII)

#: Longer integers are refused: Python's own limit, since reading one takes the square of this.
MAX_DIGITS = 4300
#: Integers of 64 bits, with and without a sign; a longer one counts as a float where none is taken.
WORDS = range(-(1 << 63), 1 << 64)
#: What a float holds without loss, below and above 0.
_EXACT = 1 << 53

_BASE64 = re.compile(r"[A-Za-z0-9+/]*+={0,2}")


def unexpected(kind: TypeKind, got: str) -> Misfit:
    return Misfit(f"Expected `{kind.name}`, got `{got}`")


def from_integer(kind: TypeKind, value: int, strict: bool, got: str = "int") -> Any:
    """Returns what `value` becomes; `got` is what errors call it."""
    if kind.any or kind.integer:
        if kind.lowest is not None and value < kind.lowest:
            raise Misfit(f"Expected `int` >= {kind.lowest}")
        if kind.highest is not None and value > kind.highest:
            raise Misfit(f"Expected `int` <= {kind.highest}")
        return int(value)
    if kind.integer_enum is not None:
        return member(kind.integer_enum, int(value))
    if kind.floating:
        try:
            return float(value)
        except OverflowError:
            raise Misfit("Number out of range") from None
    if kind.boolean and not strict and value in (0, 1):
        return value == 1
    raise unexpected(kind, got)


def from_float(kind: TypeKind, value: float, strict: bool, got: str = "float") -> Any:
    """Returns what `value` becomes; `got` is what errors call it."""
    if kind.any or kind.floating:
        return value
    if kind.integer and not strict and value.is_integer() and -_EXACT <= value <= _EXACT:
        return from_integer(kind, int(value), strict, got)
    raise unexpected(kind, got)


def from_digits(
    kind: TypeKind, text: str, is_float: bool, strict: bool, got: str | None = None
) -> Any:
    """Returns what a number becomes that is written as `text`."""
    if not is_float:
        # A word has 20 digits at most.
        value = int(text) if len(text) <= 20 else None
        if value is not None and value in WORDS:
            return from_integer(kind, value, strict, got or "int")
        if kind.any or kind.integer:
            if len(text.removeprefix("-")) > MAX_DIGITS:
                raise Misfit("Integer value out of range")
            return from_integer(kind, int(text), strict)
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise Misfit("Number out of range")
    return from_float(kind, number, strict, got or "float")


def out_of_text(kind: TypeKind, text: str, strict: bool, *, as_number: bool = False) -> Any:
    """Returns what `text` becomes of a kind that takes no text as it is: unless `strict`, what is
    written in it, or only a number with `as_number`."""
    if not strict or as_number:
        found = _written_number(kind, text, strict, as_number=as_number)
        if found is not None:
            return found
    if not (strict or as_number):
        if kind.boolean and text.isascii() and text.lower() in ("true", "false"):
            return text.lower() == "true"
        if kind.is_null_taken and text.isascii() and text.lower() == "null":
            return None
    if kind.text_enum is not None:
        return member(kind.text_enum, text)
    if kind.binary:
        if len(text) % 4 or not _BASE64.fullmatch(text):
            raise Misfit("Invalid base64 encoded string")
        return a2b_base64(text)
    raise unexpected(kind, "str")


def _written_number(kind: TypeKind, text: str, strict: bool, *, as_number: bool) -> Any:
    """Returns what the number in `text` becomes, None where there is none or none is taken."""
    is_taken = kind.integer or kind.integer_enum is not None or kind.floating
    if not (is_taken or (kind.boolean and not as_number)):
        return None
    found = NUMBER.fullmatch(text)
    if found is not None:
        return from_digits(kind, text, found.lastindex is not None, strict, "str")
    if text.isascii() and text.removeprefix("-").lower() in ("nan", "inf", "infinity"):
        return from_float(kind, float(text), strict, "str")
    return None


def member(enum: type[Enum], value: int | str) -> Any:
    """Returns the member of `enum` that has `value`."""
    try:
        return enum(value)
    except ValueError:
        raise Misfit(f"Invalid enum value {value!r}") from None
