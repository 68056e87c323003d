"""Transactional messages, as a part of the broker."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.logger import Logger

from rocketmq_tw.broker.assembly.handlers import refusing
from rocketmq_tw.broker.assembly.host import Addresses, ConfigFile, Host
from rocketmq_tw.broker.assembly.part import KeptTable, Part, Periodic
from rocketmq_tw.broker.assembly.truncation import DerivedOffsets
from rocketmq_tw.broker.clients.part import Clients
from rocketmq_tw.broker.cluster.broker_client import BrokerClient
from rocketmq_tw.broker.role.holder import RoleHolder
from rocketmq_tw.broker.role.state import DELIVERING_ROLES, Role, RoleState
from rocketmq_tw.broker.tables.part import Tables
from rocketmq_tw.broker.tables.write_behind import write_progress
from rocketmq_tw.broker.transactions.acting import ActingWork
from rocketmq_tw.broker.transactions.counts import HalfCounts
from rocketmq_tw.broker.transactions.halves import Half, make_half
from rocketmq_tw.broker.transactions.progress import SettledProgress
from rocketmq_tw.broker.transactions.role_work import Kept, RoleWork
from rocketmq_tw.broker.transactions.work import TransactionWork
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.broker.writing.redirects import Draft, Stage
from rocketmq_tw.files.interface import NoFileError
from rocketmq_tw.message.properties import TRAN_MSG
from rocketmq_tw.metrics.instruments import Metric
from rocketmq_tw.net.interfaces import Handler
from rocketmq_tw.store.paths import StorePaths
from rocketmq_tw.wire.codes import RequestCode, ResponseCode

#: Seconds between two notes of how far half and op messages are settled.
PROGRESS_SECONDS = 1.0

log = Logger()


class Transactions(Part):
    """Keeps half messages until their producers decide (request 37), and asks those who do not
    (39), in a role that delivers."""

    def __init__(
        self,
        host: Host,
        addresses: Addresses,
        role: RoleHolder,
        writing: Writing,
        tables: Tables,
        clients: Clients,
        brokers: BrokerClient,
    ) -> None:
        self._host = host
        self._addresses = addresses
        self._role = role
        self._writing = writing
        self._tables = tables
        self._clients = clients
        self._brokers = brokers
        path = f"{StorePaths(host.store_config).config}/transactionMetrics"
        self.counts = HalfCounts(ConfigFile(host.files, path), host.now_ms)
        tables.topics.removed.add(self.counts.forget_figures)
        self.progress = SettledProgress(tables.offsets, writing.store)
        #: What it does in the present role, where that delivers, from `enter` to `leave`.
        self.work: RoleWork[Any] | None = None
        writing.redirects.by_property(Stage.TRANSACTION, (TRAN_MSG,), self._redirect)
        writing.store.retention.still_needed.register("half messages", self.progress.places)
        writing.truncation.register(
            DerivedOffsets("settled half messages", self.progress.rewind, self._save_offsets)
        )

    def _redirect(self, draft: Draft) -> bool:
        """Makes half messages of transactional sends; see `Redirects`."""
        if not draft.wants_transaction:
            return False
        make_half(draft.message, draft.properties)
        if self.work is not None:
            self.work.sent(Half(draft.message, draft.properties))
        return True

    # Life

    def enter(self, state: RoleState) -> None:
        kept, scope = Kept(self.progress, self.counts), self._role.scope
        if state.role is Role.MASTER:
            self.progress.moved_until = 0
            self.work = TransactionWork(
                self._host,
                self._addresses,
                self._writing,
                self._clients.registry,
                self._tables.topics,
                kept,
                scope,
            )
        elif state.role is Role.ACTING_MASTER:
            self.work = ActingWork(self._host, self._writing, self._brokers, kept, scope)
        else:
            self.counts.replace(())

    def ready(self, state: RoleState) -> None:
        if state.role.copies_log:
            self.progress.follow()
        if self.work is not None:
            self.work.begin()

    @inlineCallbacks
    def leave(self, state: RoleState) -> Generator[Deferred[Any], Any, None]:
        work, self.work = self.work, None
        if work is not None:
            yield work.end()
        if state.role is Role.ACTING_MASTER:
            # A slave again, whose master tells how far all is settled, and what waits.
            self.progress.follow()
            self.counts.replace(())

    def tables(self) -> Iterable[KeptTable]:
        seconds = self._host.config.transaction_metric_flush_interval / 1000
        yield KeptTable("the counts of half messages", self._load, self._save, seconds)

    def _load(self) -> None:
        try:
            self.counts.load()
        except NoFileError:
            # They could not be written either.
            raise
        except Exception:
            log.failure("the counts of half messages cannot be read; they are counted anew")

    def _save(self) -> Deferred[Any]:
        return write_progress(self.counts, self._writing.commit, self._host.in_thread)

    def _save_offsets(self) -> Deferred[Any]:
        return write_progress(self._tables.offsets, self._writing.commit, self._host.in_thread)

    def periodic(self) -> Iterable[Periodic]:
        yield Periodic("noting what is settled", PROGRESS_SECONDS, self._note, DELIVERING_ROLES)

    def _note(self) -> None:
        if self.work is not None:
            self.work.note()

    # Requests and figures

    def handlers(self, role: Role) -> Mapping[int, Handler]:
        remark = f"this broker is {role.words} and decides nothing: ask the master"
        code = ResponseCode.SERVICE_NOT_AVAILABLE
        if role.copies_log:
            code = ResponseCode.SLAVE_NOT_AVAILABLE
        refused = refusing([RequestCode.END_TRANSACTION], code, remark) | refusing(
            [RequestCode.RESUME_CHECK_HALF_MESSAGE], ResponseCode.SYSTEM_ERROR, remark
        )
        return refused | ({} if self.work is None else self.work.handlers())

    def runtime_info(self) -> Mapping[str, str]:
        pending = 0 if self.work is None else self.work.pending
        return {"halfMessagesWaiting": str(pending)}

    def metrics(self) -> Iterable[Metric]:
        return self.counts.metrics(with_waiting=self.work is not None)
