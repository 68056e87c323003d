"""The short way of values to structs, for what is plain and right: a function for each kind, and
for each class of structs one that is written out field by field.

It raises `Misfit` for whatever it is not sure of, without saying what: `reader.py` and
`conversion.py` then decide, which know all rules.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from functools import cache
from typing import Any, NamedTuple

from rocketmq_tw.structs.plain.absent import NODEFAULT
from rocketmq_tw.structs.plain.definition import Factory, assignment, set_field, struct_method
from rocketmq_tw.structs.plain.errors import Misfit
from rocketmq_tw.structs.plain.kinds import TypeKind, fields_of
from rocketmq_tw.structs.plain.scalars import WORDS, from_float, from_integer, out_of_text
from rocketmq_tw.structs.plain.shown_names import ShownNames

Taker = Callable[[Any], Any]

#: What the parser of short texts was shown.
shown_names = ShownNames(4096)

#: The longest text that is an integer for sure, without a look at its value.
_SHORT = 18


class Mode(NamedTuple):
    """How values are taken: as `msgspec` does with `strict` or without, of JSON or of Python.

    Those of JSON belong to nobody else, so that they can become part of the result. They may hold
    what JSON may not: a float beyond all numbers, half of a surrogate pair.
    """

    strict: bool
    is_json: bool


def swift(kind: TypeKind, mode: Mode) -> Taker:
    """Returns what turns a value into a `kind`."""
    if kind.any:
        return checked if mode.is_json else _unchanged
    if mode.is_json and kind.struct is not None and kind.name == "object" and kind.values is None:
        return _struct(kind.struct, mode)
    return _by_type(kind, mode)


def checked(value: Any) -> Any:
    """Returns `value`, which came out of JSON, unless something in it may not be there."""
    of = type(value)
    if of is str:
        if not value.isascii():
            _check_surrogates(value)
    elif of is float:
        if value - value != 0:
            raise Misfit("")
    elif of is list:
        for item in value:
            checked(item)
    elif of is dict:
        for name, item in value.items():
            _see_name(name)
            checked(item)
    return value


def _see_name(name: str) -> str:
    shown_names.see(name)
    if not name.isascii():
        _check_surrogates(name)
    return name


def _unchanged(value: Any) -> Any:
    return value


def is_short_integer(text: str) -> bool:
    """Returns whether `text` is an integer for sure: no sign, no 0 in front, not long."""
    return (
        len(text) <= _SHORT
        and text.isdigit()
        and text.isascii()
        and (len(text) == 1 or not text.startswith("0"))
    )


def _check_surrogates(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Misfit("") from None


def _doubt(value: Any) -> Any:
    raise Misfit("")


@cache
def _by_type(kind: TypeKind, mode: Mode) -> Taker:
    """Returns what looks at the type of a value first."""
    strict, is_json = mode.strict, mode.is_json
    takes_text, takes_null, takes_bool = kind.text, kind.is_null_taken, kind.boolean
    takes_integer, takes_digits = kind.integer, kind.integer and not strict
    lowest, highest = _bounds(kind)
    array, members, struct_type = _array(kind, mode), _object(kind, mode), kind.struct

    def read(value: Any) -> Any:
        of = type(value)
        if of is str:
            if takes_text:
                if is_json and not value.isascii():
                    _check_surrogates(value)
                return value
            if takes_digits and is_short_integer(value):
                number = int(value)
                if lowest <= number <= highest:
                    return number
            elif takes_bool and not strict:
                if value == "true":
                    return True
                if value == "false":
                    return False
            return out_of_text(kind, value, strict)
        if of is int:
            if is_json and not takes_integer and value not in WORDS:
                raise Misfit("")
            return from_integer(kind, value, strict)
        if of is dict:
            return members(value)
        if of is list:
            return array(value)
        if (value is None and takes_null) or (of is bool and takes_bool):
            return value
        if of is float:
            if value - value != 0:
                raise Misfit("")
            return from_float(kind, value, strict)
        if of is struct_type and not is_json:
            return value
        raise Misfit("")

    return read


def _bounds(kind: TypeKind) -> tuple[int, int]:
    """Returns bounds of the integers that are taken, as far as `_SHORT` texts reach."""
    lowest, highest = kind.lowest, kind.highest
    return -(10**19) if lowest is None else lowest, 10**19 if highest is None else highest


def _array(kind: TypeKind, mode: Mode) -> Taker:
    if kind.array is None or not isinstance(kind.items, TypeKind):
        return _doubt
    array, limit = kind.array, kind.max_items
    item = swift(kind.items, mode)

    def read(values: list[Any]) -> Any:
        if limit is not None and len(values) > limit:
            raise Misfit("")
        made = [item(value) for value in values]
        return made if array is list else array(made)

    return read


def _object(kind: TypeKind, mode: Mode) -> Taker:
    if kind.keys is not None and kind.values is not None:
        return _dict(kind.keys, kind.values, mode)
    if kind.struct is not None:
        return _struct(kind.struct, mode)
    return _doubt


def _dict(keys: TypeKind, values: TypeKind, mode: Mode) -> Taker:
    key_of, value_of = _key(keys, mode), swift(values, mode)

    def read(members: dict[Any, Any]) -> Any:
        return {key_of(key): value_of(value) for key, value in members.items()}

    return read


def _key(kind: TypeKind, mode: Mode) -> Taker:
    if mode.is_json:
        if kind.any or kind.text:
            return _see_name
        return lambda key: out_of_text(kind, _see_name(key), mode.strict, as_number=True)
    if kind.any or kind.text:
        return swift(kind, mode)
    return _doubt if mode.strict else swift(kind, mode)


# Structs ------------------------------------------------------------------------------------------

_readings: dict[tuple[Any, Mode], Taker] = {}
#: What the running thread writes out.
_in_work: ContextVar[frozenset[tuple[Any, Mode]]] = ContextVar("_in_work", default=frozenset())


def _struct(struct_type: Any, mode: Mode) -> Taker:
    """Returns what is written out for a class, or, while that is in work, what looks for it later:
    classes may hold each other. Two threads may both write one out, and either is good."""
    key = struct_type, mode
    found = _readings.get(key)
    if found is None:
        in_work = _in_work.get()
        if key in in_work:
            return lambda members: _struct(struct_type, mode)(members)
        token = _in_work.set(in_work | {key})
        try:
            found = _readings[key] = _written(struct_type, mode)
        finally:
            _in_work.reset(token)
    return found


def _written(struct_type: Any, mode: Mode) -> Taker:
    config = struct_type.__struct_config__
    fields = fields_of(struct_type)
    shown_names.know(fields)
    known: dict[str, Any] = {
        "absent__": NODEFAULT,
        "set__": set_field,
        "new__": object.__new__,
        "of__": struct_type,
        "Misfit": Misfit,
        "is_short_integer__": is_short_integer,
        "rest__": _rest(frozenset(fields), config.forbid_unknown_fields, mode),
    }
    lines = [
        "def read(members):",
        ' if type(members) is not dict: raise Misfit("")',
        " get = members.get",
        " made = new__(of__)",
        " count = 0",
    ]
    for number, (wire_name, (name, kind)) in enumerate(fields.items()):
        known[f"read__{number}"] = swift(kind, mode)
        default = struct_type.__struct_defaults__.get(name, NODEFAULT)
        known[f"default__{number}"] = default.make if type(default) is Factory else default
        lines += [f" value = get({wire_name!r}, absent__)", " if value is absent__:"]
        if default is NODEFAULT:
            lines.append('  raise Misfit("")')
        else:
            call = "()" if type(default) is Factory else ""
            lines.append(" " + assignment(struct_type, "made", name, f"default__{number}{call}"))
        lines += [
            " else:",
            "  count += 1",
            f"  if {_test(kind, mode)}: pass",
            *_from_text(kind, mode, number),
            f"  else: value = read__{number}(value)",
            " " + assignment(struct_type, "made", name, "value"),
        ]
    if config.tag is not None:
        known["tag__"] = config.tag
        lines += [
            f" value = get({config.tag_field!r}, tag__)",
            ' if value != tag__: raise Misfit("")',
        ]
    lines.append(" if count != len(members): rest__(members)")
    if hasattr(struct_type, "__post_init__"):
        lines += [
            " try: made.__post_init__()",
            ' except (ValueError, TypeError): raise Misfit("")',
        ]
    lines.append(" return made")
    return struct_method(lines, known, struct_type)


def _from_text(kind: TypeKind, mode: Mode, number: int) -> list[str]:
    """Returns the branches in which `value` is a text that a number or a boolean is in."""
    if mode.strict or kind.text:
        return []
    if kind.integer:
        lowest = "" if kind.lowest is None or kind.lowest <= 0 else f"{kind.lowest} <= "
        is_beyond = kind.highest is None or kind.highest >= 10**_SHORT
        highest = "" if is_beyond else f" <= {kind.highest}"
        lines = [
            "  elif type(value) is str and is_short_integer__(value):",
            "   value = int(value)",
        ]
        if lowest or highest:
            lines.append(f"   if not {lowest}value{highest}: value = read__{number}(value)")
        return lines
    if kind.boolean and not (kind.floating or kind.integer_enum):
        return ['  elif value == "true": value = True', '  elif value == "false": value = False']
    return []


def _test(kind: TypeKind, mode: Mode) -> str:
    """Returns the condition under which `value` is taken as it is."""
    tests = []
    if kind.any and not mode.is_json:
        tests.append("True")
    if kind.text:
        tests.append("type(value) is str" + " and value.isascii()" * mode.is_json)
    if kind.is_null_taken:
        tests.append("value is None")
    if kind.integer:
        lowest = "" if kind.lowest is None else f"{kind.lowest} <= "
        highest = "" if kind.highest is None else f" <= {kind.highest}"
        in_bounds = f" and {lowest}value{highest}" if lowest or highest else ""
        tests.append(f"type(value) is int{in_bounds}")
    if kind.boolean:
        tests.append("value is True or value is False")
    return " or ".join(tests) or "False"


def _rest(names: frozenset[str], is_forbidden: bool, mode: Mode) -> Callable[[Any], None]:
    """Returns what looks at the members that are no fields."""
    is_json = mode.is_json

    def check(members: dict[Any, Any]) -> None:
        for name in members:
            if name in names:
                continue
            if is_forbidden or type(name) is not str:
                raise Misfit("")
            if is_json:
                _see_name(name)
                checked(members[name])

    return check
