"""Answers consumers that pop: pops, acknowledgements, peeks and notifications."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from twisted.internet.defer import Deferred

from rocketmq_tw.broker.assembly.handlers import merge_handlers
from rocketmq_tw.broker.assembly.host import Host
from rocketmq_tw.broker.filters.filters import MessageFilters
from rocketmq_tw.broker.pop.ack_requests import AckRequests, OrderlyAcks
from rocketmq_tw.broker.pop.check_points import PoppedQueue, ReviveLog
from rocketmq_tw.broker.pop.checks import PopChecks
from rocketmq_tw.broker.pop.held_pops import HeldPops
from rocketmq_tw.broker.pop.order import OrderBook, OrderWatch
from rocketmq_tw.broker.pop.peek_and_notify import PeekAndNotify
from rocketmq_tw.broker.pop.pending import InFlight
from rocketmq_tw.broker.pop.pop_requests import PopRequests
from rocketmq_tw.broker.pop.positions import Positions
from rocketmq_tw.broker.pop.queues import PopQueues
from rocketmq_tw.broker.pop.reads import PopReads, QueueReads
from rocketmq_tw.broker.pop.revive_part import Reviving
from rocketmq_tw.broker.role.holder import RoleHolder
from rocketmq_tw.broker.stats.part import Stats
from rocketmq_tw.broker.tables.part import Tables
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.message.names import popped_topic
from rocketmq_tw.metrics.instruments import Metric, gauge
from rocketmq_tw.net.interfaces import Handler


@dataclass(frozen=True)
class PopContext:
    """What the requests of consumers that pop use: the broker's host, role, log and tables, the log
    of check points, and the books on what is popped."""

    host: Host
    role: RoleHolder
    writing: Writing
    tables: Tables
    revive_log: ReviveLog
    order: OrderBook
    in_flight: InFlight


class PopService:
    """Answers the requests, and holds pops and notifications until a message comes.

    `reviving` knows what waits for acknowledgements, `may_begin` tells whether it is known where
    pops begin: until then they are held as if there were no message, and `resume_held` lets them go
    on.
    """

    def __init__(
        self,
        pop: PopContext,
        filters: MessageFilters,
        stats: Stats,
        reviving: Reviving,
        may_begin: Callable[[], bool],
    ) -> None:
        host, store, offsets, order = pop.host, pop.writing.store, pop.tables.offsets, pop.order
        config, now_ms = host.config, host.now_ms
        self._watch = OrderWatch(order, host.reactor, now_ms, self._wake)
        self.positions = Positions(config, store, offsets, order, pop.in_flight)
        self._pops = HeldPops(config, host.reactor, now_ms, host.elapsed_ms, host.in_slices)
        self._notifications = HeldPops(
            config,
            host.reactor,
            now_ms,
            host.elapsed_ms,
            host.in_slices,
            newest_first=True,
        )
        checks = PopChecks(config, pop.role, pop.tables, store)
        queues = PopQueues(config, pop.tables.topics)
        queue_reads = QueueReads(store, stats)
        reads = PopReads(
            config,
            queue_reads,
            self.positions,
            order,
            pop.in_flight,
            pop.revive_log,
            reviving.pending,
        )
        pops = PopRequests(host, checks, filters, queues, reads, self._pops, stats, may_begin)
        orderly = OrderlyAcks(offsets, order)
        acks = AckRequests(host, checks, store, pop.revive_log, orderly, reviving)
        peeks = PeekAndNotify(
            checks, queues, self.positions, queue_reads, order, self._notifications, stats
        )
        self.handlers: Mapping[int, Handler] = merge_handlers(
            [pops.handlers(), acks.handlers(), peeks.handlers()]
        )
        for held in (self._pops, self._notifications):
            store.on_arrival(held.arrived)
            pop.writing.dispatcher.on_dispatched(held.resume_woken)
        pop.in_flight.has_room.add(self._wake)
        offsets.was_reset.add(lambda group, topic, queue_id: self._wake((topic, group, queue_id)))

    def metrics(self) -> Iterable[Metric]:
        """Yields how many pops and notifications wait for a message, and their deadlines."""
        yield gauge("rocketmq_pop_requests_held", len(self._pops))
        yield gauge("rocketmq_pop_notifications_held", len(self._notifications))
        kept = self._pops.deadlines + self._notifications.deadlines
        yield gauge("rocketmq_pop_deadlines_kept", kept)

    def resume_held(self) -> None:
        """Lets pops go on that were held since it was not known where they begin."""
        self._pops.wake_all()
        self._pops.resume_woken()

    def answer_held(self) -> None:
        """Answers all held requests now. The role is over, so they are refused, and consumers may
        find what they wait for at another broker."""
        self._pops.resume_all()
        self._notifications.resume_all()
        self._watch.stop()

    def all_stored(self) -> Deferred[None]:
        """Fires once no check point of a pop is on its way into a log."""
        return self.positions.all_stored()

    def forget_positions(self) -> None:
        """Forgets the pops that are under way; the next master goes on from the offsets."""
        self.positions.clear()

    def _wake(self, queue: PoppedQueue) -> None:
        """Wakes requests for a queue of which there may be more: an orderly group may pop it again,
        fewer messages are in flight, or the group's offset was reset."""
        topic, group, queue_id = queue
        queue = popped_topic(topic, group), group, queue_id
        self._pops.wake(queue)
        self._notifications.wake(queue)
