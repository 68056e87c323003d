"""Proposals that wait for their entry to be applied."""

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from rocketmq_tw.raft.core.codes import Code, Refused
from rocketmq_tw.raft.core.entry import Entry
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


def _term_changed() -> Refused:
    return Refused(Code.TERM_CHANGED, "the leader changed; the entry may be there or not")
