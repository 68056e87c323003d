"""Reads what fastjson takes and strict JSON is not; see `fastjson.loads`, which comes here for it.

Format: docs/formats/bodies.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NoReturn

from rocketmq_tw.wire.errors import WireError
from rocketmq_tw.wire.fastjson import MAX_LEVELS
from rocketmq_tw.wire.object_keys import ObjectKey, as_key

#: Numbers as keys of one object; each is its own hash, so more of them could be made to meet. A
#: topic has no more queues.
MAX_NUMBER_KEYS = 4_096


def read(text: str, *, has_references: bool) -> Any:
    """Returns the value in `text`; raises `WireError` where fastjson could not read it."""
    value = _Reader(text).document()
    return _resolve(value, _STEPS_OF_CHARACTER * len(text)) if has_references else value


_SPACE = re.compile(r"[ \t\r\n\f\b]*")
_GAP = re.compile(r"[ \t\r\n\f\b,]*")
_PLAIN = {'"': re.compile(r'[^"\\]*'), "'": re.compile(r"[^'\\]*")}
# fastjson marks a number's Java type with a letter when it is asked for class names.
_NUMBER = re.compile(r"[+-]?([0-9]{1,400})(\.[0-9]+)?([eE][+-]?[0-9]+)?[LSBFD]?")
_NAME = re.compile(r"[A-Za-z_$\u0080-\uffff][\w$\-]*")
_ESCAPES = {
    '"': '"', "'": "'", "\\": "\\", "/": "/",
    "b": "\b", "f": "\f", "F": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    **{str(digit): chr(digit) for digit in range(8)},
}  # fmt: skip
_HEX = {"u": re.compile(r"[0-9A-Fa-f]{4}"), "x": re.compile(r"[0-9A-Fa-f]{2}")}
_WORDS = {"null": None, "undefined": None, "NaN": None, "true": True, "false": False}


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def document(self) -> Any:
        value = self._value()
        if self._peek():
            self._fail("text behind the value")
        return value

    def _fail(self, what: str) -> NoReturn:
        raise WireError(f"JSON that cannot be read: {what} at character {self._at}")

    def _peek(self, gap: re.Pattern[str] = _SPACE) -> str:
        """Returns the next character that counts, "" at the end."""
        self._at = gap.match(self._text, self._at).end()  # type: ignore[union-attr]
        return self._text[self._at : self._at + 1]

    def _value(self) -> Any:
        start = self._peek()
        if start == "{":
            return self._nested(self._object)
        if start == "[":
            return self._nested(self._array)
        if start in ("'", '"') and start:
            return self._string(start)
        if number := _NUMBER.match(self._text, self._at):
            return self._number(number)
        name = _NAME.match(self._text, self._at)
        if name is None or name[0] not in _WORDS:
            self._fail("no value")
        self._at = name.end()
        return _WORDS[name[0]]

    def _nested(self, read: Callable[[], Any]) -> Any:
        self._depth += 1
        if self._depth > MAX_LEVELS:
            self._fail(f"more than {MAX_LEVELS} levels")
        self._at += 1
        value = read()
        self._depth -= 1
        return value

    def _object(self) -> dict[Any, Any]:
        members: dict[Any, Any] = {}
        numbers = 0
        while (start := self._peek(_GAP)) != "}":
            key = self._key(start)
            if type(key) is int:
                numbers += 1
                if numbers > MAX_NUMBER_KEYS:
                    self._fail(f"more than {MAX_NUMBER_KEYS} numbers as keys")
            if self._peek() != ":":
                self._fail("no ':' behind a key")
            self._at += 1
            members[key] = self._value()
            if self._peek() not in (",", "}"):
                self._fail("neither ',' nor '}' behind a member")
        self._at += 1
        return members

    def _key(self, start: str) -> Any:
        if start in ("{", "["):
            return as_key(self._value())
        if start in ("'", '"') and start:
            return self._string(start)
        if number := _NUMBER.match(self._text, self._at):
            return as_key(self._number(number))
        name = _NAME.match(self._text, self._at)
        if name is None:
            self._fail("no key")
        self._at = name.end()
        return name[0]

    def _array(self) -> list[Any]:
        items: list[Any] = []
        while self._peek(_GAP) != "]":
            items.append(self._value())
            if self._peek() not in (",", "]"):
                self._fail("neither ',' nor ']' behind an element")
        self._at += 1
        return items

    def _number(self, number: re.Match[str]) -> int | float:
        self._at = number.end()
        if number[2] or number[3]:
            return float(number[0].rstrip("LSBFD"))
        return int(number[0].rstrip("LSBFD"))

    def _string(self, quote: str) -> str:
        text, at, plain = self._text, self._at + 1, _PLAIN[quote]
        parts: list[str] = []
        while True:
            run = plain.match(text, at)
            assert run is not None
            parts.append(run[0])
            at = run.end()
            if text[at : at + 1] == quote:
                self._at = at + 1
                return _join_surrogates("".join(parts))
            letter = text[at + 1 : at + 2]
            if letter in _HEX:
                digits = _HEX[letter].match(text, at + 2)
                if digits is None:
                    self._at = at
                    self._fail("a broken escape")
                parts.append(chr(int(digits[0], 16)))
                at = digits.end()
            elif letter in _ESCAPES:
                parts.append(_ESCAPES[letter])
                at += 2
            else:
                self._at = at
                self._fail("a broken escape" if letter else "a string without end")


def _join_surrogates(text: str) -> str:
    if not any("\ud800" <= character <= "\udfff" for character in text):
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


# References --------------------------------------------------------------------------------------

_STEP = re.compile(r"\.((?:\\.|[^.\[\\])+)|\[([0-9]{1,9})\]")
_NUMBER_STEP = re.compile(r"-?[0-9]{1,19}")
#: References multiply what a small text stands for; past this many values it is refused.
_MAX_REFERENCED = 100_000
#: Values that are looked at to follow references, for each character of a text.
_STEPS_OF_CHARACTER = 4


def _resolve(root: Any, most_steps: int) -> Any:
    """Returns `root` with each `{"$ref": path}` replaced by what the path names.

    A reference to one of its own ancestors would make a circle, which no body has: it becomes
    None, as does one that leads nowhere or to values with references yet to resolve. Raises
    `WireError` where they stand for too much, or more than `most_steps` values would be looked at.
    """
    referenced = 0
    sizes = _Sizes(most_steps)

    def target(path: object, ancestors: tuple[int, ...]) -> Any:
        nonlocal referenced
        found = _follow(root, path)
        if id(found) in ancestors:
            return None
        size = sizes.of(found)
        if size is None:
            return None
        referenced += size
        if referenced > _MAX_REFERENCED:
            raise _too_much()
        return found

    def visit(value: Any, ancestors: tuple[int, ...]) -> Any:
        if _is_reference(value):
            return target(value["$ref"], ancestors)
        inside = (*ancestors, id(value))
        if isinstance(value, dict):
            members = [(key, visit(item, inside)) for key, item in value.items()]
            value.clear()
            value.update(
                (as_key(visit(key, inside)) if isinstance(key, ObjectKey) else key, item)
                for key, item in members
            )
        elif isinstance(value, list):
            value[:] = [visit(item, inside) for item in value]
        return value

    return visit(root, ())


def _follow(root: Any, path: object) -> Any:
    if not isinstance(path, str) or not path.startswith("$."):
        return None
    value, at = root, 1
    while at < len(path):
        step = _STEP.match(path, at)
        if step is None:
            return None
        value, at = _step(value, step), step.end()
    return value


class _Sizes:
    """How many values stand in others, each of which is looked at once."""

    def __init__(self, most_steps: int) -> None:
        self._steps_left = most_steps
        #: By `id`, of lists and objects without references: nothing in these is replaced any more.
        self._known: dict[int, int] = {}

    def of(self, value: Any) -> int | None:
        """Returns how many values stand in one, itself among them, what is shared as often as it
        stands; None where a reference does. Raises `WireError` where that takes too long."""
        known = self._known.get(id(value))
        if known is not None:
            return known
        size, left = 0, [value]
        while left:
            each = left.pop()
            if _is_reference(each):
                return None
            size += 1
            if isinstance(each, dict):
                left += each.values()
            elif isinstance(each, list):
                left += each
            self._steps_left -= 1
            if self._steps_left < len(left):
                raise _too_much()
        if isinstance(value, dict | list):
            self._known[id(value)] = size
        return size


def _too_much() -> WireError:
    return WireError("JSON whose references stand for too much")


def _is_reference(value: object) -> bool:
    return isinstance(value, dict) and len(value) == 1 and "$ref" in value


def _step(value: Any, step: re.Match[str]) -> Any:
    if step[2] is not None:
        index = int(step[2])
        return value[index] if isinstance(value, list) and index < len(value) else None
    if not isinstance(value, dict):
        return None
    name = re.sub(r"\\(.)", r"\1", step[1])
    if name in value:
        return value[name]
    if _NUMBER_STEP.fullmatch(name) and int(name) in value:
        return value[int(name)]
    # fastjson has no path for an object that stands as a key and says "null".
    return next(iter(value)) if name == "null" and len(value) == 1 else None
