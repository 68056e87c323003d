"""Marks for no value: in a field that is not written, in place of a default."""

from __future__ import annotations

from enum import Enum
from typing import Final


class UnsetType(Enum):
    """The type of `UNSET`, which a field holds that is left out of what is written."""

    UNSET = "UNSET"

    def __repr__(self) -> str:
        return "UNSET"

    __str__ = __repr__

    def __bool__(self) -> bool:
        return False


class NoDefault(Enum):
    """The type of `NODEFAULT`, which a field has as its default that must be given."""

    NODEFAULT = "NODEFAULT"

    def __repr__(self) -> str:
        return "NODEFAULT"

    __str__ = __repr__


UNSET: Final = UnsetType.UNSET
NODEFAULT: Final = NoDefault.NODEFAULT
