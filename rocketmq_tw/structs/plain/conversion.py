"""Values become structs and what else a type asks for: every rule, and errors that say where."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Any

from rocketmq_tw.structs.plain.absent import NODEFAULT
from rocketmq_tw.structs.plain.definition import Factory, Struct, set_field
from rocketmq_tw.structs.plain.errors import KEY, VALUE, Misfit
from rocketmq_tw.structs.plain.kinds import TypeKind, fields_of
from rocketmq_tw.structs.plain.raw import Raw
from rocketmq_tw.structs.plain.scalars import from_float, from_integer, out_of_text, unexpected


class Conversion:
    """Converts with `strict` or without; `text_keys`: whether text that stands as a key may be a
    number. Raises `Misfit`."""

    def __init__(self, strict: bool, text_keys: bool) -> None:
        self._strict = strict
        self._text_keys = text_keys

    def convert(self, kind: TypeKind, value: Any) -> Any:
        """Returns `value` as `kind` has it."""
        if kind.any:
            return value
        if isinstance(value, str):
            return value if kind.text else out_of_text(kind, value, self._strict)
        match value:
            case bool():
                if kind.boolean:
                    return value
                raise unexpected(kind, "bool")
            case int():
                return from_integer(kind, value, self._strict)
            case float():
                return from_float(kind, value, self._strict)
            case list() | tuple():
                return self._array(kind, value, "array")
            case set() | frozenset():
                return self._array(kind, value, "set")
            case dict():
                return self._object(kind, value)
            case None if kind.is_null_taken:
                return None
            case Raw() if kind.raw:
                return value
            case bytes() | bytearray() | memoryview() if kind.binary and type(value) is not Raw:
                return bytes(value)
            case Enum() if type(value) is kind.text_enum:
                return value
            case Struct() if type(value) in kind.structs.values():
                return value
        raise unexpected(kind, _name(value))

    def _array(self, kind: TypeKind, values: Iterable[Any], got: str) -> Any:
        items = tuple(values)
        kinds = kind.items
        if kind.max_items is not None and len(items) > kind.max_items:
            raise Misfit(f"Expected `array` of length <= {kind.max_items}")
        if kind.array is None or kinds is None or (got == "set" and isinstance(kinds, tuple)):
            raise unexpected(kind, got)
        if not isinstance(kinds, tuple):
            kinds = (kinds,) * len(items)
        elif len(kinds) != len(items):
            raise Misfit(f"Expected `array` of length {len(kinds)}, got {len(items)}")
        made = []
        for index, (item_kind, item) in enumerate(zip(kinds, items, strict=True)):
            try:
                made.append(self.convert(item_kind, item))
            except Misfit as misfit:
                misfit.steps.append(f"[{index}]")
                raise
        return kind.array(made)

    def _object(self, kind: TypeKind, members: dict[Any, Any]) -> Any:
        if kind.keys is not None and kind.values is not None:
            return self._dict(kind.keys, kind.values, members)
        if not kind.structs:
            raise unexpected(kind, "object")
        struct_type = kind.struct
        if struct_type is None:
            struct_type = _tagged(kind, members)
        return self._struct(struct_type, members)

    def _dict(self, keys: TypeKind, values: TypeKind, members: dict[Any, Any]) -> dict[Any, Any]:
        made = {}
        step = KEY
        try:
            for key, value in members.items():
                step = KEY
                new_key = self._key(keys, key)
                step = VALUE
                made[new_key] = self.convert(values, value)
        except Misfit as misfit:
            misfit.steps.append(step)
            raise
        return made

    def _key(self, kind: TypeKind, key: Any) -> Any:
        if type(key) is str and self._text_keys and self._strict and not (kind.any or kind.text):
            return out_of_text(kind, key, strict=True, as_number=True)
        return self.convert(kind, key)

    def _struct(self, struct_type: type[Struct], members: dict[Any, Any]) -> Struct:
        fields = fields_of(struct_type)
        made = object.__new__(struct_type)
        given = set()
        for key, value in members.items():
            if type(key) is not str:
                misfit = Misfit("Expected `str`")
                misfit.steps.append(KEY)
                raise misfit
            if key in fields:
                name, kind = fields[key]
                try:
                    set_field(made, name, self.convert(kind, value))
                except Misfit as misfit:
                    misfit.steps.append(f".{key}")
                    raise
                given.add(name)
            elif key == struct_type.__struct_config__.tag_field:
                check_tag(struct_type, value)
            elif struct_type.__struct_config__.forbid_unknown_fields:
                raise Misfit(f"Object contains unknown field `{key}`")
        return complete(made, given)


def _name(value: Any) -> str:
    """Returns what errors call a value that is not of JSON."""
    if value is None:
        return "null"
    if type(value) is Raw:
        return "raw"
    return "bytes" if isinstance(value, bytes | bytearray | memoryview) else type(value).__name__


def complete(made: Any, given: set[str]) -> Any:
    """Gives defaults to the fields of `made` that are not in `given`, and returns it. Raises
    `Misfit` where one has none."""
    struct_type: Any = type(made)
    if len(given) != len(struct_type.__struct_fields__):
        for wire_name, (name, _) in fields_of(struct_type).items():
            if name not in given:
                default = struct_type.__struct_defaults__.get(name, NODEFAULT)
                if default is NODEFAULT:
                    raise Misfit(f"Object missing required field `{wire_name}`")
                set_field(made, name, default.make() if type(default) is Factory else default)
    if hasattr(struct_type, "__post_init__"):
        try:
            made.__post_init__()
        except (ValueError, TypeError) as error:
            raise Misfit(str(error)) from error
    return made


def check_tag(struct_type: Any, tag: Any) -> None:
    """Raises `Misfit` where `tag` is not that of `struct_type`."""
    config = struct_type.__struct_config__
    _of_tag({config.tag: struct_type}, config.tag_field, tag)


def _tagged(kind: TypeKind, members: dict[Any, Any]) -> type[Struct]:
    if kind.tag_field not in members:
        raise Misfit(f"Object missing required field `{kind.tag_field}`")
    return _of_tag(kind.structs, kind.tag_field, members[kind.tag_field])


def _of_tag(structs: dict[Any, Any], tag_field: str | None, tag: Any) -> Any:
    if type(tag) is not str:
        misfit = Misfit(f"Expected `str`, got `{type(tag).__name__}`")
    elif tag not in structs:
        misfit = Misfit(f"Invalid value {tag!r}")
    else:
        return structs[tag]
    misfit.steps.append(f".{tag_field}")
    raise misfit
