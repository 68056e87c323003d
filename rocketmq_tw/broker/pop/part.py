"""Popping, as a part of the broker."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks

from rocketmq_tw.broker.assembly.handlers import merge_handlers, refusing
from rocketmq_tw.broker.assembly.host import Addresses, Host
from rocketmq_tw.broker.assembly.part import KeptTable, Part, Periodic
from rocketmq_tw.broker.assembly.truncation import DerivedOffsets, LogCut
from rocketmq_tw.broker.filters.part import Filters
from rocketmq_tw.broker.pop.ack_requests import AckRequests, OrderlyAcks
from rocketmq_tw.broker.pop.check_points import PoppedQueue, ReviveLog
from rocketmq_tw.broker.pop.checks import PopChecks, not_popped
from rocketmq_tw.broker.pop.held_pops import HeldPops
from rocketmq_tw.broker.pop.order import OrderBook, OrderWatch
from rocketmq_tw.broker.pop.peek_and_notify import PeekAndNotify
from rocketmq_tw.broker.pop.pending import InFlight
from rocketmq_tw.broker.pop.pop_requests import PopRequests
from rocketmq_tw.broker.pop.positions import Positions
from rocketmq_tw.broker.pop.queues import PopQueues
from rocketmq_tw.broker.pop.reads import PopReads, QueueReads
from rocketmq_tw.broker.pop.retry_messages import RetryMessages
from rocketmq_tw.broker.pop.revive import Revival
from rocketmq_tw.broker.pop.rewind import PopRewind
from rocketmq_tw.broker.role.holder import RoleHolder
from rocketmq_tw.broker.role.state import Role, RoleState
from rocketmq_tw.broker.stats.part import Stats
from rocketmq_tw.broker.tables.part import Tables
from rocketmq_tw.broker.tables.write_behind import write_progress
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.message.names import revive_topic
from rocketmq_tw.metrics.instruments import Metric, gauge
from rocketmq_tw.net.interfaces import Handler
from rocketmq_tw.wire.codes import ResponseCode

#: Seconds between two looks for queues of orderly groups that may be forgotten.
FORGET_SECONDS = 600.0


class Pop(Part):
    """Answers pops, acknowledgements and changes of invisible time while the broker is the master,
    and moves messages that are not acknowledged in time to the retry topics."""

    def __init__(
        self,
        host: Host,
        addresses: Addresses,
        role: RoleHolder,
        writing: Writing,
        tables: Tables,
        stats: Stats,
        filters: Filters,
    ) -> None:
        self._host = host
        self._role = role
        self._writing = writing
        self._tables = tables
        config, store, offsets = host.config, writing.store, tables.offsets

        def store_host() -> tuple[str, int]:
            return addresses.store_host

        self._revive_log = ReviveLog(
            revive_topic(config.broker_cluster_name), writing.sink, host.now_ms, store_host
        )
        self._retries = RetryMessages(config, store, tables, writing.sink, store_host)
        self._in_flight = InFlight()
        #: The work of the present role, while it is the master's.
        self.revival: Revival | None = None
        self.order = OrderBook(host.table_file("consumerOrderInfo"), host.now_ms)
        self._watch = OrderWatch(self.order, host.reactor, host.now_ms, self._wake)
        self._positions = Positions(config, store, offsets, self.order, self._in_flight)
        self.held = HeldPops(config, host.reactor, host.now_ms, host.in_slices)
        self.notified = HeldPops(config, host.reactor, host.now_ms, host.in_slices)
        checks = PopChecks(config, role, tables, store)
        queues = PopQueues(config, tables.topics)
        queue_reads = QueueReads(store, stats.pulled, host.reactor.seconds)
        reads = PopReads(
            config,
            queue_reads,
            self._positions,
            self.order,
            self._in_flight,
            self._revive_log,
            self.pending,
        )
        self._handlers = merge_handlers(
            [
                PopRequests(host, checks, filters.filters, queues, reads, self.held).handlers(),
                AckRequests(
                    host, checks, store, self._revive_log, OrderlyAcks(offsets, self.order)
                ).handlers(),
                PeekAndNotify(
                    checks,
                    queues,
                    self._positions,
                    queue_reads,
                    self.order,
                    self.notified,
                    host.now_ms,
                ).handlers(),
            ]
        )
        for held in (self.held, self.notified):
            store.on_arrival(held.arrived)
            writing.dispatcher.on_dispatched(held.resume_woken)
        offsets.was_reset.add(lambda group, topic, queue_id: self._wake((topic, group, queue_id)))
        for derived in (
            DerivedOffsets(
                "orderly pops", lambda cut: self.order.clamp(cut.first_gone), self._write_order
            ),
            DerivedOffsets("revived and popped messages", self._rewind, self._save_offsets),
        ):
            writing.truncation.register(derived)

    def pending(self) -> int:
        """How many check points wait for acknowledgements."""
        return 0 if self.revival is None else len(self.revival)

    def handlers(self, role: Role) -> Mapping[int, Handler]:
        if role is Role.MASTER:
            return self._handlers
        return refusing(self._handlers, ResponseCode.SERVICE_NOT_AVAILABLE, not_popped(role))

    def tables(self) -> Iterable[KeptTable]:
        seconds = self._host.config.flush_consumer_offset_interval / 1000
        return [KeptTable("the order of consumption", self.order.load, self._write_order, seconds)]

    def periodic(self) -> Iterable[Periodic]:
        seconds = self._host.config.revive_interval / 1000
        master = (Role.MASTER,)
        yield Periodic("the revival of messages", seconds, self._revive, master)
        yield Periodic(
            "forgetting queues of orderly groups", FORGET_SECONDS, self._forget_orders, master
        )

    def enter(self, state: RoleState) -> None:
        if state.role.copies_log:
            # Of the time when it was the master; it would hold queues back if it were that again.
            self.order.clear_all()

    def ready(self, state: RoleState) -> None:
        if state.role is Role.MASTER:
            self.revival = Revival(
                self._host,
                self._writing.store,
                self._tables.offsets,
                self._revive_log,
                self._retries,
                self._in_flight,
                self._role.scope,
            )

    @inlineCallbacks
    def leave(self, state: RoleState) -> Generator[Any, Any, None]:
        # Consumers may find what they wait for elsewhere; here they are refused from now on.
        self.held.resume_all()
        self.notified.resume_all()
        self._watch.stop()
        if self.revival is not None:
            yield self.revival.finished()
            yield self._writing.commit.flushed()
            self.revival.save_offsets()
            self.revival = None
        self._positions.clear()

    def _rewind(self, cut: LogCut) -> Iterator[None]:
        topic = revive_topic(self._host.config.broker_cluster_name)
        rewind = PopRewind(self._writing.store, self._tables.offsets, topic, cut)
        return rewind.steps(self._host.config.revive_queue_num)

    def _save_offsets(self) -> Deferred[None]:
        return write_progress(self._tables.offsets, self._writing.commit, self._host.in_thread)

    def metrics(self) -> Iterable[Metric]:
        yield gauge("rocketmq_pop_check_points_pending", self.pending())
        yield gauge("rocketmq_pop_requests_held", len(self.held))

    def _revive(self) -> Deferred[Any] | None:
        return None if self.revival is None else self.revival.revive()

    def _wake(self, queue: PoppedQueue) -> None:
        """Wakes requests for a queue of which there may be more: an orderly group may pop it again,
        or the group's offset was reset."""
        self.held.wake(queue)
        self.notified.wake(queue)

    def _write_order(self) -> Deferred[None]:
        return write_progress(self.order, self._writing.commit, self._host.in_thread)

    def _forget_orders(self) -> Deferred[Any]:
        return self._host.in_slices(self.order.forget_unused(self._is_there))

    def _is_there(self, topic: str, group: str, queue_id: int) -> bool:
        config = self._tables.topics.get(topic)
        return (
            config is not None
            and queue_id < config.read_queue_nums
            and group in self._tables.groups
        )
