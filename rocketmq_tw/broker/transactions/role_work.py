"""Finds out which half messages wait, as every role that delivers does first.

Rules: docs/formats/transactions.md, "What is promised".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, NamedTuple, TypeVar

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketmq_tw.broker.assembly.host import Host
from rocketmq_tw.broker.transactions.book import HalfBook
from rocketmq_tw.broker.transactions.counts import HalfCounts
from rocketmq_tw.broker.transactions.halves import Half
from rocketmq_tw.broker.transactions.progress import SettledProgress
from rocketmq_tw.broker.transactions.settling import role_is_over
from rocketmq_tw.broker.transactions.takeover import Takeover
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.net.interfaces import Handler
from rocketmq_tw.runtime.retries import RETRY_USUAL
from rocketmq_tw.runtime.scope import Scope
from rocketmq_tw.runtime.waiters import Waiters

T = TypeVar("T")

log = Logger()


class Kept(NamedTuple):
    """What outlives a role: how far half messages are settled, and how many of each topic wait."""

    progress: SettledProgress
    counts: HalfCounts


class RoleWork(Generic[T]):
    """Takes over, until `scope`, the role's, is over. A subclass goes on in `_took_over`, and says
    what decisions need from then on."""

    #: Whether those that wait when it takes over are kept with their bodies.
    keeps_bodies = False

    def __init__(self, host: Host, writing: Writing, kept: Kept, scope: Scope) -> None:
        self._host = host
        self._writing = writing
        self._progress, self._counts = kept
        self._scope = scope
        #: None until it is known which half messages wait.
        self.book: HalfBook | None = None
        #: What decisions need; None until the takeover is over.
        self.taken_over: T | None = None
        self._asking = Waiters[T]()
        self._taking_over: Deferred[Any] = succeed(None)

    def begin(self) -> None:
        """Takes over once the queues have all of the log: with a new master under controllers, what
        is in no queue yet may decide about a half message that is."""
        self._scope.on_end(self._writing.dispatcher.when_dispatched(self._take_over))

    def handlers(self) -> dict[int, Handler]:
        """Returns the handlers of what this role answers, by request code."""
        raise NotImplementedError

    def sent(self, half: Half) -> None:
        """Takes a half message that is about to be stored."""

    def end(self) -> Deferred[Any]:
        """Notes how far all is settled, the scope being over; fires once nothing is under way."""
        self.note()
        self._asking.fire(Failure(role_is_over()))
        return self._taking_over

    @property
    def asking(self) -> int:
        """How many wait for the end of the takeover."""
        return len(self._asking)

    @property
    def pending(self) -> int:
        """How many half messages wait, as far as that is known."""
        return 0 if self.book is None else self.book.pending

    def when_taken_over(self) -> Deferred[T]:
        """Fires with what decisions need, once it is known which half messages wait; fails with
        `RequestError` where the role ends before."""
        return self._asking.wait()

    def note(self) -> None:
        """Says by consumer offsets how far all is settled."""
        if self.book is not None:
            self._progress.note(self.book)

    def _take_over(self) -> None:
        config = self._host.config
        margin_ms = 2 * (config.transaction_time_out + config.transaction_check_interval)
        takeover = Takeover(
            self._writing.store, self._progress, margin_ms, with_bodies=self.keeps_bodies
        )
        steps = self._scope.steps(self._steps(takeover))
        self._taking_over = self._host.in_slices(steps).addErrback(self._failed)

    def _steps(self, takeover: Takeover) -> Iterator[None]:
        yield from takeover.steps()
        # In the same step as its last look at the queue, so that nothing comes between.
        self._progress.taken_over(takeover.op_offset)
        self.book = takeover.book
        self._counts.replace(half.real_topic for half in takeover.waiting.values())
        self.taken_over = self._took_over(takeover)
        self._asking.fire(self.taken_over)

    def _failed(self, failure: Failure) -> None:
        log.failure("which half messages wait cannot be found out; trying again", failure=failure)
        self._scope.later(self._host.reactor, RETRY_USUAL, self._take_over)

    def _took_over(self, takeover: Takeover) -> T:
        """Goes on with `takeover`, which is over; returns what decisions need from now on."""
        raise NotImplementedError
