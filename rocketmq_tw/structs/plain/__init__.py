"""The part of `msgspec` that this package uses, in Python and under the same names.

Structs are in `definition.py` and `structs.py`, types in `kinds.py`. JSON is read by `swift.py`,
and by `reader.py` where that gives up; values are converted by `swift.py` and `conversion.py`. The
text of errors is msgspec's; only constructors raise Python's own. Of a name that an object has
twice the last value is taken, also where an earlier one is wrong, which msgspec refuses.
"""

from __future__ import annotations

from typing import Any

from rocketmq_tw.structs.plain import json as json
from rocketmq_tw.structs.plain import structs as structs
from rocketmq_tw.structs.plain.absent import NODEFAULT as NODEFAULT
from rocketmq_tw.structs.plain.absent import UNSET as UNSET
from rocketmq_tw.structs.plain.absent import UnsetType as UnsetType
from rocketmq_tw.structs.plain.builtins import to_builtins as to_builtins
from rocketmq_tw.structs.plain.conversion import Conversion
from rocketmq_tw.structs.plain.definition import Struct as Struct
from rocketmq_tw.structs.plain.definition import defstruct as defstruct
from rocketmq_tw.structs.plain.definition import field as field
from rocketmq_tw.structs.plain.errors import DecodeError as DecodeError
from rocketmq_tw.structs.plain.errors import Misfit
from rocketmq_tw.structs.plain.errors import MsgspecError as MsgspecError
from rocketmq_tw.structs.plain.errors import ValidationError as ValidationError
from rocketmq_tw.structs.plain.kinds import type_kind
from rocketmq_tw.structs.plain.meta import Meta as Meta
from rocketmq_tw.structs.plain.raw import Raw as Raw
from rocketmq_tw.structs.plain.swift import Mode, swift

#: What converts to a type without `strict`: the servers do that with each request.
_lax: dict[Any, Any] = {}


def convert(value: Any, type: Any, *, strict: bool = True, str_keys: bool = False) -> Any:
    """Returns `value`, made of dicts, lists and scalars, as a `type`. Unless `strict`, text becomes
    a number, a boolean or None where the type asks for one; with `str_keys` a key becomes a number.
    Raises `ValidationError`."""
    short = None if strict else _lax.get(type)
    kind = None
    if short is None:
        kind = type_kind(type)
        short = swift(kind, Mode(strict, is_json=False))
        if not strict:
            _lax[type] = short
    try:
        return short(value)
    except Misfit:
        pass
    try:
        return Conversion(strict, str_keys or not strict).convert(kind or type_kind(type), value)
    except Misfit as misfit:
        raise misfit.error() from misfit.__cause__
