"""Long work on the reactor's thread, cut into steps between which others are served."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import Cooperator
from twisted.logger import Logger

#: Goes through steps as `Slices` does.
InSlices = Callable[[Iterator[None]], "Deferred[Any]"]

#: Entries of a table that one step of most work looks at: some milliseconds.
_STEP = 200


def every(number: int) -> bool:
    """Returns whether a step of `_STEP` entries ends behind the entry of this number, counted from
    0."""
    return number % _STEP == _STEP - 1


class Slices:
    """Goes through steps, some 10 ms of them in each turn of the reactor of `clock`."""

    log = Logger()

    def __init__(self, clock: IReactorTime) -> None:
        self._cooperator = Cooperator(scheduler=lambda work: clock.callLater(0, work))

    def __call__(self, steps: Iterator[None]) -> Deferred[Any]:
        """Goes through `steps`; fires at their end, fails with what they raise. They meet what
        happens in between. A single step is made when this returns."""
        try:
            for _ in steps:
                return self._go_on(steps)
        except Exception:
            return fail()
        return succeed(None)

    def _go_on(self, steps: Iterator[None]) -> Deferred[Any]:
        done: Deferred[Any] = Deferred()

        def telling() -> Iterator[None]:
            # A task of the cooperator keeps its failure, whose frames lead to the task: what the
            # steps had made would stay until the collector looks for such rings, which servers have
            # it do rarely.
            try:
                yield from steps
            except Exception:
                done.errback()
            else:
                done.callback(None)

        self._cooperator.coiterate(telling()).addErrback(done.errback)
        return done

    def unwatched(self, steps: Iterator[None], purpose: str) -> None:
        """Goes through `steps` without telling of their end; what they raise is logged with
        `purpose`."""
        self(steps).addErrback(
            lambda failure: self.log.failure("{purpose} failed", failure=failure, purpose=purpose)
        )


def all_steps(steps: Iterator[None]) -> Deferred[Any]:
    """Makes all steps before it returns: an `InSlices` for little work."""
    try:
        for _ in steps:
            pass
    except Exception:
        return fail()
    return succeed(None)
