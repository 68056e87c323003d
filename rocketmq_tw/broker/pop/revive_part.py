"""The part of the broker that begins and ends the work on the revive queues with each role.

It does none of that work: a master revives what is due (`revival.py`), an acting master lets it
escape (`escaping.py`).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks

from rocketmq_tw.broker.assembly.host import Addresses, Host
from rocketmq_tw.broker.assembly.part import Part, Periodic
from rocketmq_tw.broker.assembly.truncation import DerivedOffsets, LogCut
from rocketmq_tw.broker.cluster.broker_client import BrokerClient
from rocketmq_tw.broker.pop.check_points import (
    REVIVE_GROUP,
    CheckPointKey,
    ReviveLog,
    revive_queue_ids,
)
from rocketmq_tw.broker.pop.escaping import EscapingCheckPoints
from rocketmq_tw.broker.pop.pending import InFlight
from rocketmq_tw.broker.pop.remote_messages import RemoteMessages
from rocketmq_tw.broker.pop.retry_messages import RetryMessages
from rocketmq_tw.broker.pop.revival import Revival
from rocketmq_tw.broker.pop.revive_counts import ReviveCounts
from rocketmq_tw.broker.pop.revive_queues import ReviveQueues, ReviveTools
from rocketmq_tw.broker.pop.rewind import PopRewind
from rocketmq_tw.broker.role.holder import RoleHolder
from rocketmq_tw.broker.role.state import DELIVERING_ROLES, Role, RoleState
from rocketmq_tw.broker.tables.part import Tables
from rocketmq_tw.broker.tables.write_behind import write_progress
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.message.names import revive_topic
from rocketmq_tw.metrics.instruments import Metric, gauge
from rocketmq_tw.store.still_needed import place_of
from rocketmq_tw.wire.bodies.pop import AckMsg


class Reviving(Part):
    """Moves messages that are not acknowledged in time to the retry topics, while the broker is the
    master, or acts for it: then by way of another master. The offsets of the revive group go back
    where the log's end is cut off."""

    def __init__(
        self,
        host: Host,
        addresses: Addresses,
        role: RoleHolder,
        writing: Writing,
        tables: Tables,
        brokers: BrokerClient,
    ) -> None:
        def store_host() -> tuple[str, int]:
            return addresses.store_host

        self._host = host
        self._role = role
        self._writing = writing
        self._store = writing.store
        self._offsets = tables.offsets
        topic = revive_topic(host.config.broker_cluster_name)
        counts = ReviveCounts(is_monitored=host.is_monitored)
        self.log = ReviveLog(topic, writing.sink, host.now_ms, store_host, counts)
        tables.topics.removed.add(counts.forget_topics)
        tables.groups.removed.add(counts.forget_groups)
        self.in_flight = InFlight()
        remote = RemoteMessages(brokers)
        self._retries = RetryMessages(
            host.config, writing.store, tables, writing.sink, store_host, remote
        )
        self._queues: ReviveQueues | None = None
        writing.store.retention.still_needed.register("popped messages", self._places)
        writing.truncation.register(
            DerivedOffsets("revived and popped messages", self._rewind, self._save_offsets)
        )

    def pending(self) -> int:
        """Returns how many check points wait for acknowledgements."""
        return 0 if self._queues is None else len(self._queues)

    def when_known(self, queue_id: int, ack: AckMsg) -> Deferred[None] | None:
        """Returns None where it is known what became of a popped message, whose check point is in
        this revive queue; else, mostly as a role begins, what fires once it is. It fails with
        `RequestError` where that takes some seconds, or the role ends."""
        return None if self._queues is None else self._queues.when_known(queue_id, ack)

    def is_done(self, queue_id: int, ack: AckMsg) -> bool:
        """Returns whether it is known that a popped message, whose check point is in this revive
        queue, was acknowledged or stored again. Of what an acting master gives to another broker
        nothing is known."""
        return self._queues is not None and self._queues.is_done(queue_id, ack)

    def popped_by(self, queue_id: int, ack: AckMsg) -> CheckPointKey | None:
        """Returns the name of the check point that a popped message waits in, where that is known:
        the one that the acknowledgement names, or one of another group or topic."""
        return None if self._queues is None else self._queues.popped_by(queue_id, ack)

    def periodic(self) -> Iterable[Periodic]:
        seconds = self._host.config.revive_interval / 1000
        yield Periodic("the revival of messages", seconds, self._revive, DELIVERING_ROLES)

    def ready(self, state: RoleState) -> None:
        tools = ReviveTools(self._host, self._store, self._offsets, self.log, self.in_flight)
        if state.role is Role.MASTER:
            self._queues = Revival(tools, self._retries, self._role.scope)
        elif state.role is Role.ACTING_MASTER:
            self._queues = EscapingCheckPoints(tools, self._role.scope)
            # Before anything of it is acknowledged.
            self._queues.revive()

    @inlineCallbacks
    def leave(self, state: RoleState) -> Generator[Any, Any, None]:
        if self._queues is not None:
            yield self._queues.finished()
            if state.role is Role.ACTING_MASTER:
                # The offsets say what another broker has, to a master that comes back too.
                yield self._queues.all_put()
            yield self._writing.commit.flushed()
            self._queues.save_offsets()
            self._queues = None

    def metrics(self) -> Iterable[Metric]:
        kept = 0 if self._queues is None else self._queues.kept
        yield gauge("rocketmq_pop_check_points_pending", self.pending())
        yield gauge("rocketmq_pop_check_points_kept", kept)
        if self._queues is not None:
            for queue_id, messages, age_ms in self._queues.behind():
                # Stock's name with stock's unit, though it is a number of messages.
                labels = {"queue_id": str(queue_id)}
                yield gauge("rocketmq_pop_revive_lag", messages, labels, unit="milliseconds")
                yield gauge("rocketmq_pop_revive_latency", age_ms, labels, unit="milliseconds")
        yield from self.log.counts.metrics()

    def _revive(self) -> Deferred[Any] | None:
        return None if self._queues is None else self._queues.revive()

    def _places(self) -> Iterator[int]:
        """Yields log offsets that still are needed: check points that are not dealt with, and the
        messages that wait for acknowledgements, as far as that is known here."""
        store, topic = self._store, self.log.topic
        for queue_id in store.queue_ids(topic):
            done = self._offsets.query(REVIVE_GROUP, topic, queue_id)
            yield from place_of(store, topic, queue_id, done + 1)
        if self._queues is not None:
            yield from self._queues.places()

    def _rewind(self, cut: LogCut) -> Iterator[None]:
        config, topic = self._host.config, self.log.topic
        rewind = PopRewind(self._store, self._offsets, topic, config.broker_name, cut)
        return rewind.steps(revive_queue_ids(self._store, topic, config.revive_queue_num))

    def _save_offsets(self) -> Deferred[None]:
        return write_progress(self._offsets, self._writing.commit, self._host.in_thread)
