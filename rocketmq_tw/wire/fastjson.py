"""The JSON dialect of stock's bodies: a tolerant reader and a writer (docs/formats/bodies.md).

Stock writes with fastjson, which departs from JSON where a map's keys are no strings: numbers
stand bare (`{0:"10.0.0.1:10911"}`), objects stand as they are (`{{"topic":"T"}:1}`), and an
object that occurs twice is written once and then as `{"$ref":"$.path"}`. The reader
(`fastjson_reader.py`, where text is no strict JSON) takes all that and what fastjson itself takes:
single quotes, bare names, trailing commas.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from rocketmq_tw.structs import astuple, msgspec
from rocketmq_tw.wire.errors import WireError

#: More values than this are refused before any is made: a value of two bytes takes a hundred in
#: memory. A frame of 16 MiB that is full of topics has 1.1 million.
MAX_VALUES = 1_500_000
#: Deeper nesting is refused where each level takes stack; stock's deepest body has 7 levels.
MAX_LEVELS = 64

#: What msgspec raises where text is no strict JSON or not of the type asked for.
STRICT_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)

_strict_decode = msgspec.json.Decoder().decode


def check_values(data: bytes, limit: int = MAX_VALUES) -> None:
    """Raises `WireError` where `data` may hold more than `limit` values; only a text longer than
    that is looked at."""
    if len(data) > limit and sum(map(data.count, (b",", b"[", b"{"))) > limit:
        raise WireError(f"JSON of more than {limit} values")


def check_depth(value: Any) -> None:
    """Raises `WireError` for more than `MAX_LEVELS` levels of dicts and lists."""
    items, depth = [value], 0
    while holders := [item for item in items if isinstance(item, dict | list)]:
        depth += 1
        if depth > MAX_LEVELS:
            raise WireError(f"JSON of more than {MAX_LEVELS} levels")
        items = [
            item
            for holder in holders
            for item in (holder.values() if isinstance(holder, dict) else holder)
        ]


def loads(data: bytes, max_values: int = MAX_VALUES, dialect_bytes: int = 1 << 31) -> Any:
    """Returns the value in `data`: dicts, lists, str, int, float, bool, None; keys are str, numbers
    or `ObjectKey`; references are resolved, one that leads nowhere is None.

    Raises `WireError` where fastjson could not read it either, for more than `max_values`, and for
    more than `dialect_bytes` that are no strict JSON without references.
    """
    check_values(data, max_values)
    has_references = b"$ref" in data
    try:
        if not has_references:
            return _strict_decode(data)
    except STRICT_ERRORS:
        pass
    if len(data) > dialect_bytes:
        raise WireError(f"more than {dialect_bytes} bytes need to be strict JSON")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise WireError(f"JSON that is not UTF-8: {error}") from error
    # Imported here: it takes milliseconds, and hardly any peer sends what is not strict.
    from rocketmq_tw.wire.fastjson_reader import read

    return read(text, has_references=has_references)


_BARE_KEY = re.compile(rb"[{,][ \t\r\n]*+(-?[0-9]{1,19})(?=[ \t\r\n]*+:)")


def quote_bare_keys(data: bytes, limit: int = 1 << 31) -> bytes:
    """Returns `data` with quotes around the numbers that stand as keys: strict JSON where that is
    all that it lacks, and `data` itself where there are none. Much faster than `loads`, as only
    they are looked at one by one; what is no JSON stays none.

    Raises `WireError` for more than `limit` of them.
    """
    # With no escaped quote left, a place that an even number of quotes precedes is in no string.
    plain = data.replace(b"\\\\", b"__").replace(b'\\"', b"__") if b"\\" in data else data
    parts: list[bytes] = []
    quotes = counted = copied = 0
    for seen, found in enumerate(_BARE_KEY.finditer(plain), 1):
        if seen > limit:
            raise WireError(f"JSON of more than {limit} numbers as keys")
        start, end = found.span(1)
        quotes += plain.count(b'"', counted, start)
        counted = end
        if quotes % 2 == 0:
            parts += (data[copied:start], b'"', data[start:end], b'"')
            copied = end
    return b"".join((*parts, data[copied:])) if parts else data


# Writing -----------------------------------------------------------------------------------------

_encode = msgspec.json.Encoder().encode


def dumps(value: Any, *, standard: bool = False) -> bytes:
    """Returns `value` as fastjson writes it: the fields of a `msgspec.Struct` in the order of their
    wire names and left out where None, maps in their own order with bare number and object keys. A
    `msgspec.Raw` stands as it is.

    `standard` gives strict JSON as stock does for a client that accepts no other: keys that are
    no strings become strings, maps are sorted.
    """
    parts: list[bytes] = []
    _write(value, standard, parts.append)
    return b"".join(parts)


#: What holds nothing else, and looks alike in all dialects.
_SCALARS = frozenset({str, int, bool, float})


@cache
def _fields(struct_type: type[msgspec.Struct]) -> tuple[tuple[str, str], ...]:
    """Returns (wire name, attribute) in the order of the names."""
    pairs = zip(struct_type.__struct_encode_fields__, struct_type.__struct_fields__, strict=True)
    return tuple(sorted(pairs))


@cache
def _is_in_order(struct_type: type[msgspec.Struct]) -> bool:
    """Returns whether msgspec writes a struct as a map of its members in the order of their names:
    it declares them so, leaves none out and adds no tag."""
    names, config = struct_type.__struct_encode_fields__, struct_type.__struct_config__
    return list(names) == sorted(names) and not config.omit_defaults and config.tag is None


def _write(value: Any, standard: bool, put: Callable[[bytes], None]) -> None:
    if type(value) in _SCALARS:
        put(_encode(value))
    elif isinstance(value, msgspec.Struct):
        _write_struct(value, standard, put)
    elif isinstance(value, Mapping):
        _write_map(value, standard, put)
    elif isinstance(value, list | tuple | set | frozenset):
        if _SCALARS.issuperset(map(type, value)):
            put(_encode(value))
            return
        separator = b"["
        for item in value:
            put(separator)
            _write(item, standard, put)
            separator = b","
        put(b"]")
    elif isinstance(value, msgspec.Raw):
        put(bytes(value))
    else:
        put(_encode(value))


def _write_struct(value: msgspec.Struct, standard: bool, put: Callable[[bytes], None]) -> None:
    if _is_in_order(type(value)) and _SCALARS.issuperset(map(type, astuple(value))):
        # Without a None or anything that this dialect writes in its own way, as a broker's notes of
        # each message mostly are.
        put(_encode(value))
        return
    members = {
        name: item
        for name, attribute in _fields(type(value))
        if (item := getattr(value, attribute)) is not None
    }
    # Most structs are flat, or hold nothing else than lists of scalars.
    if _SCALARS.issuperset(map(type, members.values())) or all(map(_is_plain, members.values())):
        put(_encode(members))
        return
    separator = b"{"
    for name, item in members.items():
        put(separator + _encode(name) + b":")
        _write(item, standard, put)
        separator = b","
    put(b"}")


def _is_plain(value: Any) -> bool:
    """Returns whether msgspec writes a value as this dialect has it."""
    return type(value) in _SCALARS or (
        type(value) is list and _SCALARS.issuperset(map(type, value))
    )


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
