"""Results that take long to make, shared by those that ask for them at the same time."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from twisted.internet.defer import Deferred

from rocketmq_tw.runtime.fairness import Serial
from rocketmq_tw.runtime.slices import Slices
from rocketmq_tw.runtime.waiters import Waiters


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
