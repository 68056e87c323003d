"""Popping, as a part of the broker."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks

from rocketmq_tw.broker.assembly.handlers import merge_handlers, refusing
from rocketmq_tw.broker.assembly.host import Addresses, Host
from rocketmq_tw.broker.assembly.part import KeptTable, Metric, Part, Periodic
from rocketmq_tw.broker.assembly.truncation import DerivedOffsets, LogCut
from rocketmq_tw.broker.filters.part import Filters
from rocketmq_tw.broker.pop.ack_requests import AckRequests
from rocketmq_tw.broker.pop.check_points import ReviveMessages
from rocketmq_tw.broker.pop.checks import PopChecks, not_popped
from rocketmq_tw.broker.pop.cut import PoppedBehind
from rocketmq_tw.broker.pop.held_pops import HeldPops
from rocketmq_tw.broker.pop.look_requests import LookRequests
from rocketmq_tw.broker.pop.order import OrderBook
from rocketmq_tw.broker.pop.order_watch import OrderWatch
from rocketmq_tw.broker.pop.pending import InFlight
from rocketmq_tw.broker.pop.pop_requests import PopRequests
from rocketmq_tw.broker.pop.positions import PoppedQueue, Positions
from rocketmq_tw.broker.pop.reads import PopReads
from rocketmq_tw.broker.pop.retry_messages import RetryMessages
from rocketmq_tw.broker.pop.revive import Revive
from rocketmq_tw.broker.pop.timed_check_points import TimedCheckPoints
from rocketmq_tw.broker.role.holder import RoleHolder
from rocketmq_tw.broker.role.state import Role, RoleState
from rocketmq_tw.broker.stats.part import Stats
from rocketmq_tw.broker.tables.part import Tables
from rocketmq_tw.broker.tables.write_behind import write_progress
from rocketmq_tw.broker.timer.part import Timer
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.message.names import revive_topic
from rocketmq_tw.net.interfaces import Handler
from rocketmq_tw.wire.codes import ResponseCode

#: Seconds between two looks for orders in consumption that nobody needs any more.
FORGET_SECONDS = 600.0


class Pop(Part):
    """Answers pops and what belongs to them while the broker is the master, and gives what nobody
    acknowledged to the retry topics."""

    def __init__(
        self,
        host: Host,
        addresses: Addresses,
        role: RoleHolder,
        writing: Writing,
        tables: Tables,
        stats: Stats,
        timer: Timer,
        filters: Filters,
    ) -> None:
        self._host = host
        self._writing = writing
        self._tables = tables
        config, store, commit = host.config, writing.store, writing.commit
        topics, groups, offsets = tables.topics, tables.groups, tables.offsets

        def store_host() -> tuple[str, int]:
            return addresses.store_host

        def delivered_ms() -> int | None:
            checkpoint = timer.progress.checkpoint
            return None if checkpoint is None else checkpoint.read_ms

        messages = ReviveMessages(revive_topic(config.broker_cluster_name), host.now_ms, store_host)
        checks = PopChecks(config, role, tables, store)
        self.positions = Positions(offsets)
        self.order = OrderBook(host.table_file("consumerOrderInfo"), host.now_ms)
        self._watch = OrderWatch(self.order, host.reactor, host.now_ms, self._wake)
        self.held = HeldPops(config, host.reactor, host.now_ms, host.in_slices)
        self.notified = HeldPops(config, host.reactor, host.now_ms, host.in_slices)
        in_flight = InFlight()
        self.revive = Revive(
            store,
            commit,
            offsets,
            messages,
            RetryMessages(config, store, topics, groups, offsets, store_host),
            in_flight,
            host.now_ms,
            host.in_slices,
            config.broker_name,
        )
        self._timed = TimedCheckPoints(
            store,
            commit,
            offsets,
            messages.topic,
            config.revive_queue_num,
            host.now_ms,
            delivered_ms,
        )
        #: Whether no timed check point of another broker is left, in this role.
        self._has_taken_over = False
        reads = PopReads(
            config,
            store,
            offsets,
            self.positions,
            self.order,
            in_flight,
            stats.pulled,
            self._watch.watch,
            host.reactor.seconds,
        )
        self._handlers = self._requests(checks, messages, reads, stats, filters)
        for held in (self.held, self.notified):
            store.on_arrival(held.arrived)
            writing.dispatcher.on_dispatched(held.resume_woken)
        offsets.on_reset(lambda group, topic, queue_id: self._wake((topic, group, queue_id)))
        # At once: what it would append is refused from the moment when the role is another.
        role.on_end(self.revive.pause)
        for derived in (
            DerivedOffsets(
                "orderly pops", lambda cut: self.order.clamp(cut.first_gone), self._write_order
            ),
            DerivedOffsets("revived and popped messages", self._rewind, self._save_offsets),
        ):
            writing.truncation.register(derived)

    def _requests(
        self,
        checks: PopChecks,
        messages: ReviveMessages,
        reads: PopReads,
        stats: Stats,
        filters: Filters,
    ) -> Mapping[int, Handler]:
        host, commit, store = self._host, self._writing.commit, self._writing.store
        config, topics, offsets = host.config, self._tables.topics, self._tables.offsets
        return merge_handlers(
            [
                PopRequests(
                    config,
                    checks,
                    filters.filters,
                    reads,
                    self.positions,
                    self.held,
                    commit,
                    messages,
                    topics,
                    host.now_ms,
                    self.revive.__len__,
                ).handlers(),
                AckRequests(
                    config,
                    host.store_config,
                    checks,
                    store,
                    commit,
                    messages,
                    offsets,
                    self.order,
                    host.now_ms,
                    self._watch.watch,
                ).handlers(),
                LookRequests(
                    config,
                    checks,
                    store,
                    topics,
                    reads,
                    self.order,
                    self.held,
                    self.notified,
                    host.now_ms,
                    stats.pulled,
                    host.reactor.seconds,
                ).handlers(),
            ]
        )

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
        yield Periodic("the revival of messages", seconds, self.revive.look, master)
        yield Periodic("passing over timed messages", seconds, self._pass_over, master)
        yield Periodic("forgetting orders", FORGET_SECONDS, self._forget_orders, master)

    @inlineCallbacks
    def enter(self, state: RoleState) -> Generator[Any, Any, None]:
        if state.role is not Role.MASTER:
            return
        if self._timed.is_behind:
            # Before anyone acknowledges what the timer still holds.
            yield self._host.in_slices(self._timed.take_over())
        self._has_taken_over = not self._timed.is_behind

    def ready(self, state: RoleState) -> None:
        if state.role is Role.MASTER:
            self.revive.start(self._host.config.revive_queue_num)

    @inlineCallbacks
    def leave(self, state: RoleState) -> Generator[Any, Any, None]:
        # Who waits may find what it wants elsewhere; here it is refused from now on.
        self.held.resume_all()
        self.notified.resume_all()
        self._watch.stop()
        yield self.revive.stop()
        self._pass_over()
        self._has_taken_over = False
        self.positions.clear()

    def _rewind(self, cut: LogCut) -> Iterator[None]:
        topic = revive_topic(self._host.config.broker_cluster_name)
        behind = PoppedBehind(self._writing.store, self._tables.offsets, topic, cut)
        return behind.take_back(self._host.config.revive_queue_num)

    def _save_offsets(self) -> Deferred[None]:
        return write_progress(self._tables.offsets, self._writing.commit, self._host.in_thread)

    def metrics(self) -> Iterable[Metric]:
        yield Metric("rocketmq_pop_check_points_pending", len(self.revive))
        yield Metric("rocketmq_pop_requests_held", len(self.held))

    def _pass_over(self) -> None:
        if self._has_taken_over:
            self._timed.pass_over()

    def _wake(self, queue: PoppedQueue) -> None:
        """There may be more for who waits: an orderly group may pop the queue again, or the group
        begins elsewhere."""
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
