"""Notes half messages on a master as they come, from the takeover on, asks about them, and settles
them.

Rules: docs/formats/transactions.md, "What is promised".
"""

from __future__ import annotations

from collections.abc import Sequence

from twisted.logger import Logger

from rocketmq_tw.broker.assembly.host import Addresses, Host
from rocketmq_tw.broker.clients.registry import ClientRegistry
from rocketmq_tw.broker.tables.topics.table import TopicTable
from rocketmq_tw.broker.transactions.book import State
from rocketmq_tw.broker.transactions.checks import DecisionChecks
from rocketmq_tw.broker.transactions.halves import Half
from rocketmq_tw.broker.transactions.new_halves import NewHalves
from rocketmq_tw.broker.transactions.requests import TransactionRequests
from rocketmq_tw.broker.transactions.role_work import Kept, RoleWork
from rocketmq_tw.broker.transactions.settling import Settling
from rocketmq_tw.broker.transactions.takeover import Takeover
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.message.names import HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC
from rocketmq_tw.net.interfaces import Handler
from rocketmq_tw.runtime.scope import Scope
from rocketmq_tw.store.interface import Arrived
from rocketmq_tw.wire.permissions import READ, WRITE

log = Logger()


class TransactionWork(RoleWork[Settling]):
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
        super().__init__(host, writing, kept, scope)
        self._addresses = addresses
        self._registry = registry
        self._topics = topics
        self._new = NewHalves(self._count)
        #: None until it is known which half messages wait.
        self._checks: DecisionChecks | None = None
        scope.on_end(writing.store.on_arrival(self._arrived, HALF_TOPIC))

    def handlers(self) -> dict[int, Handler]:
        """See `RoleWork`."""
        return TransactionRequests(self._host, self._writing.store, self, self._new).handlers()

    def sent(self, half: Half) -> None:
        """See `RoleWork`."""
        self._new.sent(half)

    def _took_over(self, takeover: Takeover) -> Settling:
        host, writing, scope = self._host, self._writing, self._scope
        settling = Settling(host, self._addresses, writing, takeover.book, self, scope)
        checks = DecisionChecks(host, writing.store, settling, self._registry, scope)
        self._checks = checks
        for offset, state in takeover.found:
            settling.settle(offset, state)
        checks.start()
        checks.add(takeover.waiting.values())
        if takeover.waiting or takeover.found:
            log.info(
                "{n} half messages wait; {m} were settled without an op message",
                n=len(takeover.waiting),
                m=len(takeover.found),
            )
        return settling

    # New half messages

    def _arrived(self, runs: Sequence[Arrived]) -> None:
        new, book, checks = self._new, self.book, self._checks
        arrived = [
            (offset, new.arrived(offset))
            for run in runs
            for offset in range(run.queue_offset, run.queue_offset + run.count)
        ]
        if book is None or checks is None:
            return
        book.learn(arrived[-1][0] + 1)
        waiting = []
        for offset, half in arrived:
            if half is None:
                # Not sent in this role, as a crash left it undispatched, or too many were in
                # memory.
                checks.again(offset)
            elif book.is_pending(offset):
                waiting.append(half)
                new.remember(half)
                self._count(half)
        checks.add(waiting)

    def _count(self, half: Half) -> None:
        if not half.checks:
            self._counts.add(half.real_topic, 1)

    # SettlingObserver

    def put_back(self, copy: StoredMessage) -> None:
        """See `SettlingObserver`."""
        self._new.stored(Half(copy))

    def reopened(self, offset: int) -> None:
        """See `SettlingObserver`."""
        if self._checks is not None:
            self._checks.again(offset)

    def settled(self, half: Half, state: State) -> None:
        """See `SettlingObserver`."""
        if state is State.GIVEN_UP:
            self._topics.create_on_send_back(TRANS_CHECK_MAX_TIME_TOPIC, 1, READ | WRITE)
        self._counts.settled(half.real_topic, state, half.message.born_timestamp)
