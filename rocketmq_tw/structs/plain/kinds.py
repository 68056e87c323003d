"""Type annotations in the terms of JSON."""

from __future__ import annotations

from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from rocketmq_tw.structs.plain.absent import UnsetType
from rocketmq_tw.structs.plain.definition import Struct, StructMeta
from rocketmq_tw.structs.plain.meta import Meta
from rocketmq_tw.structs.plain.raw import Raw

_ARRAYS = (list, tuple, set, frozenset)


class TypeKind:
    """What values are taken: of one type, or of each type of a union. Members that are about a type
    which is not taken are None or False."""

    __slots__ = (
        "any",
        "array",
        "binary",
        "boolean",
        "floating",
        "highest",
        "integer",
        "integer_enum",
        "is_null_taken",
        "items",
        "keys",
        "lowest",
        "max_items",
        "raw",
        "structs",
        "tag_field",
        "text",
        "text_enum",
        "values",
    )

    def __init__(self) -> None:
        self.any = self.is_null_taken = self.boolean = self.raw = False
        self.integer = self.floating = self.text = self.binary = False
        #: Bounds of an integer.
        self.lowest: int | None = None
        self.highest: int | None = None
        self.integer_enum: type[Enum] | None = None
        self.text_enum: type[Enum] | None = None
        #: The type that an array becomes; of its items, or of each item of a tuple.
        self.array: type | None = None
        self.items: TypeKind | tuple[TypeKind, ...] | None = None
        self.max_items: int | None = None
        #: Of an object that becomes a dict.
        self.keys: TypeKind | None = None
        self.values: TypeKind | None = None
        #: The classes of structs, by tag where there is more than one.
        self.structs: dict[str | None, type[Struct]] = {}
        self.tag_field: str | None = None

    @property
    def name(self) -> str:
        """What errors say that is expected."""
        if self.any or self.raw:
            return "any" if self.any else "raw"
        names = {
            "bool": self.boolean,
            "int": self.integer or self.integer_enum,
            "float": self.floating,
            "str": self.text or self.text_enum,
            "bytes": self.binary,
            "object": self.values or self.structs,
            "array": self.array,
            "null": self.is_null_taken,
        }
        return " | ".join(name for name, taken in names.items() if taken)

    @property
    def struct(self) -> type[Struct] | None:
        """The only class of structs that is taken."""
        return next(iter(self.structs.values())) if len(self.structs) == 1 else None


@cache
def type_kind(annotation: Any) -> TypeKind:
    """Returns what `annotation` asks for. Raises `TypeError` for a type that no JSON becomes."""
    kind = TypeKind()
    _add(kind, annotation)
    return kind


@cache
def hints_of(struct_type: type[Struct]) -> dict[str, Any]:
    """Returns the annotation of each field, with names resolved."""
    return get_type_hints(struct_type, include_extras=True)


@cache
def fields_of(struct_type: type[Struct]) -> dict[str, tuple[str, TypeKind]]:
    """Returns the name of each field and what it takes, by the name on the wire."""
    hints = hints_of(struct_type)
    names = zip(struct_type.__struct_encode_fields__, struct_type.__struct_fields__, strict=True)
    return {wire_name: (name, type_kind(hints[name])) for wire_name, name in names}


@cache
def holds_raw(kind: TypeKind) -> bool:
    """Returns whether a `Raw` may be in what `kind` takes."""
    found, left = {kind}, [kind]
    while left:
        each = left.pop()
        if each.raw:
            return True
        parts = list(each.items) if isinstance(each.items, tuple) else [each.items]
        parts += [each.keys, each.values]
        for struct_type in each.structs.values():
            parts += [part for _, part in fields_of(struct_type).values()]
        new = {part for part in parts if part is not None} - found
        found |= new
        left += new
    return False


def _add(kind: TypeKind, annotation: Any) -> None:
    origin = get_origin(annotation)
    if origin is Annotated:
        _add(kind, annotation.__origin__)
        for note in annotation.__metadata__:
            if isinstance(note, Meta):
                _bound(kind, note)
    elif origin in (Union, UnionType):
        for part in get_args(annotation):
            _add(kind, part)
    elif annotation in _SIMPLE:
        setattr(kind, _SIMPLE[annotation], True)
    elif annotation is UnsetType:
        pass
    elif isinstance(annotation, StructMeta):
        _add_struct(kind, annotation)
    elif isinstance(annotation, type) and issubclass(annotation, Enum):
        _add_enum(kind, annotation)
    elif (origin or annotation) in _ARRAYS:
        _add_array(kind, origin or annotation, get_args(annotation))
    elif (origin or annotation) is dict:
        keys, values = get_args(annotation) or (Any, Any)
        kind.keys, kind.values = type_kind(keys), type_kind(values)
    else:
        raise TypeError(f"Type {annotation!r} is not supported")


_SIMPLE: dict[Any, str] = {
    Any: "any",
    None: "is_null_taken",
    NoneType: "is_null_taken",
    bool: "boolean",
    int: "integer",
    float: "floating",
    str: "text",
    bytes: "binary",
    Raw: "raw",
}


def _bound(kind: TypeKind, meta: Meta) -> None:
    if kind.integer:
        kind.lowest, kind.highest = meta.lowest, meta.highest
    if kind.array:
        kind.max_items = meta.max_length


def _add_struct(kind: TypeKind, struct_type: Any) -> None:
    config = struct_type.__struct_config__
    if kind.structs and (config.tag is None or None in kind.structs):
        raise TypeError("Type unions may not contain more than one Struct type without a tag")
    kind.structs[config.tag] = struct_type
    kind.tag_field = config.tag_field


def _add_enum(kind: TypeKind, enum: type[Enum]) -> None:
    types = {type(member.value) for member in enum}
    if types == {int}:
        kind.integer_enum = enum
    elif types == {str}:
        kind.text_enum = enum
    else:
        raise TypeError(f"Enums must contain either all str or all int values, as {enum} does not")


def _add_array(kind: TypeKind, array: type, items: tuple[Any, ...]) -> None:
    if kind.array is not None:
        raise TypeError("Type unions may not contain more than one array-like type")
    kind.array = array
    if array is tuple and items and items[-1] is not ...:
        kind.items = tuple(type_kind(item) for item in items)
    else:
        kind.items = type_kind(items[0] if items else Any)
