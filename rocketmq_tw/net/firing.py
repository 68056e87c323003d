"""Deferreds that wait for one result, fired a few in each turn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

#: Fired in one step; what follows each may be an answer that is sent.
_STEP = 50


def fire_all(waiting: Iterable[Deferred[Any]], result: Any) -> Iterator[None]:
    """Fires each of `waiting` with `result`, or fails it where that is a `Failure`, in steps."""
    for number, deferred in enumerate(waiting, 1):
        if isinstance(result, Failure):
            deferred.errback(result)
        else:
            deferred.callback(result)
        if number % _STEP == 0:
            yield
