"""Checks what is put into a field, as protobuf does: `TypeError` for another type, `ValueError` for
what cannot be written."""

from __future__ import annotations

from operator import index
from struct import Struct
from typing import Any

#: A number of 32 bits on the wire.
FLOAT = Struct("<f")


def checked_text(value: Any, field: str) -> str:
    """Returns a text of any kind as plain str; bytes are read as UTF-8."""
    if isinstance(value, bytes):
        return value.decode()
    if not isinstance(value, str):
        raise _misfit(value, field, "str")
    # Half of a surrogate pair cannot be written.
    value.encode()
    return str.__str__(value)


def checked_bytes(value: Any, field: str) -> bytes:
    """Returns bytes of any kind as plain ones."""
    if not isinstance(value, bytes):
        raise _misfit(value, field, "bytes")
    return bytes(value)


def checked_int(value: Any, field: str, bits: int) -> int:
    """Returns an integer of so many bits, one of which is the sign."""
    try:
        found = int(index(value))
    except TypeError:
        raise _misfit(value, field, "int") from None
    if not -1 << (bits - 1) <= found < 1 << (bits - 1):
        raise ValueError(f"{field}: Value out of range: {found}")
    return found


def checked_int32(value: Any, field: str) -> int:
    """Returns an int32, or the number of an enumeration."""
    return checked_int(value, field, 32)


def checked_int64(value: Any, field: str) -> int:
    """Returns an int64."""
    return checked_int(value, field, 64)


def checked_bool(value: Any, field: str) -> bool:
    """Returns whether an integer is not 0."""
    try:
        return bool(index(value))
    except TypeError:
        raise _misfit(value, field, "bool") from None


def checked_float(value: Any, field: str) -> float:
    """Returns the nearest number of 32 bits."""
    try:
        found: float = FLOAT.unpack(FLOAT.pack(value))[0]
    except OverflowError:
        return float("-inf" if value < 0 else "inf")
    except Exception:
        raise _misfit(value, field, "float") from None
    return found


def _misfit(value: Any, field: str, wanted: str) -> TypeError:
    return TypeError(f"{field} is a {wanted}, not {type(value).__name__}: {value!r:.200}")
