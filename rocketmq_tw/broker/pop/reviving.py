"""Messages are revived while the broker is the master: each of its roles has a `Revival`."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks

from rocketmq_tw.broker.assembly.part import Periodic
from rocketmq_tw.broker.assembly.truncation import DerivedOffsets, LogCut
from rocketmq_tw.broker.pop.check_points import REVIVE_GROUP, revive_queue_ids
from rocketmq_tw.broker.pop.context import PopContext
from rocketmq_tw.broker.pop.retry_messages import RetryMessages
from rocketmq_tw.broker.pop.revive import Revival
from rocketmq_tw.broker.pop.rewind import PopRewind
from rocketmq_tw.broker.role.state import Role
from rocketmq_tw.broker.tables.write_behind import write_progress
from rocketmq_tw.store.still_needed import place_of


class Reviving:
    """Begins and ends the revival with the master's role; its offsets go back where the log's end
    is cut off."""

    def __init__(self, pop: PopContext, retries: RetryMessages) -> None:
        self._pop = pop
        self._retries = retries
        self._revival: Revival | None = None
        pop.writing.store.retention.still_needed.register("popped messages", self._places)
        pop.writing.truncation.register(
            DerivedOffsets("revived and popped messages", self._rewind, self._save_offsets)
        )

    def pending(self) -> int:
        """Returns how many check points wait for acknowledgements."""
        return 0 if self._revival is None else len(self._revival)

    def kept(self) -> int:
        """Returns how many entries the books on check points have."""
        return 0 if self._revival is None else self._revival.kept

    def periodic(self) -> Periodic:
        """Returns the work that takes in check points and revives messages."""
        seconds = self._pop.host.config.revive_interval / 1000
        return Periodic("the revival of messages", seconds, self._revive, (Role.MASTER,))

    def begin(self) -> None:
        """Begins the revival of a role as the master."""
        pop = self._pop
        self._revival = Revival(
            pop.host,
            pop.writing.store,
            pop.tables.offsets,
            pop.revive_log,
            self._retries,
            pop.in_flight,
            pop.role.scope,
        )

    @inlineCallbacks
    def end(self) -> Generator[Any, Any, None]:
        """Ends the revival; fires once what it put into the log is flushed and its offsets say
        so."""
        if self._revival is not None:
            yield self._revival.finished()
            yield self._pop.writing.commit.flushed()
            self._revival.save_offsets()
            self._revival = None

    def _revive(self) -> Deferred[Any] | None:
        return None if self._revival is None else self._revival.revive()

    def _places(self) -> Iterator[int]:
        """Yields log offsets that still are needed: check points that are not dealt with, and the
        messages that wait for acknowledgements, as far as that is known here."""
        pop = self._pop
        store, topic = pop.writing.store, pop.revive_log.topic
        for queue_id in store.queue_ids(topic):
            done = pop.tables.offsets.query(REVIVE_GROUP, topic, queue_id)
            yield from place_of(store, topic, queue_id, done + 1)
        if self._revival is not None:
            yield from self._revival.places()

    def _rewind(self, cut: LogCut) -> Iterator[None]:
        pop = self._pop
        rewind = PopRewind(pop.writing.store, pop.tables.offsets, pop.revive_log.topic, cut)
        configured = pop.host.config.revive_queue_num
        return rewind.steps(revive_queue_ids(pop.writing.store, pop.revive_log.topic, configured))

    def _save_offsets(self) -> Deferred[None]:
        pop = self._pop
        return write_progress(pop.tables.offsets, pop.writing.commit, pop.host.in_thread)
