"""Values become dicts, lists and scalars, as JSON would have them."""

from __future__ import annotations

from enum import Enum
from typing import Any

from rocketmq_tw.structs.plain.absent import NODEFAULT, UNSET
from rocketmq_tw.structs.plain.definition import Struct
from rocketmq_tw.structs.plain.raw import Raw
from rocketmq_tw.structs.plain.writer import base64, formless, is_default


def to_builtins(value: Any, *, str_keys: bool = False) -> Any:
    """Returns `value` made of dicts, lists, tuples, str, int, float, bool and None; with `str_keys`
    all keys are text. Raises `TypeError` for what has no form in JSON."""
    return _plain(value, str_keys, is_key=False)


def _plain(value: Any, str_keys: bool, *, is_key: bool) -> Any:
    if value is None or type(value) in (str, int, float, bool):
        return value
    match value:
        case list():
            return [_plain(item, str_keys, is_key=False) for item in value]
        case tuple():
            return tuple(_plain(item, str_keys, is_key=is_key) for item in value)
        case dict():
            return {
                _key(key, str_keys): _plain(item, str_keys, is_key=False)
                for key, item in value.items()
            }
        case Struct():
            return _members(value, str_keys)
        case Enum():
            return value.value
        case str() if is_key:
            return str(value)
        case set() | frozenset():
            items = [_plain(item, str_keys, is_key=is_key) for item in value]
            return tuple(items) if is_key else items
        case bytes() | bytearray() | memoryview() if type(value) is not Raw:
            return base64(value)
    raise formless(value)


def _key(key: Any, str_keys: bool) -> Any:
    plain = _plain(key, str_keys, is_key=True)
    if not str_keys or type(plain) is str:
        return plain
    if type(plain) in (int, float):
        return str(plain)
    raise TypeError("Only dicts with str-like or number-like keys are supported")


def _members(struct: Struct, str_keys: bool) -> dict[str, Any]:
    of = type(struct)
    config = of.__struct_config__
    members: dict[str, Any] = {}
    if config.tag is not None and config.tag_field is not None:
        members[config.tag_field] = config.tag
    for name, wire_name in zip(of.__struct_fields__, of.__struct_encode_fields__, strict=True):
        value = getattr(struct, name)
        default = of.__struct_defaults__.get(name, NODEFAULT) if config.omit_defaults else NODEFAULT
        if value is not UNSET and not is_default(value, default):
            members[wire_name] = _plain(value, str_keys, is_key=False)
    return members
