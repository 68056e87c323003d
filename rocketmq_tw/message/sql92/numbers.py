"""Java's conversion of texts to numbers and booleans, and its order of doubles."""

from __future__ import annotations

import math
import re

from rocketmq_tw.message.sql92.syntax import EvaluationError

INT_RANGE = range(-(1 << 31), 1 << 31)
LONG_RANGE = range(-(1 << 63), 1 << 63)

_DECIMAL = re.compile(r"[+-]?\d+")
_DOUBLE = re.compile(
    r"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)"
)
_HEX_DOUBLE = re.compile(
    r"([+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?"
)
#: What `String.trim` takes off.
_BLANKS = "".join(map(chr, range(0x21)))
#: More digits than any long has, and few enough for Python.
_MANY_DIGITS = 30


def java_int(text: str) -> int:
    """Returns `Integer.valueOf`; raises `EvaluationError`."""
    if len(text) < 10 and text.isascii() and text.isdigit():
        return int(text)
    return _whole(text, INT_RANGE)


def java_long(text: str) -> int:
    """Returns `Long.valueOf`; raises `EvaluationError`."""
    if len(text) < 19 and text.isascii() and text.isdigit():
        return int(text)
    return _whole(text, LONG_RANGE)


def _whole(text: str, limits: range) -> int:
    # Java looks at UTF-16 units, of which one alone is a digit or none.
    if _DECIMAL.fullmatch(text) and (text.isascii() or max(text) <= "\uffff"):
        sign = "-" if text[0] == "-" else ""
        digits = text.lstrip("+-")
        if len(digits) > _MANY_DIGITS:
            digits = "".join(str(int(digit)) for digit in digits).lstrip("0") or "0"
        if len(digits) <= _MANY_DIGITS:
            number = int(sign + digits)
            if number in limits:
                return number
    raise EvaluationError


def java_double(text: str) -> float:
    """Returns `Double.valueOf`; raises `EvaluationError`."""
    text = text.strip(_BLANKS)
    if _DOUBLE.fullmatch(text):
        return float(text.rstrip("fFdD") if text[-1] in "fFdD" else text)
    hexadecimal = _HEX_DOUBLE.fullmatch(text)
    if hexadecimal is None:
        raise EvaluationError
    try:
        return float.fromhex(hexadecimal[1])
    except OverflowError:
        return -math.inf if text[0] == "-" else math.inf


def double_order(number: float) -> tuple[bool, float, float]:
    """Returns `Double.compareTo` as a key: NaN is the largest, and -0.0 smaller than 0.0."""
    if number != number:
        return True, 0.0, 0.0
    return False, number, math.copysign(1.0, number)


def java_boolean(text: str) -> bool:
    """Returns `Boolean.valueOf`: true in any case of its letters, else false."""
    return text.lower() == "true"
