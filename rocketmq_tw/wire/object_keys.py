"""Objects as keys of a JSON object, which fastjson writes and JSON does not have: as in
`{{"topic":"T"}:1}` (docs/formats/bodies.md)."""

from __future__ import annotations

from typing import Any

from rocketmq_tw.wire.errors import WireError

_LONGS = range(-(1 << 63), 1 << 63)


class ObjectKey(dict[Any, Any]):
    """An object that stands as a key of another, as in `{{"topic":"T"}:1}`."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))


def as_key(value: Any) -> Any:
    """Returns `value` as it can stand as a key of a dict; members that are null are left out.

    Raises `WireError` for what no key of stock's is: a list, a number beyond a long, and an object
    with a list or an object in it. Those can be chosen so that all have one hash, or take ever
    longer to hash.
    """
    if isinstance(value, dict):
        members = {name: item for name, item in value.items() if item is not None}
        for part in (*members, *members.values()):
            _check_plain(part)
        return ObjectKey(members)
    _check_plain(value)
    return value


def _check_plain(value: Any) -> None:
    if isinstance(value, dict | list):
        raise WireError("JSON with a list, or an object in an object, as a key")
    if isinstance(value, int) and value not in _LONGS:
        raise WireError("JSON with a number as a key that no long can hold")
