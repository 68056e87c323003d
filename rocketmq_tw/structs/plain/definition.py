"""Classes of structs: fields in slots, and a constructor of their own.

The functions that touch every field are written out for each class, as dataclasses do: a loop over
names would be several times slower. All but the constructor are made when they are first used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import ge, gt, le, lt
from reprlib import recursive_repr
from typing import Any, ClassVar, NoReturn

from rocketmq_tw.structs.plain.absent import NODEFAULT
from rocketmq_tw.written import written_function

_new, set_field = object.__new__, object.__setattr__


class Factory:
    """A default that is made anew for each struct."""

    __slots__ = ("make",)

    def __init__(self, make: Callable[[], Any]) -> None:
        if not callable(make):
            raise TypeError("default_factory must be callable")
        self.make = make


class _Field:
    __slots__ = ("default", "name")

    def __init__(self, default: Any, name: str | None) -> None:
        self.default = default
        self.name = name


def field(
    *, default: Any = NODEFAULT, default_factory: Any = NODEFAULT, name: str | None = None
) -> Any:
    """Returns what says of a field more than a default: what makes one, its name on the wire."""
    if default_factory is NODEFAULT:
        made = default
    elif default is NODEFAULT:
        made = Factory(default_factory)
    else:
        raise TypeError("Cannot set both `default` and `default_factory`")
    if not (name is None or type(name) is str):
        raise TypeError("name must be a str or None")
    return _Field(made, name)


class StructConfig:
    """The options of a class of structs, its bases' among them. `gc` means nothing here; `tag` is
    the text in the member `tag_field` by which the classes of a union are told apart."""

    __slots__ = (
        "dict",
        "eq",
        "forbid_unknown_fields",
        "frozen",
        "gc",
        "omit_defaults",
        "order",
        "rename",
        "tag",
        "tag_field",
    )

    dict: bool
    frozen: bool
    eq: bool
    order: bool
    gc: bool
    omit_defaults: bool
    forbid_unknown_fields: bool
    rename: str | None
    tag: str | None
    tag_field: str | None

    def __init__(self, bases: Iterable[StructConfig], options: Mapping[str, Any]) -> None:
        for name in self.__slots__:
            setattr(self, name, name in ("eq", "gc"))
        self.rename = self.tag = self.tag_field = None
        for base in bases:
            for name in self.__slots__:
                setattr(self, name, getattr(base, name))
        for name, value in options.items():
            if name not in self.__slots__:
                raise TypeError(f"{name!r} is an invalid keyword argument for StructMeta.__new__()")
            setattr(self, name, value)
        if self.order and not self.eq:
            raise ValueError("Cannot set eq=False and order=True")
        if self.tag is not None and self.tag_field is None:
            self.tag_field = "type"


class StructMeta(type):
    """The type of all classes of structs."""

    __struct_fields__: tuple[str, ...]
    __struct_encode_fields__: tuple[str, ...]
    __struct_config__: StructConfig
    #: A default for each field that has one: a value, or a `Factory`.
    __struct_defaults__: dict[str, Any]
    __struct_keywords__: frozenset[str]

    def __new__(
        cls,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        kw_only: bool = False,
        **options: Any,
    ) -> StructMeta:
        if "__init__" in namespace or "__new__" in namespace:
            raise TypeError("Struct types cannot define __init__")
        structs = [base for base in reversed(bases) if isinstance(base, StructMeta)]
        config = StructConfig([base.__struct_config__ for base in structs], options)
        fields = _Fields(structs)
        inherited = set(fields.defaults)
        for each, annotation in namespace.get("__annotations__", {}).items():
            if not _is_of_class(annotation):
                default = namespace.pop(each, NODEFAULT)
                fields.add(each, default, kw_only=kw_only, rename=config.rename)
        names = fields.in_order()
        positional = tuple(each for each in names if each not in fields.keywords)
        slots = [each for each in names if each not in inherited]
        if config.dict and not any(base.__struct_config__.dict for base in structs):
            slots.append("__dict__")
        namespace |= {
            "__slots__": tuple(slots),
            "__match_args__": positional,
            "__struct_fields__": names,
            "__struct_encode_fields__": tuple(fields.wire_names.get(each, each) for each in names),
            "__struct_config__": config,
            "__struct_defaults__": {
                each: fields.defaults[each]
                for each in names
                if fields.defaults[each] is not NODEFAULT
            },
            "__struct_keywords__": frozenset(fields.keywords),
            "__struct_astuple__": _first_astuple,
            "__struct_replace__": _first_replace,
        }
        if config.frozen:
            namespace.setdefault("__setattr__", _refuse)
            namespace.setdefault("__delattr__", _refuse)
        made = super().__new__(cls, name, bases, namespace)
        made.__init__ = _constructor(made, positional)  # type: ignore[misc]
        return made

    def __init__(
        cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any
    ) -> None:
        super().__init__(name, bases, namespace)


class _Fields:
    """The fields of a class while it is made, those of its bases first."""

    def __init__(self, bases: Iterable[StructMeta]) -> None:
        self.defaults: dict[str, Any] = {}
        self.wire_names: dict[str, str] = {}
        self.keywords: set[str] = set()
        for base in bases:
            names = base.__struct_fields__
            self.defaults |= {each: base.__struct_defaults__.get(each, NODEFAULT) for each in names}
            self.wire_names |= zip(names, base.__struct_encode_fields__, strict=True)
            self.keywords = self.keywords - set(names) | base.__struct_keywords__

    def add(self, name: str, given: Any, *, kw_only: bool, rename: str | None) -> None:
        """Adds a field, or gives one of a base another default and name."""
        (self.keywords.add if kw_only else self.keywords.discard)(name)
        own_name = None
        if type(given) is _Field:
            given, own_name = given.default, given.name
        if own_name is None and rename is not None:
            if rename != "camel":
                raise ValueError(f"rename={rename!r} is unsupported")
            own_name = _camel_case(name)
        if own_name not in (None, name):
            self.wire_names[name] = own_name
        if type(given) in (list, dict, set):
            if given:
                raise TypeError(
                    f"Using a non-empty mutable collection ({given!r}) as a default value is"
                    " unsafe. Instead configure a `default_factory` for this field."
                )
            given = Factory(type(given))
        elif isinstance(type(given), StructMeta) and not given.__struct_config__.frozen:
            raise TypeError(
                f"Using a mutable struct object ({given!r}) as a default value is unsafe. Either"
                " configure a `default_factory` for this field, or set `frozen=True` on"
                f" `{type(given).__name__}`"
            )
        self.defaults[name] = given

    def in_order(self) -> tuple[str, ...]:
        """Returns the names, those that are given by position first."""
        positional = [name for name in self.defaults if name not in self.keywords]
        has_default = False
        for name in positional:
            if self.defaults[name] is not NODEFAULT:
                has_default = True
            elif has_default:
                raise TypeError(
                    f"Required field {name!r} cannot follow optional fields. Either reorder the"
                    " struct fields, or set `kw_only=True` in the struct definition."
                )
        return (*positional, *(name for name in self.defaults if name in self.keywords))


def _is_of_class(annotation: Any) -> bool:
    """Returns whether an annotation says that a name is the class's, and no field."""
    text = annotation if isinstance(annotation, str) else repr(annotation)
    return text.removeprefix("typing.").startswith("ClassVar")


def _camel_case(name: str) -> str:
    words: list[str] = []
    is_first = True
    for word in name.split("_"):
        if is_first:
            words.append(word or "_")
            is_first = not word
        else:
            words.append(word.title())
    return "".join(words)


# Functions of one class ---------------------------------------------------------------------------


def struct_method(lines: Iterable[str], known: dict[str, Any], of: type) -> Callable[..., Any]:
    """Returns a function of a class of structs, as `written_function` does."""
    made: Callable[..., Any] = written_function(lines, known, of.__qualname__, of.__module__)
    return made


def _constructor(of: StructMeta, positional: tuple[str, ...]) -> Callable[..., None]:
    known: dict[str, Any] = {"set__": set_field, "absent__": NODEFAULT}
    parameters, lines = ["self"], []
    for number, name in enumerate(of.__struct_fields__):
        if number == len(positional):
            parameters.append("*")
        default = of.__struct_defaults__.get(name, NODEFAULT)
        if default is NODEFAULT:
            parameters.append(name)
        elif type(default) is Factory:
            known[f"make__{number}"] = default.make
            parameters.append(f"{name}=absent__")
            lines.append(f" if {name} is absent__: {name} = make__{number}()")
        else:
            known[f"default__{number}"] = default
            parameters.append(f"{name}=default__{number}")
        lines.append(assignment(of, "self", name, name))
    if hasattr(of, "__post_init__"):
        lines.append(" self.__post_init__()")
    head = f"def __init__({', '.join(parameters)}):"
    return struct_method([head, *(lines or [" pass"])], known, of)


def assignment(of: StructMeta, struct: str, name: str, value: str) -> str:
    """Returns the line that gives a field its value, behind one space."""
    if of.__struct_config__.frozen:
        return f" set__({struct}, {name!r}, {value})"
    return f" {struct}.{name} = {value}"


def _first_astuple(struct: Struct) -> tuple[Any, ...]:
    of = type(struct)
    values = "".join(f"self.{name}, " for name in of.__struct_fields__)
    source = [f"def __struct_astuple__(self): return ({values})"]
    made = of.__struct_astuple__ = struct_method(source, {}, of)
    values_of: tuple[Any, ...] = made(struct)
    return values_of


def _first_replace(struct: Struct, **changes: Any) -> Any:
    of = type(struct)
    known = {"set__": set_field, "absent__": NODEFAULT, "new__": _new, "of__": of}
    parameters = "".join(f", {name}=absent__" for name in of.__struct_fields__)
    lines = [
        f"def __struct_replace__(self{', *' if parameters else ''}{parameters}):",
        " made__ = new__(of__)",
    ]
    for name in of.__struct_fields__:
        value = f"self.{name} if {name} is absent__ else {name}"
        lines.append(assignment(of, "made__", name, value))
    if hasattr(of, "__post_init__"):
        lines.append(" made__.__post_init__()")
    lines.append(" return made__")
    made = of.__struct_replace__ = struct_method(lines, known, of)
    return made(struct, **changes)


def _refuse(struct: Struct, *_: object) -> NoReturn:
    raise AttributeError(f"immutable type: {type(struct).__name__!r}")


# The base -----------------------------------------------------------------------------------------


class Struct(metaclass=StructMeta):
    """Base of all classes of structs."""

    __struct_fields__: ClassVar[tuple[str, ...]]
    __struct_encode_fields__: ClassVar[tuple[str, ...]]
    __struct_config__: ClassVar[StructConfig]
    __struct_defaults__: ClassVar[dict[str, Any]]
    __struct_keywords__: ClassVar[frozenset[str]]
    __struct_astuple__: ClassVar[Any]
    __struct_replace__: ClassVar[Any]

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other) or not self.__struct_config__.eq:
            return NotImplemented
        same: bool = self is other or self.__struct_astuple__() == other.__struct_astuple__()
        return same

    def __hash__(self) -> int:
        config = self.__struct_config__
        if not config.eq:
            return object.__hash__(self)
        if not config.frozen:
            raise TypeError(f"unhashable type: {type(self).__name__!r}")
        return hash((type(self), self.__struct_astuple__()))

    def __lt__(self, other: object) -> bool:
        return _compared(self, other, lt)

    def __le__(self, other: object) -> bool:
        return _compared(self, other, le)

    def __gt__(self, other: object) -> bool:
        return _compared(self, other, gt)

    def __ge__(self, other: object) -> bool:
        return _compared(self, other, ge)

    @recursive_repr("...")
    def __repr__(self) -> str:
        members = ", ".join(f"{each}={getattr(self, each)!r}" for each in self.__struct_fields__)
        return f"{type(self).__name__}({members})"

    def __copy__(self) -> Struct:
        made = _new(type(self))
        for name in self.__struct_fields__:
            set_field(made, name, getattr(self, name))
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        values = self.__struct_astuple__()
        if not self.__struct_keywords__:
            return type(self), values
        return unpickled, (type(self), dict(zip(self.__struct_fields__, values, strict=True)))


def _compared(struct: Struct, other: object, compare: Callable[[Any, Any], bool]) -> bool:
    if type(struct) is not type(other) or not struct.__struct_config__.order:
        return NotImplemented
    return compare(struct.__struct_astuple__(), other.__struct_astuple__())


def unpickled(of: type[Struct], values: dict[str, Any]) -> Struct:
    """Returns the struct of `values`, by which one with fields that are no arguments by position
    is pickled."""
    return of(**values)


def defstruct(
    name: str,
    fields: Iterable[tuple[Any, ...]],
    *,
    bases: tuple[type, ...] = (Struct,),
    module: str | None = None,
    **options: Any,
) -> type[Struct]:
    """Returns a new class with fields (name, type) or (name, type, default) and the options of a
    class statement."""
    namespace: dict[str, Any] = {"__annotations__": {}}
    if module is not None:
        namespace["__module__"] = module
    for each, annotation, *default in fields:
        namespace["__annotations__"][each] = annotation
        if default:
            namespace[each] = default[0]
    made: Any = StructMeta(name, bases, namespace, **options)
    return made
