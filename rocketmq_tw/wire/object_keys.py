"""Objects as keys of a JSON object, which fastjson writes and JSON does not have: as in
`{{"topic":"T"}:1}` (docs/formats/bodies.md)."""

from __future__ import annotations

from typing import Any


class ObjectKey(dict[Any, Any]):
    """An object that stands as a key of another, as in `{{"topic":"T"}:1}`."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))


def as_key(value: Any) -> Any:
    """Returns `value` as it can stand as a key of a dict; members that are null are left out."""
    if isinstance(value, dict):
        return ObjectKey((key, as_key(item)) for key, item in value.items() if item is not None)
    if isinstance(value, list):
        return tuple(as_key(item) for item in value)
    return value
