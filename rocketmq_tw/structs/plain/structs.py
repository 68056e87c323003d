"""Changes of whole structs, and their fields."""

from __future__ import annotations

from typing import Any

from rocketmq_tw.structs.plain.absent import NODEFAULT
from rocketmq_tw.structs.plain.definition import Factory, Struct, StructMeta, field, set_field
from rocketmq_tw.structs.plain.kinds import hints_of


def replace(struct: Any, /, **changes: Any) -> Any:
    """Returns a copy of `struct` with other values in some fields."""
    try:
        make = struct.__struct_replace__
    except AttributeError:
        raise TypeError("`struct` must be a `msgspec.Struct`") from None
    try:
        return make(**changes)
    except TypeError:
        of = type(struct)
        for name in changes:
            if name not in of.__struct_fields__:
                raise TypeError(f"`{of.__name__}` has no field {name!r}") from None
        raise


def asdict(struct: Any) -> dict[str, Any]:
    """Returns the values of the fields by their names."""
    return dict(zip(struct.__struct_fields__, astuple(struct), strict=True))


def astuple(struct: Any) -> tuple[Any, ...]:
    """Returns the values of the fields."""
    try:
        values: tuple[Any, ...] = struct.__struct_astuple__()
    except AttributeError:
        raise TypeError("`struct` must be a `msgspec.Struct`") from None
    return values


def force_setattr(struct: Any, name: str, value: Any) -> None:
    """Sets a field, also where the class is frozen."""
    set_field(struct, name, value)


class FieldInfo(Struct):
    """A field: its name, the one on the wire, its annotation, and its default or what makes it."""

    name: str
    encode_name: str
    type: Any
    default: Any = field(default_factory=lambda: NODEFAULT)
    default_factory: Any = field(default_factory=lambda: NODEFAULT)

    @property
    def required(self) -> bool:
        """Whether the field has to be given."""
        return self.default is NODEFAULT and self.default_factory is NODEFAULT


def fields(struct: Any) -> tuple[FieldInfo, ...]:
    """Returns the fields of a struct or of a class of structs."""
    of: Any = struct if isinstance(struct, StructMeta) else type(struct)
    if not isinstance(of, StructMeta):
        raise TypeError("Must be called with a struct type or instance")
    hints = hints_of(of)
    found = []
    for name, wire_name in zip(of.__struct_fields__, of.__struct_encode_fields__, strict=True):
        info: Any = FieldInfo(name, wire_name, hints[name])  # type: ignore[call-arg]
        default = of.__struct_defaults__.get(name, NODEFAULT)
        if type(default) is Factory:
            info.default_factory = default.make
        else:
            info.default = default
        found.append(info)
    return tuple(found)
