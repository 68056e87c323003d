"""Popping, as a part of the broker."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketmq_tw.broker.assembly.handlers import refusing
from rocketmq_tw.broker.assembly.host import Host
from rocketmq_tw.broker.assembly.part import KeptTable, Part, Periodic
from rocketmq_tw.broker.assembly.truncation import DerivedOffsets
from rocketmq_tw.broker.filters.part import Filters
from rocketmq_tw.broker.pop.check_points import revive_queue_ids
from rocketmq_tw.broker.pop.checks import not_popped
from rocketmq_tw.broker.pop.order import OrderBook
from rocketmq_tw.broker.pop.popped_since import PoppedSince
from rocketmq_tw.broker.pop.reviving import Reviving
from rocketmq_tw.broker.pop.service import PopContext, PopService
from rocketmq_tw.broker.role.holder import RoleHolder
from rocketmq_tw.broker.role.state import DELIVERING_ROLES, Role, RoleState
from rocketmq_tw.broker.stats.part import Stats
from rocketmq_tw.broker.tables.part import Tables
from rocketmq_tw.broker.tables.write_behind import write_progress
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.message.names import popped_topic
from rocketmq_tw.metrics.instruments import Metric
from rocketmq_tw.net.interfaces import Handler
from rocketmq_tw.runtime.scope import Scope
from rocketmq_tw.wire.bodies.pop import PutBack
from rocketmq_tw.wire.codes import RequestCode, ResponseCode

#: Seconds between two looks for queues of orderly groups that may be forgotten.
FORGET_SECONDS = 600.0

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
        self._since: PoppedSince | None = None
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
        self._service = PopService(pop, filters.filters, stats, reviving)

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
            FORGET_SECONDS,
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
            self._service.positions.are_known = False
            # A slave that acted may have gone on behind what this master had given out.
            return self._host.in_slices(self.order.forget_consumed(self._tables.offsets.query))
        return None

    def ready(self, state: RoleState) -> None:
        if state.role is Role.MASTER:
            scope = self._role.scope
            dispatched = partial(self._find_popped, scope)
            scope.on_end(self._writing.dispatcher.when_dispatched(dispatched))

    def _find_popped(self, scope: Scope) -> None:
        """Moves groups behind what was popped since their offsets were written or copied; then they
        pop."""
        store, offsets, topic = self._writing.store, self._tables.offsets, self._log.topic
        config, place = self._host.config, offsets.as_of.place
        if place is None:
            self._begin(scope, None)
            return
        since = self._since = PoppedSince(
            store, offsets, topic, config.broker_name, place, self._may_be_popped
        )
        queue_ids = revive_queue_ids(store, topic, config.revive_queue_num)

        def failed(failure: Failure) -> None:
            log.failure("what was popped last may be popped once more", failure)

        done = self._host.in_slices(scope.steps(since.steps(queue_ids)))
        done.addErrback(failed).addCallback(lambda _: self._begin(scope, since))

    def _begin(self, scope: Scope, since: PoppedSince | None) -> None:
        if scope.is_over:
            return
        self._since = None
        if since is not None and since.count:
            log.info(
                "in {count} queues groups go on behind what was popped since their offsets were"
                " written or copied",
                count=since.count,
            )
        offsets = self._tables.offsets
        offsets.as_of.begin(self._log_place)
        # The file has another place, or none.
        offsets.write_soon()
        self._service.begin()

    def _log_place(self) -> int | None:
        """Returns as of which place of the log groups' offsets are; None where nothing was popped
        ever."""
        if not self._writing.store.queue_ids(self._log.topic):
            return None
        return self._service.positions.log_place()

    def _note_put_back(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Notes in the log that a group was put back on purpose."""
        if self._since is not None:
            self._since.put_back(group, topic, queue_id)
        is_master = self._role.role is Role.MASTER
        if is_master and self._writing.store.queue_ids(self._log.topic):
            mark = PutBack(group=group, topic=topic or None, queue_id=queue_id, offset=offset)
            self._log.put_mark(mark).addErrback(
                lambda failure: log.failure("that {group} was put back", failure, group=group)
            )

    @inlineCallbacks
    def leave(self, state: RoleState) -> Generator[Any, Any, None]:
        self._tables.offsets.as_of.end()
        self._service.positions.are_known = True
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

    def _may_be_popped(self, topic: str, group: str, queue_id: int) -> bool:
        # The table may not have a retry topic yet in which messages are.
        if popped_topic(topic, group) != topic:
            return group in self._tables.groups
        return self._queue_exists(topic, group, queue_id)

    def _queue_exists(self, topic: str, group: str, queue_id: int) -> bool:
        config = self._tables.topics.get(topic)
        return (
            config is not None
            and queue_id < config.read_queue_nums
            and group in self._tables.groups
        )
