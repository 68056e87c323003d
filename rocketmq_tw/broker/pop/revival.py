"""What a master does with due check points; an acting master does what is in `escaping.py`.

Messages that were popped and not acknowledged in time are stored again in their group's retry topic
(docs/formats/pop.md, "Revival"). They are made in `retry_messages.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from rocketmq_tw.broker.assembly.host import Host
from rocketmq_tw.broker.pop.check_points import (
    CheckPointKey,
    ReviveLog,
    acknowledged_offsets,
    check_point_key,
)
from rocketmq_tw.broker.pop.pending import InFlight, PendingCheckPoint
from rocketmq_tw.broker.pop.remote_messages import Unreachable
from rocketmq_tw.broker.pop.retry_messages import RetryMessages
from rocketmq_tw.broker.pop.revive_queues import GRACE_MS, ReviveQueue, ReviveQueues
from rocketmq_tw.broker.tables.offsets.table import OffsetTable
from rocketmq_tw.broker.writing.sink import Attempt, attempt
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.runtime.scope import Scope
from rocketmq_tw.store.interface import IMessageStore
from rocketmq_tw.wire.bodies.pop import AckMsg, PopCheckPoint
from rocketmq_tw.wire.errors import RequestError

log = Logger()


class Revival(ReviveQueues):
    """Revives messages during a role as the master."""

    def __init__(
        self,
        host: Host,
        store: IMessageStore,
        offsets: OffsetTable,
        revive_log: ReviveLog,
        retries: RetryMessages,
        in_flight: InFlight,
        scope: Scope,
    ) -> None:
        super().__init__(host, store, offsets, revive_log, in_flight, scope)
        self._retries = retries
        #: Check points that were stored since the last round.
        self._new: set[CheckPointKey] = set()
        scope.on_end(revive_log.check_point_stored.add(self._stored))

    def popped_by(self, queue_id: int, ack: AckMsg) -> CheckPointKey | None:
        """Returns the name of the check point that a message waits in, where that is known: the one
        that the acknowledgement names, or one of another group or topic."""
        queue, key = self._queues.get(queue_id), check_point_key(ack, self._broker_name)
        offset = acknowledged_offsets(ack)[0]
        # Most are acknowledged soon, before the revive queue is read.
        if key in self._new:
            return key
        if queue is None:
            return None
        if queue.books.waits(key, offset):
            return key
        books = self._books_by_now(queue_id)
        return None if books is None else books.another(key, offset)

    def _stored(self, point: PopCheckPoint) -> None:
        self._new.add(check_point_key(point, self._broker_name))

    def _steps(self) -> Iterator[None]:
        self._new.clear()
        yield from super()._steps()

    def _due_by(self) -> int:
        return self._now_ms() - GRACE_MS

    def _deal_with(self, queue: ReviveQueue, pending: PendingCheckPoint) -> bool:
        retries, is_local = self._retries, pending.is_local
        wanted = is_local and retries.is_wanted(pending.point)
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
