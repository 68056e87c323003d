"""What is done about half messages in a role that delivers: from the takeover on they are noted as
they come, asked about, and settled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketmq_tw.broker.assembly.host import Addresses, Host
from rocketmq_tw.broker.clients.registry import ClientRegistry
from rocketmq_tw.broker.tables.topics.table import TopicTable
from rocketmq_tw.broker.transactions.book import State
from rocketmq_tw.broker.transactions.checks import DecisionChecks
from rocketmq_tw.broker.transactions.counts import HalfCounts
from rocketmq_tw.broker.transactions.halves import Half
from rocketmq_tw.broker.transactions.progress import SettledProgress
from rocketmq_tw.broker.transactions.settling import Settling, no_master
from rocketmq_tw.broker.transactions.takeover import Takeover
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.message.names import HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC
from rocketmq_tw.runtime.scope import Scope
from rocketmq_tw.runtime.waiters import Waiters
from rocketmq_tw.store.interface import Arrived
from rocketmq_tw.wire.permissions import READ, WRITE

#: Seconds until a takeover that failed is tried again.
RETRY_DELAY = 1.0
#: Half messages that are kept in memory for a decision that comes soon, and bytes of the largest.
MAX_REMEMBERED, MAX_REMEMBERED_BYTES = 1_024, 16_384

log = Logger()


class NewHalves:
    """Half messages in memory: those that were stored and are in no queue yet, and in `recent`, by
    their position in the log, the last ones, which most decisions are about."""

    def __init__(self) -> None:
        self._sent: Half | None = None
        self._by_offset: dict[int, Half] = {}
        self.recent: dict[int, Half] = {}

    def sent(self, half: Half) -> None:
        """Takes one that is about to be stored, and gets its queue offset then."""
        self._keep_sent()
        self._sent = half

    def stored(self, half: Half) -> None:
        """Takes one that has its queue offset."""
        self._by_offset[half.offset] = half

    def arrived(self, offset: int) -> Half | None:
        """Gives out the one that is in the queue now, at `offset`, if it was taken."""
        self._keep_sent()
        return self._by_offset.pop(offset, None)

    def remember(self, half: Half) -> None:
        """Makes it one of the recent ones, unless it is large."""
        if len(half.message.body) <= MAX_REMEMBERED_BYTES:
            self.recent[half.message.physical_offset] = half
            if len(self.recent) > MAX_REMEMBERED:
                del self.recent[next(iter(self.recent))]

    def _keep_sent(self) -> None:
        # One that was refused has the offset of the next one, which takes its place.
        if self._sent is not None:
            self._by_offset[self._sent.offset] = self._sent
            self._sent = None


class Kept(NamedTuple):
    """What outlives a role: how far half messages are settled, and how many of each topic wait."""

    progress: SettledProgress
    counts: HalfCounts


class TransactionWork:
    """The work of a master, until `scope`, the role's, is over."""

    def __init__(
        self,
        host: Host,
        addresses: Addresses,
        writing: Writing,
        registry: ClientRegistry,
        topics: TopicTable,
        kept: Kept,
        scope: Scope,
    ) -> None:
        self._host = host
        self._addresses = addresses
        self._writing = writing
        self._registry = registry
        self._topics = topics
        self._progress, self._counts = kept
        self._scope = scope
        self.new = NewHalves()
        #: None until it is known which half messages wait.
        self.settling: Settling | None = None
        self._checks: DecisionChecks | None = None
        self._taken_over = Waiters[Settling]()
        self._taking_over: Deferred[Any] = succeed(None)
        scope.on_end(writing.store.on_arrival(self._arrived, HALF_TOPIC))

    def begin(self) -> None:
        """Takes over once the queues have all of the log: with a new master under controllers, what
        is in no queue yet may decide about a half message that is."""
        self._scope.on_end(self._writing.dispatcher.when_dispatched(self._take_over))

    def end(self) -> Deferred[Any]:
        """Notes how far all is settled, the scope being over; fires once nothing is under way."""
        self.note()
        self._taken_over.fire(Failure(no_master()))
        return self._taking_over

    @property
    def asking(self) -> int:
        """How many wait for the end of the takeover."""
        return len(self._taken_over)

    @property
    def pending(self) -> int:
        """How many half messages wait, as far as that is known."""
        return 0 if self.settling is None else self.settling.book.pending

    def when_taken_over(self) -> Deferred[Settling]:
        """Fires once it is known which half messages wait; fails with `RequestError` where the role
        ends before."""
        return self._taken_over.wait()

    def note(self) -> None:
        """Says by consumer offsets how far all is settled."""
        if self.settling is not None:
            self._progress.note(self.settling.book)

    # The takeover

    def _take_over(self) -> None:
        config = self._host.config
        margin_ms = 2 * (config.transaction_time_out + config.transaction_check_interval)
        takeover = Takeover(self._writing.store, self._progress, margin_ms)
        steps = self._scope.steps(self._steps(takeover))
        self._taking_over = self._host.in_slices(steps).addErrback(self._failed)

    def _steps(self, takeover: Takeover) -> Iterator[None]:
        yield from takeover.steps()
        # In the same step as its last look at the queue, so that nothing comes between.
        self._took_over(takeover)

    def _failed(self, failure: Failure) -> None:
        log.failure("which half messages wait cannot be found out; trying again", failure=failure)
        self._scope.later(self._host.reactor, RETRY_DELAY, self._take_over)

    def _took_over(self, takeover: Takeover) -> None:
        host, writing, scope = self._host, self._writing, self._scope
        self._progress.taken_over(takeover.op_offset)
        self.settling = Settling(host, self._addresses, writing, takeover.book, self, scope)
        checks = DecisionChecks(host, writing.store, self.settling, self._registry, scope)
        self._checks = checks
        for offset, state in takeover.found:
            self.settling.settle(offset, state)
        self._counts.replace(half.real_topic for half in takeover.waiting.values())
        checks.start()
        for half in takeover.waiting.values():
            checks.add(half)
        if takeover.waiting or takeover.found:
            log.info(
                "{n} half messages wait; {m} were settled without an op message",
                n=len(takeover.waiting),
                m=len(takeover.found),
            )
        self._taken_over.fire(self.settling)

    # New half messages

    def _arrived(self, runs: Sequence[Arrived]) -> None:
        for run in runs:
            for offset in range(run.queue_offset, run.queue_offset + run.count):
                self._half_arrived(offset)

    def _half_arrived(self, offset: int) -> None:
        half, settling, checks = self.new.arrived(offset), self.settling, self._checks
        if settling is None or checks is None:
            return
        settling.book.learn(offset + 1)
        if half is None:
            # Not sent in this role: a crash left it undispatched.
            checks.again(offset)
        elif settling.book.is_pending(offset):
            checks.add(half)
            self.new.remember(half)
            if not half.checks:
                self._counts.add(half.real_topic, 1)

    # SettlingObserver

    def put_back(self, copy: StoredMessage) -> None:
        """See `SettlingObserver`."""
        self.new.stored(Half(copy))

    def reopened(self, offset: int) -> None:
        """See `SettlingObserver`."""
        if self._checks is not None:
            self._checks.again(offset)

    def settled(self, half: Half, state: State) -> None:
        """See `SettlingObserver`."""
        if state is State.GIVEN_UP:
            self._topics.create_on_send_back(TRANS_CHECK_MAX_TIME_TOPIC, 1, READ | WRITE)
        self._counts.settled(half.real_topic, state)
