"""Callers of a member that wait: for an entry to be applied, or until they may read."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from rocketmq_tw.raft.core.codes import Code, Refused
from rocketmq_tw.raft.core.entry import Entry
from rocketmq_tw.raft.core.reads import ReadState
from rocketmq_tw.runtime.deadlines import Deadlines
from rocketmq_tw.structs import msgspec


class Applied(msgspec.Struct, frozen=True):
    """An entry that a quorum has stored and the state machine has taken, with its result."""

    index: int
    term: int
    pos: int
    result: Any


class _Waiting(NamedTuple):
    term: int
    deferred: "Deferred[Applied]"


class PendingProposals:
    """Proposals that wait until they are applied, by index."""

    def __init__(self, clock: IReactorTime, limit: float) -> None:
        self._limit = limit
        self._waiting = Deadlines[int, _Waiting](clock, limit, self._expired)

    def add(self, entry: Entry) -> "Deferred[Applied]":
        """Fires when `entry` is applied; fails with `Refused`."""
        deferred: Deferred[Applied] = Deferred()
        self._waiting.add(entry.index, _Waiting(entry.term, deferred))
        return deferred

    def applied(self, entry: Entry, result: Any) -> None:
        """Answers the caller that proposed `entry`."""
        waiting = self._waiting.take(entry.index)
        if waiting is None:
            return
        if waiting.term == entry.term:
            waiting.deferred.callback(Applied(entry.index, entry.term, entry.pos, result))
        else:
            waiting.deferred.errback(_term_changed())

    def fail_all(self, reason: Callable[[], Refused] | None = None) -> None:
        """Fails all proposals that wait: another member may lead now; whether their entries stay
        is not known."""
        for _, one in self._waiting.take_all():
            one.deferred.errback((reason or _term_changed)())

    def _expired(self, _: int, one: _Waiting) -> None:
        one.deferred.errback(
            Refused(Code.WAIT_QUORUM_ACK_TIMEOUT, f"no quorum within {self._limit:g} s")
        )


class PendingReads:
    """Reads of the state machine, by the token that the core knows each by. A read waits until the
    core says that this member led when it came, and then until the entries that were committed by
    then are applied."""

    def __init__(self) -> None:
        self._asked: dict[int, Deferred[None]] = {}
        #: With the index that must be applied.
        self._confirmed: list[tuple[int, Deferred[None]]] = []

    def add(self, token: int) -> "Deferred[None]":
        """Fires when the state machine may be read; fails with `Refused`."""
        deferred = self._asked[token] = Deferred()
        return deferred

    def failed(self, tokens: Iterable[int]) -> None:
        """Fails reads of which the core cannot say that this member led."""
        for token in tokens:
            read = self._asked.pop(token, None)
            if read is not None:
                read.errback(Refused(Code.TERM_CHANGED, "the leader changed; read again"))

    def confirmed(self, states: Iterable[ReadState], applied_index: int) -> None:
        """Takes what the core confirmed, and fires all reads that need no entry behind
        `applied_index`."""
        for state in states:
            read = self._asked.pop(state.token, None)
            if read is not None:
                self._confirmed.append((state.index, read))
        if self._confirmed:
            served = [read for index, read in self._confirmed if index <= applied_index]
            self._confirmed = [one for one in self._confirmed if one[0] > applied_index]
            for read in served:
                read.callback(None)

    def fail_all(self, reason: Callable[[], Refused]) -> None:
        """Fails all reads that wait."""
        reads = [*self._asked.values(), *(read for _, read in self._confirmed)]
        self._asked.clear()
        self._confirmed.clear()
        for read in reads:
            read.errback(reason())


def _term_changed() -> Refused:
    return Refused(Code.TERM_CHANGED, "the leader changed; the entry may be there or not")
