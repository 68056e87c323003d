"""Callers of a member that wait: for an entry to be applied, or until they may read."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import msgspec
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from rocketmq_tw.raft.core.codes import Code, Refused
from rocketmq_tw.raft.core.entry import Entry
from rocketmq_tw.raft.core.reads import ReadState
from rocketmq_tw.runtime.alarm import Alarm


class Applied(msgspec.Struct, frozen=True):
    """An entry that a quorum has stored and the state machine has taken, with its result."""

    index: int
    term: int
    pos: int
    result: Any


class _Waiting(NamedTuple):
    term: int
    deadline: float
    deferred: "Deferred[Applied]"


class PendingProposals:
    """Proposals that wait until they are applied, by index, with one timer for the oldest
    deadline."""

    def __init__(self, clock: IReactorTime, limit: float) -> None:
        self._clock = clock
        self._limit = limit
        self._waiting: dict[int, _Waiting] = {}
        self._expiry = Alarm(clock, self._expire)

    def add(self, entry: Entry) -> "Deferred[Applied]":
        """Fires when `entry` is applied; fails with `Refused`."""
        deferred: Deferred[Applied] = Deferred()
        deadline = self._clock.seconds() + self._limit
        self._waiting[entry.index] = _Waiting(entry.term, deadline, deferred)
        self._expiry.set_if_unset(self._limit)
        return deferred

    def applied(self, entry: Entry, result: Any) -> None:
        """Answers the caller that proposed `entry`."""
        waiting = self._waiting.pop(entry.index, None)
        if waiting is None:
            return
        if waiting.term == entry.term:
            waiting.deferred.callback(Applied(entry.index, entry.term, entry.pos, result))
        else:
            waiting.deferred.errback(_term_changed())

    def fail_all(self, reason: Callable[[], Refused] | None = None) -> None:
        """Fails all proposals that wait: another member may lead now; whether their entries stay
        is not known."""
        waiting, self._waiting = self._waiting, {}
        for one in waiting.values():
            one.deferred.errback((reason or _term_changed)())
        self._expiry.cancel()

    def _expire(self) -> None:
        now = self._clock.seconds()
        late = [index for index, one in self._waiting.items() if one.deadline <= now]
        for index in late:
            self._waiting.pop(index).deferred.errback(
                Refused(Code.WAIT_QUORUM_ACK_TIMEOUT, f"no quorum within {self._limit:g} s")
            )
        for one in self._waiting.values():
            self._expiry.set(max(0.001, one.deadline - now))
            break


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
