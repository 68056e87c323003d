"""Bounds how many slow expressions are compiled, and asked by reads, in one turn of the reactor.

An expression of 8,192 characters takes some 20 ms to compile, and a read that asks a slow one takes
some more. Without a budget, many connections that send such expressions at once would hold up all
others for seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from rocketmq_tw.broker.assembly.handlers import answer_later
from rocketmq_tw.message.sql92 import CHARACTERS_PER_TURN, COST_OF_EXPRESSION, is_remembered
from rocketmq_tw.net.interfaces import Handler, IPeer
from rocketmq_tw.runtime.fairness import FairQueue
from rocketmq_tw.wire.command import RemotingCommand

#: What a read that asks a slow expression costs, in characters.
COST_OF_SLOW_READ = 1024


class BudgetSpent(Exception):
    """Too much was compiled in this turn of the reactor; the request is to be tried again later."""


class CompileBudget:
    """The characters that may be compiled in the present turn. Requests that come too late for it
    are tried again in later turns, one of each connection after the other."""

    def __init__(self, clock: IReactorTime) -> None:
        self._left = CHARACTERS_PER_TURN
        #: Peers whose work was postponed; those that are lost are forgotten.
        self._watched: set[IPeer] = set()
        self._postponed: FairQueue[Hashable] = FairQueue(
            clock, lambda: self._left > 0, self._refill
        )

    def admit(self, text: str) -> None:
        """Takes the cost of compiling `text`, which is 0 where it was compiled not long ago; raises
        `BudgetSpent` where nothing is left."""
        if not is_remembered(text):
            self._spend(COST_OF_EXPRESSION + len(text))

    def admitted(self, text: str, source: Hashable) -> Deferred[None]:
        """Fires once `text` may be compiled, at once or in a later turn, one of each `source` after
        the other."""
        done: Deferred[None] = Deferred()

        def ask() -> None:
            try:
                self.admit(text)
            except BudgetSpent:
                self._postponed.add(source, ask)
            else:
                done.callback(None)

        ask()
        return done

    def admit_read(self, weight: int) -> None:
        """Takes the cost of a read whose expression has this weight (`MessageFilter.weight`);
        raises `BudgetSpent` where nothing is left."""
        if weight > 1:
            self._spend(COST_OF_SLOW_READ)

    def retrying(self, handler: Handler) -> Handler:
        """Returns a handler that does what `handler` does, in a later turn where that raises
        `BudgetSpent`; `handler` must not have changed anything by then."""

        def handle(request: RemotingCommand, peer: IPeer) -> Any:
            try:
                return handler(request, peer)
            except BudgetSpent:
                self.postpone(peer, lambda: answer_later(handle, request, peer))
                return None

        return handle

    def postpone(self, peer: IPeer, work: Callable[[], None]) -> None:
        """Calls `work` in a later turn, unless `peer` is lost by then: it is forgotten at once,
        since nobody counts its memory any more."""
        if peer.connected:
            if peer not in self._watched:
                self._watched.add(peer)
                peer.when_lost(self._lost)
            self._postponed.add(peer, work)

    def _lost(self, peer: IPeer) -> None:
        self._watched.discard(peer)
        self._postponed.forget(peer)

    def _spend(self, cost: int) -> None:
        if self._left <= 0:
            raise BudgetSpent
        self._left -= cost
        self._postponed.schedule()

    def _refill(self) -> None:
        self._left = CHARACTERS_PER_TURN
