"""Functions that remember some of their answers."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, update_wrapper
from inspect import signature
from typing import Any, ParamSpec, TypeVar

from rocketmq_tw.interpreter import IS_PYPY

_Parameters = ParamSpec("_Parameters")
_Answer = TypeVar("_Answer")
_UNKNOWN = object()


def remembered(
    most: int,
) -> Callable[[Callable[_Parameters, _Answer]], Callable[_Parameters, _Answer]]:
    """Returns a decorator for pure functions of hashable arguments: an answer is kept for so many
    arguments, `most`, and what raised is tried again. Arguments are positional.

    CPython's `lru_cache` is C; PyPy's is Python, and takes longer than most of these functions."""
    if IS_PYPY:
        return lambda function: remembered_in_dict(function, most)
    return lru_cache(maxsize=most)  # type: ignore[return-value]


def remembered_in_dict(
    function: Callable[_Parameters, _Answer], most: int
) -> Callable[_Parameters, _Answer]:
    """Returns `function`, which is asked once for the same arguments until `most` are known; then
    all are forgotten, since to know the oldest one would cost each call. Arguments are positional.
    """
    known: dict[Any, Any] = {}
    find = known.get

    def one(argument: Any) -> Any:
        answer = find(argument, _UNKNOWN)
        if answer is _UNKNOWN:
            answer = function(argument)  # type: ignore[call-arg]
            keep(argument, answer)
        return answer

    def several(*arguments: Any) -> Any:
        answer = find(arguments, _UNKNOWN)
        if answer is _UNKNOWN:
            answer = function(*arguments)  # type: ignore[call-arg]
            keep(arguments, answer)
        return answer

    def keep(arguments: Any, answer: Any) -> None:
        if len(known) >= most:
            known.clear()
        known[arguments] = answer

    takes_one = len(signature(function).parameters) == 1
    return update_wrapper(one if takes_one else several, function)
