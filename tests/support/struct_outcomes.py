"""What comes of a call about structs, alike for msgspec and for what stands in for it."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

from rocketmq_tw.structs import msgspec, plain


def described(value: Any) -> Any:
    """Returns what `value` is, alike for both twins."""
    of = type(value)
    if isinstance(value, msgspec.Struct | plain.Struct):
        return of.__qualname__, {
            name: described(getattr(value, name)) for name in of.__struct_fields__
        }
    if of in (msgspec.Raw, plain.Raw):
        return "Raw", bytes(value)
    if isinstance(value, Enum):
        return of.__name__, value.name
    if of is dict:
        return "dict", [(described(key), described(item)) for key, item in value.items()]
    if of in (list, tuple):
        return of.__name__, [described(item) for item in value]
    if of in (set, frozenset):
        return of.__name__, sorted(repr(described(item)) for item in value)
    return of.__name__, repr(value) if of is float else value


def outcome(call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Returns what `call` returns, described, or the name and text of the error that it raises."""
    try:
        return described(call(*arguments, **options))
    except (AttributeError, RecursionError) as error:
        return type(error).__name__
    except Exception as error:
        # Whatever it is: the caller shows the seed of what was called.
        return type(error).__name__, str(error).replace("msgspec.Raw", "Raw")
