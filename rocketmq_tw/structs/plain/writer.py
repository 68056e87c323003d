"""Values become JSON without spaces, members in the order of the fields or of the dict."""

from __future__ import annotations

import re
from binascii import b2a_base64
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any

from rocketmq_tw.structs.plain.absent import NODEFAULT, UNSET
from rocketmq_tw.structs.plain.definition import Factory, StructMeta, struct_method
from rocketmq_tw.structs.plain.raw import Raw

#: What parts of the text are added to: text, or a `Raw` that stands as it is.
Parts = list[Any]

_SPECIAL = re.compile(r'[\x00-\x1f"\\]')
_ESCAPES = {chr(code): f"\\u{code:04x}" for code in range(0x20)}
_ESCAPES |= {
    "\b": r"\b",
    "\f": r"\f",
    "\n": r"\n",
    "\r": r"\r",
    "\t": r"\t",
    '"': r"\"",
    "\\": r"\\",
}

try:
    # PyPy's own: quicker than a search, with less memory.
    from _pypyjson import (  # type: ignore[import-not-found]
        raw_encode_basestring_ascii as _escape_ascii,
    )
except ImportError:
    _escape_ascii = None


def encode(value: Any) -> bytes:
    """Returns `value` as JSON. Raises `TypeError` for what has no form in JSON,
    `UnicodeEncodeError` for half of a surrogate pair, `RecursionError` for what is too deep."""
    parts: Parts = []
    write(value, parts)
    try:
        return "".join(parts).encode()
    except TypeError:
        return b"".join(part if type(part) is Raw else part.encode() for part in parts)


def write(value: Any, parts: Parts) -> None:
    """Adds `value` to `parts`."""
    of = type(value)
    if of is str:
        _write_text(value, parts)
    elif of is int:
        parts.append(int.__repr__(value))
    elif value is None:
        parts.append("null")
    elif of is bool:
        parts.append("true" if value else "false")
    elif of is dict:
        _write_dict(value, parts)
    elif of is list or of is tuple:
        _write_array(value, parts)
    elif isinstance(of, StructMeta):
        writer = _writers.get(of)
        if writer is None:
            writer = _writers[of] = _written(of)
        writer(value, parts)
    elif of is float:
        parts.append(_float(value, "null"))
    else:
        _write_other(value, parts)


def _write_other(value: Any, parts: Parts) -> None:
    match value:
        case Raw():
            parts.append(value)
        case bytes() | bytearray() | memoryview():
            parts.append(f'"{base64(value)}"')
        case Enum():
            parts.append(int.__repr__(value)) if isinstance(value, int) else write(
                value.value, parts
            )
        case dict():
            _write_dict(value, parts)
        case list() | tuple() | set() | frozenset():
            _write_array(value, parts)
        case _:
            raise formless(value)


def formless(value: Any) -> TypeError:
    """Returns the error for a value that has no form in JSON."""
    return TypeError(f"Encoding objects of type {type(value).__name__} is unsupported")


def base64(value: Any) -> str:
    """Returns bytes as the text that stands for them."""
    return b2a_base64(value, newline=False).decode()


def _write_text(text: str, parts: Parts) -> None:
    parts.append('"')
    # PyPy's function escapes what is not ASCII as well, and DEL.
    if _escape_ascii is not None and text.isascii() and "\x7f" not in text:
        parts.append(_escape_ascii(text))
    else:
        parts.append(_SPECIAL.sub(_escape, text))
    parts.append('"')


def _quoted(text: str) -> str:
    parts: Parts = []
    _write_text(text, parts)
    return "".join(parts)


def _escape(special: re.Match[str]) -> str:
    return _ESCAPES[special[0]]


def _float(value: float, beyond: str) -> str:
    if value - value != 0:
        return beyond
    text = repr(value)
    mantissa, is_scientific, exponent = text.partition("e")
    if not is_scientific:
        return text
    if exponent == "-05":
        # Python is the first to write this one so.
        sign = "-" * (value < 0)
        return f"{sign}0.0000{mantissa.removeprefix('-').replace('.', '')}"
    return f"{mantissa}e{int(exponent)}"


def _write_array(values: Iterable[Any], parts: Parts) -> None:
    put = parts.append
    separator = "["
    for value in values:
        put(separator)
        write(value, parts)
        separator = ","
    put("[]" if separator == "[" else "]")


def _write_dict(members: dict[Any, Any], parts: Parts) -> None:
    put = parts.append
    separator = "{"
    for name, value in members.items():
        put(separator)
        _write_text(name if type(name) is str else key_text(name), parts)
        put(":")
        if type(value) is str:
            _write_text(value, parts)
        else:
            write(value, parts)
        separator = ","
    put("{}" if separator == "{" else "}")


def key_text(key: Any) -> str:
    """Returns a key of a dict as a name in JSON."""
    if isinstance(key, str):
        return str.__str__(key)
    if type(key) is int:
        return int.__repr__(key)
    if type(key) is float:
        return _float(key, repr(key))
    if isinstance(key, Enum):
        return int.__repr__(key) if isinstance(key, int) else key_text(key.value)
    if type(key) is bytes:
        return base64(key)
    raise TypeError("Only dicts with str-like or number-like keys are supported")


# Structs ------------------------------------------------------------------------------------------

_writers: dict[Any, Callable[[Any, Parts], None]] = {}


def is_default(value: Any, default: Any) -> bool:
    """Returns whether a field holds what it does when nothing is given: the default itself, or one
    more empty collection."""
    if value is default:
        return True
    if type(default) is not Factory or type(value) is not default.make:
        return False
    return type(value) in (list, dict, set) and not value


def _written(of: Any) -> Callable[[Any, Parts], None]:
    """Returns what is written out for a class."""
    config = of.__struct_config__
    known: dict[str, Any] = {
        "absent__": UNSET,
        "write__": write,
        "write_text__": _write_text,
        "is_default__": is_default,
        "repr__": int.__repr__,
    }
    lines = ["def write(struct, parts):", " put = parts.append", " is_empty = True"]
    if config.tag is not None:
        known["tag__"] = f"{{{_quoted(str(config.tag_field))}:{_quoted(config.tag)}"
        lines += [" put(tag__)", " is_empty = False"]
    names = zip(of.__struct_fields__, of.__struct_encode_fields__, strict=True)
    for number, (name, wire_name) in enumerate(names):
        default = of.__struct_defaults__.get(name, NODEFAULT)
        known[f"default__{number}"] = default
        known[f"name__{number}"] = f',"{wire_name}":'
        known[f"first__{number}"] = f'{{"{wire_name}":'
        condition = "value is not absent__"
        if config.omit_defaults and default is not NODEFAULT:
            condition += f" and not is_default__(value, default__{number})"
        lines += [
            f" value = struct.{name}",
            f" if {condition}:",
            f"  put(first__{number} if is_empty else name__{number})",
            "  is_empty = False",
            "  of = type(value)",
            "  if of is str: write_text__(value, parts)",
            "  elif of is int: put(repr__(value))",
            "  else: write__(value, parts)",
        ]
    lines.append(' put("{}" if is_empty else "}")')
    return struct_method(lines, known, of)
