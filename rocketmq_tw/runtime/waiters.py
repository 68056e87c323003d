"""Deferreds that fire together, when something has happened."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Generic, TypeVar

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

T = TypeVar("T")

#: Fired in one step; what follows each may be an answer that is sent.
_STEP = 50


class Waiters(Generic[T]):
    """Deferreds that fire together. One that is cancelled waits no more."""

    def __init__(self) -> None:
        self._waiting: dict[int, Deferred[T]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def wait(self) -> Deferred[T]:
        """Fires with the next result, or fails with the next failure."""
        waiter: Deferred[T] = Deferred(self._forget)
        self._waiting[id(waiter)] = waiter
        return waiter

    def _forget(self, waiter: Deferred[Any]) -> None:
        self._waiting.pop(id(waiter), None)

    def fire(self, result: T | Failure) -> None:
        """Fires, or fails, all that wait by now; those that are added meanwhile are not among
        them."""
        for _ in self.fire_in_steps(result):
            pass

    def fire_in_steps(self, result: T | Failure) -> Iterator[None]:
        """Fires, or fails, all that wait by now, in steps for `Slices`."""
        waiting, self._waiting = self._waiting, {}
        return fire_all(waiting.values(), result)


def fire_all(waiting: Iterable[Deferred[Any]], result: Any) -> Iterator[None]:
    """Fires each of `waiting` with `result`, or fails it where that is a `Failure`, in steps.
    Those that were fired or cancelled are passed over."""
    for number, deferred in enumerate(waiting, 1):
        if not deferred.called:
            if isinstance(result, Failure):
                deferred.errback(result)
            else:
                deferred.callback(result)
        if number % _STEP == 0:
            yield
