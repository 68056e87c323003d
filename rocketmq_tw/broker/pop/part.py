"""Popping, as a part of the broker."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.logger import Logger

from rocketmq_tw.broker.assembly.handlers import refusing
from rocketmq_tw.broker.assembly.host import Host
from rocketmq_tw.broker.assembly.part import KeptTable, Part, Periodic
from rocketmq_tw.broker.assembly.truncation import DerivedOffsets
from rocketmq_tw.broker.filters.part import Filters
from rocketmq_tw.broker.pop.catch_up import PopCatchUp, queue_exists
from rocketmq_tw.broker.pop.checks import not_popped
from rocketmq_tw.broker.pop.order import OrderBook
from rocketmq_tw.broker.pop.revive_part import Reviving
from rocketmq_tw.broker.pop.service import PopContext, PopService
from rocketmq_tw.broker.role.holder import RoleHolder
from rocketmq_tw.broker.role.state import DELIVERING_ROLES, Role, RoleState
from rocketmq_tw.broker.stats.part import Stats
from rocketmq_tw.broker.tables.part import Tables
from rocketmq_tw.broker.tables.write_behind import write_progress
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.metrics.instruments import Metric
from rocketmq_tw.net.interfaces import Handler
from rocketmq_tw.wire.bodies.pop import PutBack
from rocketmq_tw.wire.codes import RequestCode, ResponseCode

#: Seconds between two looks for queues of orderly groups that may be forgotten.
_FORGET_SECONDS = 600.0

log = Logger()


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
        self._role = role
        self._log = reviving.log
        #: The work of a new master, until it is known where pops begin.
        self._catch_up: PopCatchUp | None = None
        tables.offsets.was_put_back.add(self._note_put_back)
        self._writing = writing
        self._tables = tables
        self.order = OrderBook(host.table_file("consumerOrderInfo"), host.now_ms)
        pop = PopContext(host, role, writing, tables, reviving.log, self.order, reviving.in_flight)
        writing.truncation.register(
            DerivedOffsets(
                "orderly pops", lambda cut: self.order.clamp(cut.first_gone), self._write_order
            )
        )
        self._service = PopService(
            pop, filters.filters, stats, reviving, lambda: self._catch_up is None
        )

    def handlers(self, role: Role) -> Mapping[int, Handler]:
        handlers = self._service.handlers
        if role.delivers:
            return handlers
        refused = refusing(handlers, ResponseCode.SERVICE_NOT_AVAILABLE, not_popped(role))
        # Nothing is popped for it: a slave says as a master does that there is nothing to do.
        return {**refused, RequestCode.POP_ROLLBACK: handlers[RequestCode.POP_ROLLBACK]}

    def tables(self) -> Iterable[KeptTable]:
        seconds = self._host.config.flush_consumer_offset_interval / 1000
        return [KeptTable("the order of consumption", self.order.load, self._write_order, seconds)]

    def periodic(self) -> Iterable[Periodic]:
        yield Periodic(
            "forgetting queues of orderly groups",
            _FORGET_SECONDS,
            self._forget_orders,
            DELIVERING_ROLES,
        )

    def start(self) -> None:
        if self._writing.was_stopped:
            # The offsets are as they were at the end, or an administrator wrote others.
            self._tables.offsets.as_of.place = None

    def enter(self, state: RoleState) -> Deferred[Any] | None:
        if state.role is Role.SLAVE:
            # Of the time when it was the master; it would hold queues back if it were that again.
            self.order.clear_all()
        elif state.role is Role.MASTER:
            # A slave that acted may have gone on behind what this master had given out.
            return self._host.in_slices(self.order.forget_consumed(self._tables.offsets.query))
        return None

    def ready(self, state: RoleState) -> None:
        if state.role is Role.MASTER:
            self._catch_up = PopCatchUp(
                self._host, self._writing, self._tables, self._log.topic, self._role.scope
            )
            self._catch_up.begin(self._begin)

    def _begin(self) -> None:
        """Lets groups pop, whose offsets are known now."""
        self._catch_up = None
        offsets = self._tables.offsets
        offsets.as_of.begin(self._log_place)
        # The file has another place, or none.
        offsets.write_soon()
        self._service.resume_held()

    def _log_place(self) -> int | None:
        """Returns as of which place of the log groups' offsets are; None where nothing was popped
        ever."""
        if not self._writing.store.queue_ids(self._log.topic):
            return None
        return self._service.positions.log_place()

    def _note_put_back(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Notes in the log that a group was put back on purpose."""
        if self._catch_up is not None:
            self._catch_up.put_back(group, topic, queue_id)
        is_master = self._role.role is Role.MASTER
        if is_master and self._writing.store.queue_ids(self._log.topic):
            mark = PutBack(group=group, topic=topic or None, queue_id=queue_id, offset=offset)
            self._log.put_mark(mark).addErrback(
                lambda failure: log.failure(
                    "the log cannot note that group {group!r} was put back in {topic!r} {queue}:"
                    " the next master may move it on again",
                    failure,
                    group=group,
                    topic=topic,
                    queue=queue_id,
                )
            )

    @inlineCallbacks
    def leave(self, state: RoleState) -> Generator[Any, Any, None]:
        self._tables.offsets.as_of.end()
        self._catch_up = None
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
        exists = partial(queue_exists, self._tables)
        return self._host.in_slices(self.order.forget_unused(exists))
