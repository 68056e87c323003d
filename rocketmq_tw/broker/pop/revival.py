"""Puts the messages of due check points into retry topics, on a master; an acting master does what
is in `escaping.py`.

Messages that were popped and not acknowledged in time are stored again in their group's retry topic
(docs/formats/pop.md, "Revival"). They are made in `retry_messages.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger

from rocketmq_tw.broker.pop.check_points import (
    CheckPointKey,
    acknowledged_offsets,
    check_point_key,
)
from rocketmq_tw.broker.pop.pending import PendingCheckPoint
from rocketmq_tw.broker.pop.remote_messages import Unreachable
from rocketmq_tw.broker.pop.retry_messages import RetryMessages
from rocketmq_tw.broker.pop.revive_queues import (
    GRACE_MS,
    ReviveQueue,
    ReviveQueues,
    ReviveTools,
)
from rocketmq_tw.broker.writing.sink import Attempt, attempt
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.runtime.log_throttle import LogThrottleByKey
from rocketmq_tw.runtime.scope import Scope
from rocketmq_tw.wire.bodies.pop import AckMsg, PopCheckPoint
from rocketmq_tw.wire.errors import RequestError

#: After so many ms the log says once more that a group's messages are dropped; of so many groups it
#: does meanwhile.
_SAY_AGAIN_MS, _MOST_SAID = 3_600_000, 1_000
#: Reads of a revive queue in one go, for a request.
_READS = 4

log = Logger()


class Revival(ReviveQueues):
    """Revives messages during a role as the master."""

    def __init__(self, tools: ReviveTools, retries: RetryMessages, scope: Scope) -> None:
        super().__init__(tools, scope)
        self._retries = retries
        self._elapsed_ms = tools.host.elapsed_ms
        #: Groups whose messages were dropped.
        self._said = LogThrottleByKey[str](_SAY_AGAIN_MS, _MOST_SAID)
        self._when_dispatched = tools.when_dispatched
        #: Check points that were stored since the last round began, and in the one before.
        self._new: set[CheckPointKey] = set()
        self._before: set[CheckPointKey] = set()
        scope.on_end(tools.revive_log.check_point_stored.add(self._stored))

    def when_read(self, queue_id: int) -> Deferred[None] | None:
        """See `ReviveQueues`."""
        store = self._store
        is_dispatched = store.dispatched_offset >= store.written_offset
        if self._scope.is_over or (is_dispatched and self._is_read(queue_id)):
            return None
        # A check point, or its acknowledgement, may be on the way into the queue.
        dispatched = succeed(None) if is_dispatched else self._dispatched()
        steps = self._scope.steps(self._rest_of(queue_id))
        return dispatched.addCallback(lambda _: self._in_slices(steps))

    def is_done(self, queue_id: int, ack: AckMsg) -> bool:
        """See `ReviveQueues`."""
        queue, key = self._queues.get(queue_id), check_point_key(ack, self._broker_name)
        return queue is not None and not queue.books.waits(key, ack.ack_offset)

    def is_waiting(self, queue_id: int, ack: AckMsg) -> bool:
        """See `ReviveQueues`."""
        queue, key = self._queues.get(queue_id), check_point_key(ack, self._broker_name)
        # Most are acknowledged soon, before the revive queue is read.
        if key in self._new or key in self._before:
            return True
        return queue is not None and queue.books.waits(key, acknowledged_offsets(ack)[0])

    def other_popper(self, queue_id: int, ack: AckMsg) -> CheckPointKey | None:
        """See `ReviveQueues`."""
        queue, key = self._queues.get(queue_id), check_point_key(ack, self._broker_name)
        return None if queue is None else queue.books.another(key, acknowledged_offsets(ack)[0])

    def _dispatched(self) -> Deferred[None]:
        """Fires once all that the log has by now is in its queues, or the role is over."""
        dispatched: Deferred[None] = Deferred()

        def fire() -> None:
            stop()
            forget()
            dispatched.callback(None)

        stop = self._when_dispatched(fire)
        forget = self._scope.on_end(fire)
        return dispatched

    def _rest_of(self, queue_id: int) -> Iterator[None]:
        while not self._is_read(queue_id):
            yield

    def _is_read(self, queue_id: int) -> bool:
        """Reads on in a revive queue; returns whether there is no more in it."""
        if queue_id not in self._queues:
            self._find_queues()
        queue, end = self._queues.get(queue_id), self._store.max_queue_offset(self._topic, queue_id)
        for _ in range(_READS):
            if queue is None or queue.books.read_offset >= end or not self._read(queue):
                return True
        return False

    def _stored(self, point: PopCheckPoint) -> None:
        self._new.add(check_point_key(point, self._broker_name))

    def _steps(self) -> Iterator[None]:
        self._new, self._before = set(), self._new
        yield from super()._steps()
        self._before.clear()

    def _due_by(self) -> int:
        return self._now_ms() - GRACE_MS

    def _deal_with(self, queue: ReviveQueue, pending: PendingCheckPoint) -> bool:
        retries, is_local = self._retries, pending.is_local
        wanted = is_local and self._is_wanted(queue, pending)
        for offset in sorted(pending.waiting - pending.under_way):
            if not is_local:
                fetched = self._fetch_and_put(queue, pending.point, offset)
                if not self._put(queue, pending, [offset], Deferred.fromCoroutine(fetched)):
                    return False
                continue
            message = retries.make(pending.point, offset) if wanted else None
            if message is None:
                queue.books.settle(pending, [offset])
            elif not self._put(queue, pending, [offset], self._retry(pending.point, message)):
                return False
        return True

    def _is_wanted(self, queue: ReviveQueue, pending: PendingCheckPoint) -> bool:
        """Returns whether there is a group to which the messages may be given again."""
        point = pending.point

        def place() -> int:
            at = pending.revive_offset
            units = self._store.queue_units(self._topic, queue.queue_id, at, 1)
            return units[0].position if units else 0

        missing = self._retries.missing(point, place)
        if missing is not None and self._said.is_due(point.group or "", self._elapsed_ms()):
            log.warn(
                "what {group} popped of {topic} and did not acknowledge is not revived: this broker"
                " has no {missing}, it was deleted or cannot be made by its use",
                group=point.group,
                topic=point.topic,
                missing=missing,
            )
        return missing is None

    def _retry(self, point: PopCheckPoint, message: StoredMessage) -> Deferred[Attempt]:
        return attempt(self._revive_log.counts.retried(point, self._retries.put(message)))

    async def _fetch_and_put(
        self, queue: ReviveQueue, point: PopCheckPoint, offset: int
    ) -> Attempt:
        """Revives a message of another broker; where it cannot be had now, a check point for a
        later time takes it over, which is in the log before the present one is dealt with."""
        try:
            message = await self._retries.fetch(point, offset)
        except Unreachable as error:
            log.warn(
                "what {group} popped of {topic} is revived later: {why}",
                group=point.group,
                topic=point.topic,
                why=error,
            )
            later = self._retries.later(point, offset)
            return await attempt(self._revive_log.put_check_point(later, queue.queue_id))
        except RequestError as error:
            return Attempt(False, error.remark)
        return Attempt(True) if message is None else await self._retry(point, message)
