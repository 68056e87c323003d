"""What stands in for msgspec, case by case; msgspec itself does the same where it is there."""
# mypy: disable-error-code="call-arg, has-type"

import copy
import importlib
import pickle
import time
from contextlib import suppress
from enum import Enum, IntEnum
from typing import Annotated, Any, Generic, TypeVar

import pytest

from rocketmq_tw.structs import plain

LIBRARIES: list[Any] = [plain]
with suppress(ImportError):
    LIBRARIES.append(importlib.import_module("msgspec"))

T = TypeVar("T")


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


@pytest.fixture(params=LIBRARIES, ids=lambda library: library.__name__.split(".")[-1])
def lib(request: pytest.FixtureRequest) -> Any:
    return request.param


class Picklable(plain.Struct, kw_only=True):
    """One of what stands in; a class of msgspec is pickled the same way."""

    name: str
    items: list[int] = []


# JSON to values -----------------------------------------------------------------------------------

VALUES: list[tuple[bytes, Any]] = [
    (b"0", 0),
    (b"-0", 0),
    (b"-0.0", -0.0),
    (b" [1 , 2]\r\n\t", [1, 2]),
    (b"18446744073709551615", 2**64 - 1),
    (b"-9223372036854775809", -(2**63) - 1),
    (b"9" * 4300, int("9" * 4300)),
    (b"1e3", 1000.0),
    (b"1E+2", 100.0),
    (b"1e-400", 0.0),
    (b"0." + b"1" * 1000, 1 / 9),
    (b"true", True),
    (b"null", None),
    (b'""', ""),
    (b'"\\u0000\\/\\b\\f\\n\\r\\t\\"\\\\"', '\0/\b\f\n\r\t"\\'),
    (b'"\x7f"', "\x7f"),
    (b'"\\ud83d\\ude00"', "\U0001f600"),
    ('"äöü\U0001f600\u2028"'.encode(), "äöü\U0001f600\u2028"),
    (b'{"a":1,"b":[{}],"a":2}', {"a": 2, "b": [{}]}),
    (b"{}", {}),
]


@pytest.mark.parametrize(("text", "value"), VALUES, ids=[repr(text)[:30] for text, _ in VALUES])
def test_json_is_read(lib: Any, text: bytes, value: Any) -> None:
    found = lib.json.decode(text)
    assert (found, type(found)) == (value, type(value))
    assert lib.json.decode(text.decode()) == value
    assert lib.json.decode(bytearray(text)) == value


MALFORMED: list[tuple[bytes, str]] = [
    (b"", "Input data was truncated"),
    (b" ", "Input data was truncated"),
    (b"[1,", "Input data was truncated"),
    (b'"a', "Input data was truncated"),
    (b'"\\u12', "Input data was truncated"),
    (b"tru", "Input data was truncated"),
    (b"trux", "JSON is malformed: invalid character (byte 4)"),
    (b"1 2", "JSON is malformed: trailing characters (byte 3)"),
    (b"1\0", "JSON is malformed: trailing characters (byte 2)"),
    (b'{"a":1}\0{', "JSON is malformed: trailing characters (byte 8)"),
    (b"\xef\xbb\xbf1", "JSON is malformed: invalid character (byte 0)"),
    (b"01", "JSON is malformed: invalid number (byte 1)"),
    (b"-", "JSON is malformed: invalid number (byte 1)"),
    (b"1.", "JSON is malformed: invalid number (byte 2)"),
    (b"1e", "JSON is malformed: invalid number (byte 2)"),
    (b"+1", "JSON is malformed: invalid character (byte 0)"),
    (b".5", "JSON is malformed: invalid character (byte 0)"),
    (b"NaN", "JSON is malformed: invalid character (byte 0)"),
    (b"[Infinity]", "JSON is malformed: invalid character (byte 1)"),
    (b"-Infinity", "JSON is malformed: invalid character (byte 1)"),
    (b'"\x00"', "JSON is malformed: invalid character (byte 1)"),
    (b'"a\nb"', "JSON is malformed: invalid character (byte 2)"),
    (b'"\\x"', "JSON is malformed: invalid escape character in string (byte 3)"),
    (b'"\\u00g0"', "JSON is malformed: invalid character in unicode escape (byte 6)"),
    (b'"\\udc00"', "JSON is malformed: invalid utf-16 surrogate pair (byte 7)"),
    (b'"\\ud800\\ud800"', "JSON is malformed: invalid utf-16 surrogate pair (byte 13)"),
    (
        b'"\\ud800xxxxxx"',
        "JSON is malformed: unexpected end of escaped utf-16 surrogate pair (byte 7)",
    ),
    (b"[1,]", "JSON is malformed: trailing comma in array (byte 3)"),
    (b"[1 2]", "JSON is malformed: expected ',' or ']' (byte 3)"),
    (b'{"a":1,}', "JSON is malformed: trailing comma in object (byte 7)"),
    (b"{1:2}", "JSON is malformed: object keys must be strings (byte 1)"),
    (b'{"a" 1}', "JSON is malformed: expected ':' (byte 5)"),
    (b"{'a':1}", "JSON is malformed: object keys must be strings (byte 1)"),
    (b"/**/1", "JSON is malformed: invalid character (byte 0)"),
    (b"1e400", "Number out of range"),
    (b'{"a":[-1e999]}', "Number out of range - at `$[...][0]`"),
    (b"9" * 4301, "Integer value out of range"),
]


@pytest.mark.parametrize(
    ("text", "words"), MALFORMED, ids=[repr(text)[:30] for text, _ in MALFORMED]
)
def test_what_is_no_json_is_refused(lib: Any, text: bytes, words: str) -> None:
    with pytest.raises(lib.DecodeError) as caught:
        lib.json.decode(text)
    assert str(caught.value) == words


def test_bytes_that_are_no_utf_8_are_refused_unless_nobody_wants_them(lib: Any) -> None:
    class One(lib.Struct):
        a: int = 0

    with pytest.raises(UnicodeDecodeError):
        lib.json.decode(b'["\xff"]')
    assert lib.json.decode(b'{"b":"\xff","\xfe":1,"a":2}', type=One) == One(2)
    with pytest.raises(lib.DecodeError, match="invalid utf-16 surrogate pair"):
        lib.json.decode(b'{"b":"\\ude00"}', type=One)
    with pytest.raises(lib.DecodeError, match="invalid character"):
        lib.json.decode(b'{"b":[NaN]}', type=One)
    assert lib.json.decode(b'{"b":1e400,"c":%b}' % (b"9" * 5000), type=One) == One(0)


ESCAPED = [rb"\n", rb"\u00e9", rb"\ud83d\uDE00", rb"a\"", b"\xff\\n"]


@pytest.mark.parametrize("piece", ESCAPED, ids=[repr(piece) for piece in ESCAPED])
def test_a_long_text_of_escapes_takes_no_time(lib: Any, piece: bytes) -> None:
    class One(lib.Struct):
        a: Color | None = None

    text = b'"%b"' % (piece * (8_000_000 // len(piece)))
    started = time.process_time()
    # That is no JSON at its end, and of another type.
    assert lib.json.decode(b'{"b":%b,%b:0}' % (text, text), type=One) == One()
    for data in (b'{"b":%b' % text, b'{"a":%b' % text, b"{%b" % text):
        with pytest.raises((lib.DecodeError, UnicodeDecodeError)):
            lib.json.decode(data, type=One)
    assert time.process_time() - started < 2.5


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b'"\\n\xff"', "byte 0xff in position 1: invalid start byte"),
        (b'"\\u00e9\xe4\xb8\\u0080"', "bytes in position 2-3: invalid continuation byte"),
        (b'"\\ud83d\\ude00\xe4\xb8"', "bytes in position 4-5: unexpected end of data"),
    ],
)
def test_bytes_that_are_no_utf_8_are_counted_behind_escapes(
    lib: Any, text: bytes, words: str
) -> None:
    for of in (str, Any, Color):
        with pytest.raises(UnicodeDecodeError, match=words):
            lib.json.decode(text, type=of)


def test_of_a_name_given_twice_the_last_value_counts() -> None:
    class One(plain.Struct):
        a: int

    # msgspec refuses a wrong value that another one follows.
    assert plain.json.decode(b'{"a":"x","a":2}', type=One) == One(2)
    with pytest.raises(plain.ValidationError, match="Expected `int`, got `str`"):
        plain.json.decode(b'{"a":1,"a":"x"}', type=One)


def test_long_base64_takes_no_time(lib: Any) -> None:
    started = time.process_time()
    text = "AAAA" * 4_000_000
    assert lib.convert(text, bytes) == bytes(12_000_000)
    with pytest.raises(lib.ValidationError):
        lib.convert(text + "AA=A", bytes)
    assert time.process_time() - started < 1


@pytest.mark.parametrize(
    "text", [b"[" * 100_000, b'{"a":' * 100_000, b"[" * 99_999 + b"]" * 99_999]
)
def test_what_is_too_deep_is_refused_in_no_time(lib: Any, text: bytes) -> None:
    class One(lib.Struct):
        a: Any = None

    started = time.process_time()
    for of in (Any, One, list[Any], int, list[int]):
        with pytest.raises((lib.DecodeError, RecursionError)):
            lib.json.decode(text, type=of)
        with pytest.raises((lib.DecodeError, RecursionError)):
            lib.json.decode(b'{"unknown":' + text, type=One)
    assert time.process_time() - started < 5


def test_long_numbers_take_no_time(lib: Any) -> None:
    started = time.process_time()
    for text in (b"9" * 1_000_000, b"-" + b"1" * 1_000_000):
        for of in (Any, int, float, str, bool):
            for strict in (True, False):
                with pytest.raises(lib.DecodeError):
                    lib.json.decode(text, type=of, strict=strict)
                with pytest.raises(lib.DecodeError):
                    lib.json.decode(b'"' + text, type=of, strict=strict)
    with pytest.raises(lib.ValidationError):
        lib.convert("9" * 1_000_000, int, strict=False)
    assert time.process_time() - started < 5


def test_an_integer_that_no_float_holds_is_refused(lib: Any) -> None:
    class One(lib.Struct):
        a: float = 0.0

    for given in (10**400, -(10**400)):
        for strict in (True, False):
            for of in (float, float | bool | None):
                with pytest.raises(lib.ValidationError, match=r"^Number out of range$"):
                    lib.convert(given, of, strict=strict)
            with pytest.raises(lib.ValidationError, match=r"^Number out of range - at `\$\.a`$"):
                lib.convert({"a": given}, One, strict=strict)
        with pytest.raises(lib.ValidationError, match=r"^Number out of range - at `key` in"):
            lib.convert({given: 1}, dict[float, int])
    with pytest.raises(lib.DecodeError, match=r"^Number out of range - at `\$\.a`$"):
        lib.json.decode(b'{"a":%b}' % (b"9" * 400), type=One)


# Types --------------------------------------------------------------------------------------------


def types(lib: Any) -> dict[str, Any]:
    class Inner(lib.Struct, rename="camel"):
        some_name: int
        other: str = lib.field(default="o", name="x")

    class Strict(lib.Struct, forbid_unknown_fields=True):
        a: int = 0

    class Checked(lib.Struct):
        a: int

        def __post_init__(self) -> None:
            if self.a < 0:
                raise ValueError(f"{self.a} is below 0")

    class Put(lib.Struct, tag="put"):
        key: str

    class Delete(lib.Struct, tag="delete"):
        key: str

    class Sparse(lib.Struct):
        a: int | lib.UnsetType = lib.UNSET

    byte = Annotated[int, lib.Meta(ge=-128, le=127)]
    return {
        "int": int,
        "float": float,
        "bool": bool,
        "str": str,
        "none": None,
        "bytes": bytes,
        "byte": byte,
        "positive": Annotated[int, lib.Meta(ge=1, lt=1 << 31)],
        "maybe": int | None,
        "text or flag": str | bool | None,
        "either": int | str,
        "list": list[int],
        "short": Annotated[list[byte], lib.Meta(max_length=2)],
        "set": frozenset[int],
        "pair": tuple[str, int],
        "tuple": tuple[int, ...],
        "dict": dict[str, int],
        "numbers": dict[int, float],
        "nested": dict[str, list[Inner]],
        "color": Color,
        "level": Level,
        "inner": Inner,
        "strict": Strict,
        "checked": list[Checked],
        "tagged": Put | Delete,
        "put": Put,
        "sparse": Sparse,
        "raw": lib.Raw,
        "raws": dict[str, lib.Raw],
    }


#: A type, a text, and what comes of it: as it is shown, strictly and without; "!" stands before the
#: words of an error.
TYPED: list[tuple[str, str, str, str]] = [
    ("int", "1.0", "!Expected `int`, got `float`", "1"),
    ("int", "1.5", "!Expected `int`, got `float`", "!Expected `int`, got `float`"),
    ("int", "9007199254740993.0", "!Expected `int`, got `float`", "9007199254740992"),
    ("int", "1e16", "!Expected `int`, got `float`", "!Expected `int`, got `float`"),
    ("int", '"12"', "!Expected `int`, got `str`", "12"),
    ("int", '"-12"', "!Expected `int`, got `str`", "-12"),
    ("int", '"-0"', "!Expected `int`, got `str`", "0"),
    ("int", '"012"', "!Expected `int`, got `str`", "!Expected `int`, got `str`"),
    ("int", '" 1"', "!Expected `int`, got `str`", "!Expected `int`, got `str`"),
    ("int", '"1_0"', "!Expected `int`, got `str`", "!Expected `int`, got `str`"),
    ("int", '"\u0661"', "!Expected `int`, got `str`", "!Expected `int`, got `str`"),
    ("int", '"\u00b2"', "!Expected `int`, got `str`", "!Expected `int`, got `str`"),
    ("int", '"1e2"', "!Expected `int`, got `str`", "100"),
    ("int", '"99999999999999999999"', "!Expected `int`, got `str`", "99999999999999999999"),
    ("int", "true", "!Expected `int`, got `bool`", "!Expected `int`, got `bool`"),
    ("int", "null", "!Expected `int`, got `null`", "!Expected `int`, got `null`"),
    ("float", "1", "1.0", "1.0"),
    ("float", "-0", "0.0", "0.0"),
    ("float", '"nan"', "!Expected `float`, got `str`", "nan"),
    ("float", '"-Infinity"', "!Expected `float`, got `str`", "-inf"),
    ("float", '"1e400"', "!Expected `float`, got `str`", "!Number out of range"),
    ("bool", "1", "!Expected `bool`, got `int`", "True"),
    ("bool", "2", "!Expected `bool`, got `int`", "!Expected `bool`, got `int`"),
    ("bool", "1.0", "!Expected `bool`, got `float`", "!Expected `bool`, got `float`"),
    ("bool", '"tRUE"', "!Expected `bool`, got `str`", "True"),
    ("bool", '"0"', "!Expected `bool`, got `str`", "False"),
    ("bool", '"yes"', "!Expected `bool`, got `str`", "!Expected `bool`, got `str`"),
    ("none", '"NULL"', "!Expected `null`, got `str`", "None"),
    ("str", "18446744073709551616", *["!Expected `str`, got `float`"] * 2),
    ("bytes", '"AAE="', "b'\\x00\\x01'", "b'\\x00\\x01'"),
    ("bytes", '"AAE"', *["!Invalid base64 encoded string"] * 2),
    ("bytes", '"AA=="', "b'\\x00'", "b'\\x00'"),
    ("bytes", '"A+/z"', "b'\\x03\\xef\\xf3'", "b'\\x03\\xef\\xf3'"),
    ("bytes", '""', "b''", "b''"),
    *(
        ("bytes", f'"{text}"', *["!Invalid base64 encoded string"] * 2)
        for text in (
            "A",
            "A===",
            "====",
            "AA=A",
            "AAAA=",
            "AAA=AAA=",
            "AA-_",
            "AAA\u00e4",
            "AAA\u0661",
        )
    ),
    ("byte", "128", "!Expected `int` <= 127", "!Expected `int` <= 127"),
    ("byte", '"-129"', "!Expected `int`, got `str`", "!Expected `int` >= -128"),
    ("byte", "-129.0", "!Expected `int`, got `float`", "!Expected `int` >= -128"),
    ("byte", "1" * 30, "!Expected `int` <= 127", "!Expected `int` <= 127"),
    ("positive", "2147483648", *["!Expected `int` <= 2147483647"] * 2),
    ("positive", '"0"', "!Expected `int`, got `str`", "!Expected `int` >= 1"),
    ("maybe", '"null"', "!Expected `int | null`, got `str`", "None"),
    ("maybe", "[]", *["!Expected `int | null`, got `array`"] * 2),
    ("text or flag", '"true"', "'true'", "'true'"),
    ("text or flag", "1", "!Expected `bool | str | null`, got `int`", "True"),
    ("either", '"1"', "'1'", "'1'"),
    ("list", '[1,"2"]', "!Expected `int`, got `str` - at `$[1]`", "[1, 2]"),
    ("short", "[1,2,3]", *["!Expected `array` of length <= 2"] * 2),
    ("short", "[1,200]", *["!Expected `int` <= 127 - at `$[1]`"] * 2),
    ("set", "[1,1]", "frozenset({1})", "frozenset({1})"),
    ("pair", '["a",1]', "('a', 1)", "('a', 1)"),
    ("pair", '["a"]', *["!Expected `array` of length 2"] * 2),
    ("tuple", "[1,2]", "(1, 2)", "(1, 2)"),
    ("dict", '{"a":null}', *["!Expected `int`, got `null` - at `$[...]`"] * 2),
    ("numbers", '{"1":2,"-3":4}', "{1: 2.0, -3: 4.0}", "{1: 2.0, -3: 4.0}"),
    ("numbers", '{"x":2}', *["!Expected `int`, got `str` - at `key` in `$`"] * 2),
    (
        "nested",
        '{"a":[{"someName":1},{"someName":[]}]}',
        *["!Expected `int`, got `array` - at `$[...][1].someName`"] * 2,
    ),
    ("color", '"red"', "<Color.RED: 'red'>", "<Color.RED: 'red'>"),
    ("color", '"green"', *["!Invalid enum value 'green'"] * 2),
    ("level", '"2"', "!Expected `int`, got `str`", "<Level.HIGH: 2>"),
    ("level", "3", "!Invalid enum value 3", "!Invalid enum value 3"),
    ("inner", '{"someName":1,"y":[{}]}', *["Inner(some_name=1, other='o')"] * 2),
    ("inner", '{"someName":1,"x":"z"}', *["Inner(some_name=1, other='z')"] * 2),
    ("inner", '{"some_name":1}', *["!Object missing required field `someName`"] * 2),
    ("inner", "[]", "!Expected `object`, got `array`", "!Expected `object`, got `array`"),
    ("strict", '{"b":1}', *["!Object contains unknown field `b`"] * 2),
    ("checked", '[{"a":-1}]', *["!-1 is below 0 - at `$[0]`"] * 2),
    ("tagged", '{"key":"k","type":"put"}', "Put(key='k')", "Put(key='k')"),
    ("tagged", '{"key":"k"}', *["!Object missing required field `type`"] * 2),
    ("tagged", '{"type":"x"}', *["!Invalid value 'x' - at `$.type`"] * 2),
    ("tagged", '{"type":1}', *["!Expected `str` - at `$.type`"] * 2),
    ("put", '{"key":"k","type":"delete"}', *["!Invalid value 'delete' - at `$.type`"] * 2),
    ("put", '{"key":"k"}', "Put(key='k')", "Put(key='k')"),
    ("sparse", "{}", "Sparse(a=UNSET)", "Sparse(a=UNSET)"),
    ("sparse", '{"a":1,"a":2}', "Sparse(a=2)", "Sparse(a=2)"),
]


@pytest.mark.parametrize(("name", "text", "strictly", "laxly"), TYPED)
def test_json_becomes_a_type(lib: Any, name: str, text: str, strictly: str, laxly: str) -> None:
    for strict, expected in ((True, strictly), (False, laxly)):
        try:
            found = repr(lib.json.decode(text.encode(), type=types(lib)[name], strict=strict))
        except lib.ValidationError as error:
            found = f"!{error}"
        assert found == expected, strict


def test_raw_is_cut_out_as_it_came(lib: Any) -> None:
    text = b' { "a" : {"x": [1.50, "\\u0041\xff"]}\t, "b" :null , "c":"q\\""}'
    found = lib.json.decode(text, type=types(lib)["raws"])
    assert {name: bytes(raw) for name, raw in found.items()} == {
        "a": b'{"x": [1.50, "\\u0041\xff"]}',
        "b": b"null",
        "c": b'"q\\""',
    }
    assert lib.json.decode(found["b"]) is None
    assert lib.json.encode(found["b"]) == b"null"
    with pytest.raises(lib.DecodeError, match=r"trailing comma in array \(byte 9\)"):
        lib.json.decode(b'{"a":[[1,]]}', type=types(lib)["raws"])
    assert lib.Raw(b"1") == lib.Raw("1") != b"1"
    with pytest.raises(TypeError):
        hash(lib.Raw(b"1"))


_NO_NAME = "!Expected `int`, got `str` - at `$.someName`"
CONVERTED: list[tuple[str, Any, str, str]] = [
    ("int", True, "!Expected `int`, got `bool`", "!Expected `int`, got `bool`"),
    ("int", Level.HIGH, "2", "2"),
    ("int", b"1", "!Expected `int`, got `bytes`", "!Expected `int`, got `bytes`"),
    ("int", 1j, "!Expected `int`, got `complex`", "!Expected `int`, got `complex`"),
    ("list", (1, 2), "[1, 2]", "[1, 2]"),
    ("list", {1}, "[1]", "[1]"),
    ("pair", ["a"], *["!Expected `array` of length 2, got 1"] * 2),
    ("pair", {"a", 1}, "!Expected `array`, got `set`", "!Expected `array`, got `set`"),
    ("bytes", bytearray(b"x"), "b'x'", "b'x'"),
    ("color", Color.BLUE, "<Color.BLUE: 'blue'>", "<Color.BLUE: 'blue'>"),
    ("inner", {1: 2}, "!Expected `str` - at `key` in `$`", "!Expected `str` - at `key` in `$`"),
    ("inner", {"someName": "7"}, _NO_NAME, "Inner(some_name=7, other='o')"),
    ("numbers", {"1": 1}, "!Expected `int`, got `str` - at `key` in `$`", "{1: 1.0}"),
    ("tagged", {"type": "put", "key": "k"}, "Put(key='k')", "Put(key='k')"),
    ("tagged", {"type": None}, *["!Expected `str`, got `NoneType` - at `$.type`"] * 2),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value", "strictly", "laxly"), CONVERTED)
def test_a_value_becomes_a_type(lib: Any, name: str, value: Any, strictly: str, laxly: str) -> None:
    for strict, expected in ((True, strictly), (False, laxly)):
        try:
            found = repr(lib.convert(value, types(lib)[name], strict=strict))
        except lib.ValidationError as error:
            found = f"!{error}"
        assert found == expected, strict


def test_what_is_converted_is_no_part_of_the_result(lib: Any) -> None:
    given = {"a": [1, 2]}
    found = lib.convert(given, dict[str, list[int]])
    found["a"].append(3)
    found["b"] = []
    assert given == {"a": [1, 2]}


# Values to JSON -----------------------------------------------------------------------------------

WRITTEN: list[tuple[Any, bytes]] = [
    (
        "\0\x1f\x7f\b\f\n\r\t\"\\/ä\u2028",
        '"\\u0000\\u001f\x7f\\b\\f\\n\\r\\t\\"\\\\/ä\u2028"'.encode(),
    ),
    ({1: None, Color.RED: 1, Level.HIGH: 2, 1.5: 3}, b'{"1":null,"red":1,"2":2,"1.5":3}'),
    ([(), {1}, frozenset(), [False]], b"[[],[1],[],[false]]"),
    (b"\0\1", b'"AAE="'),
    ([Color.BLUE, Level.HIGH], b'["blue",2]'),
    (
        [1e15, 1e16, 1e-4, 1e-5, -1.5e-5, 1e-6, 1.5e300, -0.0],
        b"[1000000000000000.0,1e16,0.0001,0.00001,-0.000015,1e-6,1.5e300,-0.0]",
    ),
    (5e-324, b"5e-324"),
    ([float("nan"), float("-inf")], b"[null,null]"),
    ({float("inf"): 1}, b'{"inf":1}'),
    (10**40, b"1" + b"0" * 40),
]  # fmt: skip


@pytest.mark.parametrize(("value", "text"), WRITTEN)
def test_values_are_written(lib: Any, value: Any, text: bytes) -> None:
    assert lib.json.encode(value) == text
    assert lib.json.Encoder().encode(value) == text


def test_structs_are_written_without_what_is_unset_or_left_at_its_default(lib: Any) -> None:
    class Sparse(lib.Struct, omit_defaults=True):
        a: int | lib.UnsetType = lib.UNSET
        b: list[int] = []
        c: int = 500
        d: str = ""

    class Whole(lib.Struct):
        a: int | lib.UnsetType
        b: Any = None

    assert lib.json.encode(Sparse()) == b"{}"
    assert lib.json.encode(Sparse(b=[1], d="x")) == b'{"b":[1],"d":"x"}'
    assert lib.json.encode(Whole(lib.UNSET)) == b'{"b":null}'
    assert lib.json.encode([Whole(1, {"k": Whole(2)})]) == b'[{"a":1,"b":{"k":{"a":2,"b":null}}}]'
    assert lib.to_builtins(Whole(lib.UNSET, (1, {2: Sparse(c=1)}))) == {"b": (1, {2: {"c": 1}})}
    assert lib.to_builtins({1: b"\0"}, str_keys=True) == {"1": "AA=="}


def test_what_has_no_form_in_json_is_refused(lib: Any) -> None:
    for value in (object(), [1j], {"a": range(2)}):
        with pytest.raises(TypeError, match=r"^Encoding objects of type \w+ is unsupported$"):
            lib.json.encode(value)
    for key in (None, True, (1,)):
        with pytest.raises(TypeError, match="Only dicts with str-like or number-like keys"):
            lib.json.encode({key: 1})
    with pytest.raises(UnicodeEncodeError):
        lib.json.encode(["\ud800"])
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(RecursionError):
        lib.json.encode(deep)


def test_json_is_put_in_lines(lib: Any) -> None:
    text = b'{"a":[1,{"b":"[,]\\"{"},[],{}],"c":1.50}'
    expected = b'{\n "a": [\n  1,\n  {\n   "b": "[,]\\"{"\n  },\n  [],\n  {}\n ],\n "c": 1.50\n}'
    assert lib.json.format(text, indent=1) == expected
    assert lib.json.format(text.decode(), indent=1) == expected.decode()
    with pytest.raises(lib.DecodeError):
        lib.json.format(b"{'a':1}")


# Structs ------------------------------------------------------------------------------------------


def test_fields_of_bases_come_first_and_keep_their_places(lib: Any) -> None:
    class Base(lib.Struct, rename="camel", kw_only=True):
        first_one: int = 0
        second: list[int] = []

    class Derived(Base, kw_only=True):
        third_one: str
        first_one: int = lib.field(default=5, name="F")

    class Positional(Derived):
        second: Any = None

    assert Derived.__struct_fields__ == ("first_one", "second", "third_one")
    assert Derived.__struct_encode_fields__ == ("F", "second", "thirdOne")
    assert Derived.__match_args__ == ()
    assert Positional.__match_args__ == ("second",)
    assert repr(Positional(3, third_one="x")) == "Positional(second=3, first_one=5, third_one='x')"
    assert Derived(third_one="a").second is not Derived(third_one="a").second


def test_a_constructor_refuses_what_does_not_fit(lib: Any) -> None:
    class Pair(lib.Struct):
        a: int
        b: int = 2

    for arguments, keywords in (((), {}), ((1, 2, 3), {}), ((1,), {"a": 1}), ((1,), {"c": 1})):
        with pytest.raises(TypeError):
            Pair(*arguments, **keywords)
    assert Pair(1) == Pair(a=1, b=2) != Pair(2)
    with pytest.raises(AttributeError):
        Pair(1).c = 5
    with pytest.raises(TypeError, match="unhashable type: 'Pair'"):
        hash(Pair(1))
    with pytest.raises(TypeError, match="'<' not supported"):
        assert Pair(1) < Pair(2)
    with pytest.raises(TypeError, match="`Pair` has no field 'c'"):
        lib.structs.replace(Pair(1), c=3)


def test_definitions_that_lead_to_faults_are_refused(lib: Any) -> None:
    class Open(lib.Struct):
        a: int = 0

    for given in ([1], {"a": 1}, {1}, Open()):
        with pytest.raises(TypeError, match="as a default value is unsafe"):
            lib.defstruct("Bad", [("a", Any, given)])
    with pytest.raises(TypeError, match="Required field 'b' cannot follow optional fields"):
        lib.defstruct("Bad", [("a", int, 1), ("b", int)])
    with pytest.raises(ValueError, match="Cannot set eq=False and order=True"):
        lib.defstruct("Bad", [], eq=False, order=True)
    with pytest.raises(TypeError):
        lib.defstruct("Bad", [], nonsense=True)
    with pytest.raises(TypeError, match="Cannot set both"):
        lib.field(default=1, default_factory=int)


def test_a_frozen_struct_stays_as_it_is_and_is_a_key(lib: Any) -> None:
    class Key(lib.Struct, frozen=True, order=True, dict=True):
        a: int
        b: str = "b"

    key = Key(1)
    for change in (lambda: setattr(key, "a", 2), lambda: delattr(key, "a")):
        with pytest.raises(AttributeError, match="immutable type: 'Key'"):
            change()
    lib.structs.force_setattr(key, "a", 3)
    assert {Key(3): "found"}[key] == "found"
    assert sorted([Key(2), Key(1, "c"), Key(1)]) == [Key(1), Key(1, "c"), Key(2)]
    assert Key(1) <= Key(1) and not Key(1) < Key(1) and Key(2) >= Key(1) > Key(0)
    key.__dict__["noted"] = 1
    assert key.noted == 1 and not hasattr(copy.copy(key), "noted")


def test_what_a_class_says_of_equality_is_kept_by_those_derived(lib: Any) -> None:
    class Same(lib.Struct, frozen=True):
        a: int

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 7

    class Derived(Same, frozen=True):
        b: int = 0

    class Identity(lib.Struct, eq=False):
        a: int = 1

    assert Derived(1) == Derived(2) and hash(Derived(1)) == 7
    assert Identity() != Identity() and len({Identity(), Identity()}) == 2


def test_a_struct_is_checked_when_made_and_when_changed(lib: Any) -> None:
    class Even(lib.Struct):
        a: int

        def __post_init__(self) -> None:
            if self.a % 2:
                raise ValueError("odd")
            self.a += 2

    even = Even(2)
    assert (even.a, lib.structs.replace(even).a, copy.copy(even).a) == (4, 6, 4)
    with pytest.raises(ValueError, match="odd"):
        lib.structs.replace(even, a=1)


def test_structs_go_through_patterns_copies_and_tuples(lib: Any) -> None:
    class Point(lib.Struct, Generic[T]):
        x: T
        y: Any = None

    match Point(1, [2]):
        case Point(x, [y]):
            assert (x, y) == (1, 2)
        case _:
            pytest.fail("no match")
    point = Point(1, [2])
    assert copy.copy(point).y is point.y and copy.deepcopy(point).y is not point.y
    assert lib.structs.astuple(point) == (1, [2]) and lib.structs.asdict(point) == {
        "x": 1,
        "y": [2],
    }
    point.y = point
    assert repr(point) == "Point(x=1, y=...)"


def test_structs_are_pickled() -> None:
    made: Any = Picklable
    for given in (made(name="a"), made(name="b", items=[1])):
        assert pickle.loads(pickle.dumps(given)) == given
