"""The interface that a server asks of its reactor beyond Twisted's: the turn and its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.interfaces import IReactorTime
from zope.interface import Interface, implementer


class IReactorTurns(Interface):
    """A reactor that knows when its turn began and when it ends."""

    def at_turn_end(call: Callable[[], None]) -> object:
        """Calls `call` behind all events and timers of this turn, before the reactor waits."""

    def waited() -> float:
        """Returns the seconds since this turn began: what is served now has waited at least so
        long."""

    def serve_late(seconds: float, call: Callable[[], None]) -> None:
        """Calls `call`, which serves what was read `seconds` ago: `waited` tells so meanwhile."""


@implementer(IReactorTurns)
class PlainTurns:
    """Turns of any reactor or clock of Twisted's: the end of a turn is a timer of 0 s, and `waited`
    tells only of what `serve_late` serves."""

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._late = 0.0

    def at_turn_end(self, call: Callable[[], None]) -> object:
        return self._clock.callLater(0, call)

    def waited(self) -> float:
        return self._late

    def serve_late(self, seconds: float, call: Callable[[], None]) -> None:
        former, self._late = self._late, seconds
        try:
            call()
        finally:
            self._late = former


def turns_of(reactor: Any) -> IReactorTurns:
    """Returns `reactor` itself where it knows its turns, what stands in for that otherwise."""
    return known_turns(reactor) or PlainTurns(reactor)


def known_turns(reactor: Any) -> IReactorTurns | None:
    """Returns `reactor` itself where it knows its turns; None otherwise, for what does without."""
    return reactor if IReactorTurns.providedBy(reactor) else None
