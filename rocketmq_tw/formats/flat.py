"""A declaration of fixed size as a `struct.Struct`.

`construct` takes some 20 us for a field, which is too slow for millions of records.
"""

from __future__ import annotations

from struct import Struct

import construct as c


def flat(declaration: c.Struct) -> Struct:
    """Returns the struct that unpacks the named fields of a declaration in their order.

    Raises `ValueError` for a field without a fixed size.
    """
    return Struct(">" + "".join(map(_code, declaration.subcons)))


def _code(field: c.Construct) -> str:
    kind = field
    while isinstance(kind, c.Subconstruct):
        kind = kind.subcon
    if isinstance(kind, c.FormatField):
        code: str = kind.fmtstr
        return code.lstrip(">").replace("l", "i").replace("L", "I")
    if isinstance(kind, c.Bytes) and isinstance(kind.length, int):
        return f"{kind.length}{'s' if field.name else 'x'}"
    raise ValueError(f"the field {field.name} has no fixed size")
