"""Results that take long to make, shared by those that ask for them at the same time."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.python.failure import Failure

from rocketmq_tw.runtime.fairness import Serial
from rocketmq_tw.runtime.slices import Slices
from rocketmq_tw.runtime.waiters import Waiters

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class SharedResults:
    """Makes one result at a time. Callers that ask for a result that is not begun yet share it;
    those that ask while it is being made get the next one, which has all changes before the
    question."""

    def __init__(self, in_slices: Slices) -> None:
        self._in_slices = in_slices
        self._one = Serial()
        self._waiting: dict[Hashable, Waiters[Any]] = {}

    def __len__(self) -> int:
        """How many results are asked for and not begun."""
        return len(self._waiting)

    def __contains__(self, key: Hashable) -> bool:
        """Whether this result is asked for and not begun."""
        return key in self._waiting

    def get(self, key: Hashable, make: Callable[[], Deferred[Any]]) -> Deferred[Any]:
        """Fires with what `make` fires with; equal keys stand for equal results."""
        if key in self._waiting:
            return self._waiting[key].wait()
        waiters = self._waiting[key] = Waiters[Any]()
        first = waiters.wait()

        def begin() -> Deferred[Any]:
            del self._waiting[key]
            return make()

        def made(result: Any) -> None:
            self._in_slices.unwatched(waiters.fire_in_steps(result), "giving out a shared result")

        self._one.run(begin).addBoth(made)
        return first


class JoinedResults(Generic[K, T]):
    """Makes each result once for all that ask while it is made. Those that join get what was begun
    before they asked; where it must have all changes before the question, see `SharedResults`."""

    def __init__(self) -> None:
        self._waiting: dict[K, Waiters[T]] = {}

    def __len__(self) -> int:
        """How many results are being made."""
        return len(self._waiting)

    def __contains__(self, key: K) -> bool:
        """Whether this result is being made."""
        return key in self._waiting

    def waiting(self, key: K) -> int:
        """Returns how many wait for a result: none once all of them were cancelled."""
        return len(self._waiting.get(key, ()))

    def get(self, key: K, make: Callable[[], Deferred[T]]) -> Deferred[T]:
        """Fires with what `make` fires with, or fails as it does; equal keys stand for equal
        results. One that is cancelled waits no more, and the result is made all the same."""
        if key in self._waiting:
            return self._waiting[key].wait()
        waiters = self._waiting[key] = Waiters()
        first = waiters.wait()

        def made(result: T | Failure) -> None:
            del self._waiting[key]
            waiters.fire(result)

        maybeDeferred(make).addBoth(made)
        return first
