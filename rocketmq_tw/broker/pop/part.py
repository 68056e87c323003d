"""Popping, as a part of the broker."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks

from rocketmq_tw.broker.assembly.handlers import refusing
from rocketmq_tw.broker.assembly.host import Host
from rocketmq_tw.broker.assembly.part import KeptTable, Part, Periodic
from rocketmq_tw.broker.assembly.truncation import DerivedOffsets
from rocketmq_tw.broker.filters.part import Filters
from rocketmq_tw.broker.pop.checks import not_popped
from rocketmq_tw.broker.pop.order import OrderBook
from rocketmq_tw.broker.pop.reviving import Reviving
from rocketmq_tw.broker.pop.service import PopContext, PopService
from rocketmq_tw.broker.role.holder import RoleHolder
from rocketmq_tw.broker.role.state import DELIVERING_ROLES, Role, RoleState
from rocketmq_tw.broker.stats.part import Stats
from rocketmq_tw.broker.tables.part import Tables
from rocketmq_tw.broker.tables.write_behind import write_progress
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.metrics.instruments import Metric
from rocketmq_tw.net.interfaces import Handler
from rocketmq_tw.wire.codes import ResponseCode

#: Seconds between two looks for queues of orderly groups that may be forgotten.
FORGET_SECONDS = 600.0


class Pop(Part):
    """Answers pops, acknowledgements and changes of invisible time while the broker is the master,
    or acts for it."""

    def __init__(
        self,
        host: Host,
        role: RoleHolder,
        writing: Writing,
        tables: Tables,
        stats: Stats,
        filters: Filters,
        reviving: Reviving,
    ) -> None:
        self._host = host
        self._writing = writing
        self._tables = tables
        self.order = OrderBook(host.table_file("consumerOrderInfo"), host.now_ms)
        pop = PopContext(host, role, writing, tables, reviving.log, self.order, reviving.in_flight)
        writing.truncation.register(
            DerivedOffsets(
                "orderly pops", lambda cut: self.order.clamp(cut.first_gone), self._write_order
            )
        )
        self._service = PopService(pop, filters.filters, stats.pulled, reviving.pending)

    def handlers(self, role: Role) -> Mapping[int, Handler]:
        handlers = self._service.handlers
        if role.delivers:
            return handlers
        return refusing(handlers, ResponseCode.SERVICE_NOT_AVAILABLE, not_popped(role))

    def tables(self) -> Iterable[KeptTable]:
        seconds = self._host.config.flush_consumer_offset_interval / 1000
        return [KeptTable("the order of consumption", self.order.load, self._write_order, seconds)]

    def periodic(self) -> Iterable[Periodic]:
        yield Periodic(
            "forgetting queues of orderly groups",
            FORGET_SECONDS,
            self._forget_orders,
            DELIVERING_ROLES,
        )

    def enter(self, state: RoleState) -> None:
        if state.role is Role.SLAVE:
            # Of the time when it was the master; it would hold queues back if it were that again.
            self.order.clear_all()

    @inlineCallbacks
    def leave(self, state: RoleState) -> Generator[Any, Any, None]:
        self._service.answer_held()
        if state.role is Role.ACTING_MASTER:
            # What is popped of now is answered once another broker has its check points: the
            # master that comes back begins behind it.
            yield self._service.all_stored()
            self.order.clear_all()
        self._service.forget_positions()

    def metrics(self) -> Iterable[Metric]:
        yield from self._service.metrics()

    def _write_order(self) -> Deferred[None]:
        return write_progress(self.order, self._writing.commit, self._host.in_thread)

    def _forget_orders(self) -> Deferred[Any]:
        return self._host.in_slices(self.order.forget_unused(self._queue_exists))

    def _queue_exists(self, topic: str, group: str, queue_id: int) -> bool:
        config = self._tables.topics.get(topic)
        return (
            config is not None
            and queue_id < config.read_queue_nums
            and group in self._tables.groups
        )
