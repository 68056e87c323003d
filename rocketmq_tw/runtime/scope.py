"""The end of several things at once: of the work of one role, of one connection, of one attempt."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ParamSpec

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

P = ParamSpec("P")


class Scope:
    """A period that ends once and never begins again. Work that belongs to it asks whether it is
    over, or is called at its end.

    It takes the place of a counter of periods: work that was begun in one scope cannot go on in the
    next one, since that is another object.
    """

    __slots__ = ("_ends", "is_over")

    log = Logger()

    def __init__(self) -> None:
        self.is_over = False
        #: Made once there is something: most calls of clients end with nothing to do.
        self._ends: dict[object, Callable[[], object]] | None = None

    def on_end(self, end: Callable[[], object]) -> Callable[[], None]:
        """Calls `end` when the scope is over, at once where it is; the last one added is called
        first. What is returned takes that back."""
        if self.is_over:
            end()
            return lambda: None
        key = object()
        if self._ends is None:
            self._ends = {}
        ends = self._ends
        ends[key] = end
        return lambda: ends.pop(key, None) and None

    def end(self) -> None:
        """Makes the scope over, at once; what is called at its end and fails is logged."""
        if self.is_over:
            return
        self.is_over = True
        ends, self._ends = self._ends, None
        if ends is None:
            return
        for end in [*ends.values()][::-1]:
            try:
                end()
            except Exception:
                self.log.failure("what was to be done at the end of a scope failed")

    def while_it_lasts(self, call: Callable[P, Any]) -> Callable[P, Any]:
        """Returns `call`, but for calls that come when the scope is over: they return None."""

        def guarded(*args: P.args, **kwargs: P.kwargs) -> Any:
            return None if self.is_over else call(*args, **kwargs)

        return guarded

    def later(self, clock: IReactorTime, seconds: float, call: Callable[[], object]) -> None:
        """Calls `call` in `seconds`, unless the scope is over by then."""

        def due() -> None:
            forget()
            call()

        if not self.is_over:
            pending = clock.callLater(seconds, due)
            forget = self.on_end(pending.cancel)

    def steps(self, steps: Iterator[None]) -> Iterator[None]:
        """Yields the steps of work for `Slices`, up to the end of the scope."""
        while not self.is_over:
            for _ in steps:
                break
            else:
                return
            yield
