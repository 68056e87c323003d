"""The JSON dialect of stock's bodies: a tolerant reader and a writer (docs/formats/bodies.md).

Stock writes with fastjson, which departs from JSON where a map's keys are no strings: numbers
stand bare (`{0:"10.0.0.1:10911"}`), objects stand as they are (`{{"topic":"T"}:1}`), and an
object that occurs twice is written once and then as `{"$ref":"$.path"}`. The reader takes all
that and what fastjson itself takes: single quotes, bare names, trailing commas.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, NoReturn

import msgspec

from rocketmq_tw.wire.errors import WireError

#: Deeper nesting is refused; stock's deepest body has 7 levels.
MAX_DEPTH = 64

#: More values than this are refused before any is made: a value of two bytes takes a hundred in
#: memory. A frame of 16 MiB that is full of topics has 1.1 million.
MAX_VALUES = 1_500_000

#: What msgspec raises where text is no strict JSON or not of the type asked for.
STRICT_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)

_strict_decode = msgspec.json.Decoder().decode


class ObjectKey(dict[Any, Any]):
    """An object that stands as a key of another."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))


def check_values(data: bytes, limit: int = MAX_VALUES) -> None:
    """Raises `WireError` where `data` may hold more than `limit` values; only a text longer than
    that is looked at."""
    if len(data) > limit and sum(map(data.count, (b",", b"[", b"{"))) > limit:
        raise WireError(f"JSON of more than {limit} values")


def loads(data: bytes) -> Any:
    """The value in `data`: dicts, lists, str, int, float, bool, None; keys are str, numbers or
    `ObjectKey`; references are resolved, one that leads nowhere is None.

    Raises `WireError` where fastjson could not read it either.
    """
    check_values(data)
    has_references = b"$ref" in data
    try:
        if not has_references:
            return _strict_decode(data)
    except STRICT_ERRORS:
        pass
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise WireError(f"JSON that is not UTF-8: {error}") from error
    value = _Reader(text).document()
    return _resolve(value) if has_references else value


_STRING_OR_BARE_KEY = re.compile(
    rb""""[^"\\]*+(?:\\.[^"\\]*+)*+"?|([{,][ \t\r\n]*+)(-?[0-9]{1,19})(?=[ \t\r\n]*+:)""", re.DOTALL
)


def quote_bare_keys(data: bytes) -> bytes:
    """`data` with quotes around the numbers that stand as keys: strict JSON where that is all that
    it lacks. Much faster than `loads`; what is no JSON stays none."""

    def quoted(found: re.Match[bytes]) -> bytes:
        return found[0] if found[2] is None else b'%b"%b"' % (found[1], found[2])

    return _STRING_OR_BARE_KEY.sub(quoted, data)


# Reading -----------------------------------------------------------------------------------------

_SPACE = re.compile(r"[ \t\r\n\f\b]*")
_GAP = re.compile(r"[ \t\r\n\f\b,]*")
_PLAIN = {'"': re.compile(r'[^"\\]*'), "'": re.compile(r"[^'\\]*")}
# fastjson marks a number's Java type with a letter when it is asked for class names.
_NUMBER = re.compile(r"[+-]?(\d{1,400})(\.\d+)?([eE][+-]?\d+)?[LSBFD]?")
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
        """The next character that counts, "" at the end."""
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
        if self._depth > MAX_DEPTH:
            self._fail(f"more than {MAX_DEPTH} levels")
        self._at += 1
        value = read()
        self._depth -= 1
        return value

    def _object(self) -> dict[Any, Any]:
        members: dict[Any, Any] = {}
        while (start := self._peek(_GAP)) != "}":
            key = self._key(start)
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
            return self._number(number)
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


def as_key(value: Any) -> Any:
    """`value` as it can stand as a key of a dict; members that are null are left out."""
    if isinstance(value, dict):
        return ObjectKey((key, as_key(item)) for key, item in value.items() if item is not None)
    if isinstance(value, list):
        return tuple(as_key(item) for item in value)
    return value


# References --------------------------------------------------------------------------------------

_STEP = re.compile(r"\.((?:\\.|[^.\[\\])+)|\[(\d+)\]")
#: References multiply what a small text stands for; past this many values it is refused.
_MAX_REFERENCED = 100_000


def _resolve(root: Any) -> Any:
    """`root` with each `{"$ref": path}` replaced by what the path names.

    A reference to one of its own ancestors would make a circle, which no body has: it becomes
    None, as does one that leads nowhere or to values with references yet to resolve.
    """
    referenced = 0

    def target(path: object, ancestors: tuple[int, ...]) -> Any:
        nonlocal referenced
        found = _follow(root, path)
        if id(found) in ancestors:
            return None
        for value in _walk(found):
            if _is_reference(value):
                return None
            referenced += 1
            if referenced > _MAX_REFERENCED:
                raise WireError("JSON whose references stand for too much")
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


def _walk(value: Any) -> Iterator[Any]:
    """`value` and all in it; what is shared comes as often as it stands."""
    yield value
    if isinstance(value, dict) and not _is_reference(value):
        value = value.values()
    elif not isinstance(value, list):
        return
    for item in value:
        yield from _walk(item)


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
    if name.lstrip("-").isdigit() and int(name) in value:
        return value[int(name)]
    # fastjson has no path for an object that stands as a key and says "null".
    keys = list(value)
    return keys[0] if name == "null" and len(keys) == 1 else None


# Writing -----------------------------------------------------------------------------------------

_encode = msgspec.json.Encoder().encode


def dumps(value: Any, *, standard: bool = False) -> bytes:
    """`value` as fastjson writes it: the fields of a `msgspec.Struct` in the order of their wire
    names and left out where None, maps in their own order with bare number and object keys.

    `standard` gives strict JSON as stock does for a client that accepts no other: keys that are
    no strings become strings, maps are sorted.
    """
    parts: list[bytes] = []
    _write(value, standard, parts.append)
    return b"".join(parts)


@cache
def _fields(struct_type: type[msgspec.Struct]) -> tuple[tuple[bytes, str], ...]:
    """(`"wireName":`, attribute) in the order of the names."""
    pairs = zip(struct_type.__struct_encode_fields__, struct_type.__struct_fields__, strict=True)
    return tuple((_encode(name) + b":", attribute) for name, attribute in sorted(pairs))


def _write(value: Any, standard: bool, put: Callable[[bytes], None]) -> None:
    if isinstance(value, msgspec.Struct):
        separator = b"{"
        for name, attribute in _fields(type(value)):
            item = getattr(value, attribute)
            if item is not None:
                put(separator + name)
                _write(item, standard, put)
                separator = b","
        put(b"{}" if separator == b"{" else b"}")
    elif isinstance(value, Mapping):
        _write_map(value, standard, put)
    elif isinstance(value, list | tuple | set | frozenset):
        separator = b"["
        for item in value:
            put(separator)
            _write(item, standard, put)
            separator = b","
        put(b"[]" if separator == b"[" else b"]")
    else:
        put(_encode(value))


def _write_map(value: Mapping[Any, Any], standard: bool, put: Callable[[bytes], None]) -> None:
    members = sorted(value.items(), key=_sort_key) if standard else value.items()
    separator = b"{"
    for key, item in members:
        if item is None:
            continue
        put(separator)
        if isinstance(key, str):
            put(_encode(key))
        elif standard:
            put(_encode(dumps(key, standard=True).decode()))
        else:
            _write(key, standard, put)
        put(b":")
        _write(item, standard, put)
        separator = b","
    put(b"{}" if separator == b"{" else b"}")


def _sort_key(member: tuple[Any, Any]) -> tuple[bool, Any]:
    key = member[0]
    return (True, key) if isinstance(key, int) else (False, str(key))
