"""Bounds of a value, which stand in its annotation."""

from __future__ import annotations

from typing import NamedTuple


class _Bounds(NamedTuple):
    lowest: int | None
    highest: int | None
    max_length: int | None


class Meta(_Bounds):
    """In `Annotated[int, Meta(...)]` or `Annotated[list[...], Meta(...)]`: an integer is at least
    `ge`, below `lt` and at most `le`, a list has at most `max_length` items."""

    __slots__ = ()

    def __new__(
        cls,
        *,
        ge: int | None = None,
        lt: int | None = None,
        le: int | None = None,
        max_length: int | None = None,
    ) -> Meta:
        if lt is not None:
            if le is not None:
                raise ValueError("Cannot specify both `lt` and `le`")
            le = lt - 1
        return super().__new__(cls, ge, le, max_length)
