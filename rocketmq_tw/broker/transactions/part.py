"""Transactional messages, as a part of the broker."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from rocketmq_tw.broker.assembly.handlers import refusing
from rocketmq_tw.broker.assembly.host import Addresses, ConfigFile, Host
from rocketmq_tw.broker.assembly.part import KeptTable, Part, Periodic
from rocketmq_tw.broker.assembly.truncation import DerivedOffsets, LogCut
from rocketmq_tw.broker.clients.part import Clients
from rocketmq_tw.broker.role.holder import RoleHolder
from rocketmq_tw.broker.role.state import Role, RoleState
from rocketmq_tw.broker.tables.part import Tables
from rocketmq_tw.broker.tables.write_behind import write_progress
from rocketmq_tw.broker.transactions.book import State
from rocketmq_tw.broker.transactions.checks import DecisionChecks
from rocketmq_tw.broker.transactions.counts import HalfCounts
from rocketmq_tw.broker.transactions.cut import SettledBehind
from rocketmq_tw.broker.transactions.halves import QUEUE, SYSTEM_GROUP, Half, make_half
from rocketmq_tw.broker.transactions.history import History
from rocketmq_tw.broker.transactions.requests import TransactionRequests
from rocketmq_tw.broker.transactions.settling import Settling
from rocketmq_tw.broker.transactions.takeover import Takeover
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.broker.writing.redirects import Draft, Stage
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.message.names import HALF_TOPIC, OP_HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC
from rocketmq_tw.message.properties import TRAN_MSG
from rocketmq_tw.metrics.instruments import Metric, counter, gauge
from rocketmq_tw.net.interfaces import Handler
from rocketmq_tw.store.interface import Arrived
from rocketmq_tw.store.paths import StorePaths
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.permissions import READ, WRITE

#: Seconds between two notes of how far half and op messages are settled.
PROGRESS_SECONDS = 1.0
#: Seconds until a takeover that failed is tried again.
RETRY_DELAY = 1.0
#: Half messages that are kept in memory for a decision that comes soon, and how large at most.
MAX_REMEMBERED, MAX_REMEMBERED_BYTES = 1_024, 16_384
_HOUR_MS = 3_600_000

log = Logger()


class Transactions(Part):
    """Keeps half messages until their producers decide, and asks those who do not; while the broker
    is the master."""

    def __init__(
        self,
        host: Host,
        addresses: Addresses,
        role: RoleHolder,
        writing: Writing,
        tables: Tables,
        clients: Clients,
    ) -> None:
        self._host = host
        self._addresses = addresses
        self._writing = writing
        self._tables = tables
        self._clients = clients
        path = f"{StorePaths(host.store_config).config}/transactionMetrics"
        self.counts = HalfCounts(ConfigFile(host.files, path), host.now_ms)
        #: None unless the broker is the master and knows which half messages wait.
        self.settling: Settling | None = None
        self.checks: DecisionChecks | None = None
        self.committed = self.rolled_back = 0
        self._was_slave = False
        #: Where op messages were read from, and whether that pair is the first of the table.
        self._op_offset = 0
        self._is_first = False
        self._wanted = False
        #: Ends the master's waiting for its queues.
        self._stop_waiting = lambda: None
        self._taking_over: Deferred[Any] | None = None
        self._retry: IDelayedCall | None = None
        self._asking: list[Deferred[Settling]] = []
        self._last: Half | None = None
        #: Queue offset -> half messages that were appended and are in no queue yet.
        self._new: dict[int, Half] = {}
        #: Position in the log -> half messages that came last, which most decisions are about.
        self._recent: dict[int, Half] = {}
        store = writing.store
        self._requests = TransactionRequests(
            store,
            History(store, host.in_slices),
            host.config,
            host.now_ms,
            self._when_ready,
            self._recent,
        )
        writing.redirects.by_property(Stage.TRANSACTION, (TRAN_MSG,), self._redirect)
        store.on_arrival(self._arrived)
        writing.truncation.register(
            DerivedOffsets("settled half messages", self._rewind, self._save_offsets)
        )
        # At once: what it would append is refused from the moment when the role is another.
        role.on_end(self._pause)

    def handlers(self, role: Role) -> Mapping[int, Handler]:
        if role is Role.MASTER:
            return self._requests.handlers()
        remark = f"this broker is {role.value} and decides nothing: ask the master"
        code = ResponseCode.SLAVE_NOT_AVAILABLE
        if not role.copies_log:
            code = ResponseCode.SERVICE_NOT_AVAILABLE
        return refusing([RequestCode.END_TRANSACTION], code, remark) | refusing(
            [RequestCode.RESUME_CHECK_HALF_MESSAGE], ResponseCode.SYSTEM_ERROR, remark
        )

    def tables(self) -> Iterable[KeptTable]:
        seconds = self._host.config.transaction_metric_flush_interval / 1000
        return [KeptTable("the counts of half messages", self._load, self._save, seconds)]

    def periodic(self) -> Iterable[Periodic]:
        yield Periodic("noting what is settled", PROGRESS_SECONDS, self._note, {Role.MASTER})

    def ready(self, state: RoleState) -> None:
        if state.role is Role.MASTER:
            self._wanted = True
            # What is in no queue yet, as with a new master under controllers, may be decided there.
            self._stop_waiting = self._writing.dispatcher.when_dispatched(self._take_over)
        else:
            self._was_slave = state.role.copies_log

    def leave(self, state: RoleState) -> Deferred[Any] | None:
        self._pause()
        self._note()
        if self.settling is not None:
            self.settling.stop()
        self.settling = self.checks = self._last = None
        self._new.clear()
        self._recent.clear()
        asking, self._asking = self._asking, []
        for deferred in asking:
            deferred.errback(
                RequestError(ResponseCode.SERVICE_NOT_AVAILABLE, "the broker is no master any more")
            )
        return self._taking_over

    def _rewind(self, cut: LogCut) -> Iterator[None]:
        behind = SettledBehind(self._writing.store, cut)
        return behind.take_back(self._tables.offsets)

    def _save_offsets(self) -> Deferred[Any]:
        return write_progress(self._tables.offsets, self._writing.commit, self._host.in_thread)

    def runtime_info(self) -> Mapping[str, str]:
        waiting = 0 if self.settling is None else self.settling.book.pending
        return {"halfMessagesWaiting": str(waiting)}

    def metrics(self) -> Iterable[Metric]:
        for topic, count in self.counts.all().items():
            yield gauge("rocketmq_half_messages", count.count, {"topic": topic})
        yield counter("rocketmq_commit_messages_total", self.committed)
        yield counter("rocketmq_rollback_messages_total", self.rolled_back)

    # Half messages come

    def _redirect(self, draft: Draft) -> bool:
        if not draft.wants_transaction:
            return False
        make_half(draft.message, draft.properties)
        self._keep_last()
        self._last = Half(draft.message, draft.properties)
        return True

    def _keep_last(self) -> None:
        """The store gave it its place; one that was refused has the place of the next."""
        if self._last is not None:
            self._new[self._last.offset] = self._last
            self._last = None

    def _put(self, message: StoredMessage) -> None:
        """A copy that the broker itself appended."""
        half = Half(message)
        self._new[half.offset] = half

    def _arrived(self, runs: Sequence[Arrived]) -> None:
        for run in runs:
            if run.topic == HALF_TOPIC:
                self._keep_last()
                self._come(run.queue_offset, run.queue_offset + run.count)

    def _come(self, start: int, end: int) -> None:
        settling, checks = self.settling, self.checks
        for offset in range(start, end):
            half = self._new.pop(offset, None)
            if settling is None or checks is None:
                continue
            settling.book.learn(offset + 1)
            if half is None:
                # Not sent to this broker as it is now: a crash left it undispatched.
                checks.again(offset)
            elif settling.book.is_pending(offset):
                checks.add(half)
                self._remember(half)
                if not half.checks:
                    self.counts.add(half.real_topic, 1)

    def _remember(self, half: Half) -> None:
        recent = self._recent
        if len(half.message.body) <= MAX_REMEMBERED_BYTES:
            recent[half.message.physical_offset] = half
            if len(recent) > MAX_REMEMBERED:
                del recent[next(iter(recent))]

    # The master's work

    def _pause(self) -> None:
        self._wanted = False
        self._stop_waiting()
        if self.checks is not None:
            self.checks.stop()
        if self._retry is not None and self._retry.active():
            self._retry.cancel()

    def _when_ready(self) -> Settling | Deferred[Settling]:
        if self.settling is not None:
            return self.settling
        asking: Deferred[Settling] = Deferred()
        self._asking.append(asking)
        return asking

    def _take_over(self) -> None:
        config = self._host.config
        margin = 2 * (config.transaction_time_out + config.transaction_check_interval)
        takeover = Takeover(
            self._writing.store, self._tables.offsets, margin, was_slave=self._was_slave
        )
        self._taking_over = self._host.in_slices(self._while_wanted(takeover))
        self._taking_over.addCallbacks(self._ended, self._failed)

    def _while_wanted(self, takeover: Takeover) -> Generator[None, None, None]:
        for _ in takeover.steps():
            yield
            if not self._wanted:
                return
        self._took_over(takeover)

    def _ended(self, _result: Any) -> None:
        self._taking_over = None

    def _failed(self, failure: Any) -> None:
        self._taking_over = None
        log.failure("which half messages wait cannot be found out; trying again", failure=failure)
        if self._wanted:
            self._retry = self._host.reactor.callLater(RETRY_DELAY, self._take_over)

    def _took_over(self, takeover: Takeover) -> None:
        """In the same step as the last look, so that nothing comes between."""
        host, config = self._host, self._host.config
        self._was_slave = False
        book = takeover.book
        settling = Settling(
            book,
            self._writing.commit,
            self._writing.redirects,
            config,
            host.reactor,
            lambda: self._addresses.store_host,
            host.now_ms,
            self._settled,
            lambda offset: checks.again(offset),
            self._put,
        )
        checks = DecisionChecks(
            self._writing.store,
            book,
            settling,
            self._clients.registry,
            config,
            host.reactor,
            host.now_ms,
            lambda: host.store_config.file_reserved_time * _HOUR_MS,
        )
        self.settling, self.checks = settling, checks
        self._op_offset, self._is_first = takeover.op_offset, False
        for offset, state in takeover.found:
            settling.settle(offset, state)
        self.counts.replace(half.real_topic for half in takeover.waiting.values())
        checks.start()
        for half in takeover.waiting.values():
            checks.add(half)
        if takeover.waiting or takeover.found:
            log.info(
                "{n} half messages wait; {m} were settled without a note",
                n=len(takeover.waiting),
                m=len(takeover.found),
            )
        asking, self._asking = self._asking, []
        for deferred in asking:
            deferred.callback(settling)

    def _settled(self, half: Half, state: State) -> None:
        if state is State.GIVEN_UP:
            self._tables.topics.create_on_send_back(TRANS_CHECK_MAX_TIME_TOPIC, 1, READ | WRITE)
        self.counts.add(half.real_topic, -1)
        self.committed += state is State.COMMITTED
        self.rolled_back += state is State.ROLLED_BACK

    # What is kept

    def _note(self) -> None:
        """Says by the consumer offsets of stock's group how far all is settled."""
        if self.settling is None:
            return
        half_offset, op_offset = self.settling.book.advance()
        if self.settling.book.end == 0:
            return
        offsets = self._tables.offsets
        if not self._is_first:
            # It must not be newer in the file than the other one, which it follows.
            self._is_first = True
            offsets.commit(SYSTEM_GROUP, OP_HALF_TOPIC, QUEUE, self._op_offset, "the broker")
            offsets.put_first(SYSTEM_GROUP, OP_HALF_TOPIC)
        for topic, offset in ((HALF_TOPIC, half_offset), (OP_HALF_TOPIC, op_offset)):
            if offset is not None and offsets.of(SYSTEM_GROUP, topic).get(QUEUE) != offset:
                offsets.commit(SYSTEM_GROUP, topic, QUEUE, offset, "the broker")

    def _load(self) -> None:
        try:
            self.counts.load()
        except Exception:
            log.failure("the counts of half messages cannot be read; they are counted anew")

    def _save(self) -> Deferred[Any]:
        return write_progress(self.counts, self._writing.commit, self._host.in_thread)
