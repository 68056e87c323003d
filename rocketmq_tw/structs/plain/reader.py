"""JSON becomes structs and what else a type asks for, read byte by byte: every rule, errors that
say where, and `Raw` as it came. `swift.py` is for what is plain and right, which nearly all is."""

from __future__ import annotations

import re
from json import loads
from typing import Any, NoReturn

from rocketmq_tw.structs.plain.conversion import complete
from rocketmq_tw.structs.plain.definition import Struct, set_field
from rocketmq_tw.structs.plain.errors import KEY, VALUE, DecodeError, Misfit
from rocketmq_tw.structs.plain.kinds import TypeKind, fields_of, type_kind
from rocketmq_tw.structs.plain.raw import Raw
from rocketmq_tw.structs.plain.scalars import from_digits, out_of_text, unexpected

_SPACES = re.compile(rb"[ \t\r\n]*+")
# All of a text that is right, up to its end: a call for each escape would take seconds where a
# frame is full of them.
_TEXT = re.compile(
    rb'(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u(?:(?![dD][89a-fA-F])[0-9a-fA-F]{4}'
    rb"|[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})))*+"
)
_DIGITS, _DIGIT_BYTES = re.compile(rb"[0-9]*+"), b"0123456789"
_HEX = re.compile(rb"[0-9a-fA-F]*+")

# An object or an array of nothing but short scalars, which is passed over as a whole.
_SCALAR = rb'(?:"[^"\\\x00-\x1f]*+"|-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?![0-9.eE])|true|false|null)'
_MEMBER = rb'"[^"\\\x00-\x1f]*+"[ \t\r\n]*+:[ \t\r\n]*+' + _SCALAR + rb"[ \t\r\n]*+"
_ITEM = _SCALAR + rb"[ \t\r\n]*+"
_FLAT = re.compile(
    rb"\{[ \t\r\n]*+(?:%b(?:,[ \t\r\n]*+%b)*+)?+\}|\[[ \t\r\n]*+(?:%b(?:,[ \t\r\n]*+%b)*+)?+\]"
    % (_MEMBER, _MEMBER, _ITEM, _ITEM)
)

_QUOTE, _BACKSLASH, _COMMA, _COLON = b'"\\,:'
_OPEN_ARRAY, _CLOSE_ARRAY, _OPEN_OBJECT, _CLOSE_OBJECT = b"[]{}"
_MINUS, _PLUS, _DOT, _ZERO, _E = b"-+.0e"
_WORDS = {ord("n"): (b"null", None), ord("t"): (b"true", True), ord("f"): (b"false", False)}
_HIGH_SURROGATES = range(0xD800, 0xDC00)

_ANY = type_kind(Any)


class Reader:
    """Reads one text from its begin to its end. Raises `DecodeError` for what is no JSON, `Misfit`
    for what is not of the kind, `UnicodeDecodeError` for text that is no UTF-8, `RecursionError`
    for what is too deep."""

    def __init__(self, data: bytes, strict: bool) -> None:
        self._data = data
        self._strict = strict
        self._place = 0

    def read(self, kind: TypeKind) -> Any:
        """Returns the whole text as a `kind`."""
        value = self._value(kind)
        self._place = _end(_SPACES, self._data, self._place)
        if self._place != len(self._data):
            self._place += 1
            raise self._malformed("trailing characters")
        return value

    # What stands next --------------------------------------------------------------------------

    def _malformed(self, what: str) -> DecodeError:
        return DecodeError(f"JSON is malformed: {what} (byte {self._place})")

    def _next(self) -> int:
        """Returns the next byte that is no space, and stays there."""
        data, place = self._data, self._place
        if place < len(data) and data[place] <= 0x20:
            place = self._place = _end(_SPACES, data, place)
        if place == len(data):
            raise DecodeError("Input data was truncated")
        return data[place]

    def _peek(self) -> int:
        """Returns the byte at the place, 0 at the end."""
        return self._data[self._place] if self._place < len(self._data) else 0

    def _taken(self, count: int) -> bytes:
        start = self._place
        if len(self._data) - start < count:
            raise DecodeError("Input data was truncated")
        self._place += count
        return self._data[start : self._place]

    def _begins(self, close: int, what: str, *, is_first: bool) -> bool:
        """Returns whether one more item or member begins here, behind the comma. Where `close` ends
        them all, it is passed over."""
        byte = self._next()
        if byte == close:
            self._place += 1
            return False
        if not is_first:
            if byte != _COMMA:
                raise self._malformed(f"expected ',' or '{chr(close)}'")
            self._place += 1
            byte = self._next()
            if byte == close:
                raise self._malformed(f"trailing comma in {what}")
        return True

    def _colon(self) -> None:
        if self._next() != _COLON:
            raise self._malformed("expected ':'")
        self._place += 1

    # Values ------------------------------------------------------------------------------------

    def _value(self, kind: TypeKind) -> Any:
        byte = self._next()
        if kind.raw:
            start = self._place
            self._skip()
            return Raw(self._data[start : self._place])
        if byte == _QUOTE:
            text = self._text()
            if kind.text or kind.any:
                return text.decode()
            return out_of_text(kind, _as_text(kind, text), self._strict)
        if byte == _OPEN_OBJECT:
            return self._object(kind)
        if byte == _OPEN_ARRAY:
            return self._array(kind)
        if byte in _WORDS:
            return self._word(kind, *_WORDS[byte])
        number, is_float = self._number()
        return from_digits(kind, number.decode(), is_float, self._strict)

    def _word(self, kind: TypeKind, word: bytes, value: bool | None) -> bool | None:
        if self._taken(len(word)) != word:
            raise self._malformed("invalid character")
        if not (kind.any or (kind.is_null_taken if value is None else kind.boolean)):
            raise unexpected(kind, "null" if value is None else "bool")
        return value

    def _array(self, kind: TypeKind) -> Any:
        kinds = _ANY if kind.any else kind.items
        if kinds is None:
            raise unexpected(kind, "array")
        self._place += 1
        made: list[Any] = []
        count = len(kinds) if isinstance(kinds, tuple) else None
        while self._begins(_CLOSE_ARRAY, "array", is_first=not made):
            if len(made) == count:
                raise Misfit(f"Expected `array` of length {count}")
            item_kind = kinds[len(made)] if isinstance(kinds, tuple) else kinds
            try:
                made.append(self._value(item_kind))
            except Misfit as misfit:
                misfit.steps.append(f"[{len(made)}]")
                raise
        if count is not None and len(made) != count:
            raise Misfit(f"Expected `array` of length {count}")
        if kind.max_items is not None and len(made) > kind.max_items:
            raise Misfit(f"Expected `array` of length <= {kind.max_items}")
        return made if kind.array is None else kind.array(made)

    def _object(self, kind: TypeKind) -> Any:
        if kind.any:
            return self._dict(_ANY, _ANY)
        if kind.keys is not None and kind.values is not None:
            return self._dict(kind.keys, kind.values)
        if not kind.structs:
            raise unexpected(kind, "object")
        if kind.struct is not None:
            self._place += 1
            return self._struct(kind.struct)
        return self._tagged(kind)

    def _dict(self, keys: TypeKind, values: TypeKind) -> dict[Any, Any]:
        self._place += 1
        made: dict[Any, Any] = {}
        is_first = True
        step = KEY
        try:
            while self._begins(_CLOSE_OBJECT, "object", is_first=is_first):
                is_first = False
                step = KEY
                name = self._name()
                if keys.text or keys.any:
                    key = name.decode()
                else:
                    key = out_of_text(keys, _as_text(keys, name), self._strict, as_number=True)
                self._colon()
                step = VALUE
                made[key] = self._value(values)
        except Misfit as misfit:
            misfit.steps.append(step)
            raise
        return made

    def _name(self) -> bytes:
        if self._next() != _QUOTE:
            raise self._malformed("object keys must be strings")
        return self._text()

    def _struct(self, struct_type: Any, *, is_first: bool = True) -> Struct:
        """Returns the struct of the members that follow."""
        config = struct_type.__struct_config__
        fields = fields_of(struct_type)
        made: Any = object.__new__(struct_type)
        given = set()
        while self._begins(_CLOSE_OBJECT, "object", is_first=is_first):
            is_first = False
            text = self._name()
            name = _as_name(text)
            self._colon()
            if name in fields:
                attribute, kind = fields[name]
                try:
                    set_field(made, attribute, self._value(kind))
                except Misfit as misfit:
                    misfit.steps.append(f".{name}")
                    raise
                given.add(attribute)
            elif name == config.tag_field:
                self._tag({config.tag: struct_type}, name)
            elif config.forbid_unknown_fields:
                raise Misfit(f"Object contains unknown field `{text.decode()}`")
            else:
                self._skip()
        struct: Struct = complete(made, given)
        return struct

    def _tagged(self, kind: TypeKind) -> Struct:
        """Returns the struct that starts here, of the class that its tag names."""
        self._place += 1
        start = self._place
        is_first = True
        tag_field = str(kind.tag_field)
        while self._begins(_CLOSE_OBJECT, "object", is_first=is_first):
            name = self._name()
            self._colon()
            if name == tag_field.encode():
                struct_type = self._tag(kind.structs, tag_field)
                if not is_first:
                    self._place = start
                return self._struct(struct_type, is_first=not is_first)
            self._skip()
            is_first = False
        raise Misfit(f"Object missing required field `{tag_field}`")

    def _tag(self, structs: dict[Any, Any], tag_field: str) -> Any:
        """Returns the class whose tag follows."""
        if self._next() == _QUOTE:
            tag = self._text().decode()
            if tag in structs:
                return structs[tag]
            misfit = Misfit(f"Invalid value '{tag}'")
        else:
            self._skip()
            misfit = Misfit("Expected `str`")
        misfit.steps.append(f".{tag_field}")
        raise misfit

    # Texts and numbers -------------------------------------------------------------------------

    def _text(self) -> bytes:
        """Returns the text that starts at the place, as UTF-8 that was not looked at."""
        start = self._place + 1
        self._pass_text(is_skipped=False)
        return _unescaped(self._data[start : self._place - 1])

    def _pass_text(self, *, is_skipped: bool) -> None:
        data = self._data
        self._place = _end(_TEXT, data, self._place + 1)
        if self._place == len(data):
            raise DecodeError("Input data was truncated")
        byte = data[self._place]
        if byte == _BACKSLASH:
            self._refuse_escape(is_skipped=is_skipped)
        if byte != _QUOTE:
            raise self._malformed("invalid character")
        self._place += 1

    def _refuse_escape(self, *, is_skipped: bool) -> NoReturn:
        """Says what is wrong with the escape at the place."""
        self._place += 1
        (letter,) = self._taken(1)
        if letter != ord("u"):
            if is_skipped:
                self._place -= 1
                raise self._malformed("invalid escaped character")
            raise self._malformed("invalid escape character in string")
        if self._four_digits() in _HIGH_SURROGATES:
            if self._taken(6)[:2] != rb"\u":
                self._place -= 6
                what = "hex escape" if is_skipped else "escaped utf-16 surrogate pair"
                raise self._malformed(f"unexpected end of {what}")
            self._place -= 4
            self._four_digits()
        raise self._malformed("invalid utf-16 surrogate pair")

    def _four_digits(self) -> int:
        digits = self._taken(4)
        wrong = _end(_HEX, digits, 0)
        if wrong < 4:
            self._place -= 3 - wrong
            raise self._malformed("invalid character in unicode escape")
        return int(digits, 16)

    def _number(self, *, is_skipped: bool = False) -> tuple[bytes, bool]:
        """Returns the digits of the number at the place, and whether it is a float."""
        start = self._place
        if self._peek() == _MINUS:
            self._place += 1
            if self._place == len(self._data) and not is_skipped:
                raise self._malformed("invalid number")
        if self._peek() == _ZERO:
            self._place += 1
            if self._peek() in _DIGIT_BYTES:
                raise self._malformed("invalid number")
        elif not self._digits():
            raise self._malformed("invalid character")
        is_float = False
        if self._peek() == _DOT:
            is_float = True
            self._place += 1
            if not self._digits():
                raise self._malformed("invalid number")
        if self._peek() | 0x20 == _E:
            is_float = True
            self._place += 1
            if self._peek() in (_MINUS, _PLUS):
                self._place += 1
            if not self._digits():
                raise self._malformed("invalid number")
        return self._data[start : self._place], is_float

    def _digits(self) -> int:
        """Passes over digits, and returns how many."""
        start = self._place
        self._place = _end(_DIGITS, self._data, start)
        return self._place - start

    # What nobody asks for ----------------------------------------------------------------------

    def _skip(self) -> None:
        """Passes over a value."""
        byte = self._next()
        if byte == _QUOTE:
            self._pass_text(is_skipped=True)
        elif byte in (_OPEN_OBJECT, _OPEN_ARRAY):
            flat = _FLAT.match(self._data, self._place)
            if flat is not None:
                self._place = flat.end()
            elif byte == _OPEN_OBJECT:
                self._skip_object()
            else:
                self._skip_array()
        elif byte in _WORDS:
            word, _ = _WORDS[byte]
            self._place += 1
            rest = self._data[self._place : self._place + len(word) - 1]
            if len(rest) < len(word) - 1:
                raise DecodeError("Input data was truncated")
            if rest != word[1:]:
                raise self._malformed("invalid character")
            self._place += len(rest)
        else:
            self._number(is_skipped=True)

    def _skip_array(self) -> None:
        self._place += 1
        is_first = True
        while self._begins(_CLOSE_ARRAY, "array", is_first=is_first):
            self._skip()
            is_first = False

    def _skip_object(self) -> None:
        self._place += 1
        is_first = True
        while self._begins(_CLOSE_OBJECT, "object", is_first=is_first):
            if self._next() != _QUOTE:
                raise self._malformed("expected '\"'")
            self._pass_text(is_skipped=True)
            self._colon()
            self._skip()
            is_first = False


def _end(pattern: re.Pattern[bytes], data: bytes, place: int) -> int:
    """Returns where what `pattern` matches at `place` ends; it matches what is empty, too."""
    found = pattern.match(data, place)
    assert found is not None
    return found.end()


def _unescaped(text: bytes) -> bytes:
    """Returns a text with what its escapes stand for. What is no UTF-8 stays as it is up to the
    end: nothing becomes of such a text, and errors say where that begins."""
    if b"\\" not in text:
        return text
    rest = b""
    try:
        escaped = text.decode()
    except UnicodeDecodeError as error:
        escaped, rest = text[: error.start].decode(), text[error.start :]
    plain: str = loads(f'"{escaped}"')
    return plain.encode() + rest


def _as_name(text: bytes) -> str:
    """Returns the name that `text` is; what is no UTF-8 is the name of no field."""
    try:
        return text.decode()
    except UnicodeDecodeError:
        return "\ufffd"


def _as_text(kind: TypeKind, text: bytes) -> str:
    """Returns a text for a kind that takes none as it is: only an enumeration needs to know what
    stands in it."""
    return text.decode() if kind.text_enum is not None else text.decode("latin-1")
