"""Puts the messages of due check points into retry topics, on a master; an acting master does what
is in `escaping.py`.

Messages that were popped and not acknowledged in time are stored again in their group's retry topic
(docs/formats/pop.md, "Revival"). They are made in `retry_messages.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

from twisted.internet.defer import Deferred, TimeoutError, fail
from twisted.logger import Logger
from twisted.python.failure import Failure

from rocketmq_tw.broker.pop.check_points import (
    CheckPointKey,
    ReviveRecord,
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
from rocketmq_tw.broker.pop.unread import UnreadRecords
from rocketmq_tw.broker.writing.sink import Attempt, attempt
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.message.record import RecordHead
from rocketmq_tw.runtime.log_throttle import LogThrottleByKey
from rocketmq_tw.runtime.scope import Scope
from rocketmq_tw.runtime.waiters import Waiters
from rocketmq_tw.wire.bodies.pop import AckMsg, PopCheckPoint
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError

#: After so many ms the log says once more that a group's messages are dropped; of so many groups it
#: does meanwhile.
_SAY_AGAIN_MS, _MOST_SAID = 3_600_000, 1_000
#: Records that were put and not read; some 400 bytes each.
_MOST_UNREAD = 200_000
#: Requests that wait until it is known what waits, and for how many seconds.
_MOST_ASKING = 1_000
_KNOWN_SECONDS = 2.0

log = Logger()


class Revival(ReviveQueues):
    """Revives messages during a role as the master."""

    def __init__(self, tools: ReviveTools, retries: RetryMessages, scope: Scope) -> None:
        super().__init__(tools, scope)
        self._retries = retries
        self._elapsed_ms = tools.host.elapsed_ms
        #: Groups whose messages were dropped.
        self._said = LogThrottleByKey[str](_SAY_AGAIN_MS, _MOST_SAID)
        self._clock = tools.host.reactor
        self._unread = UnreadRecords(self._broker_name)
        #: Where the log ends of which only the queues tell: what was put before this role.
        self._log_end = tools.store.end_offset
        #: Revive queues whose books have all of that.
        self._known: set[int] = set()
        self._asking: dict[int, Waiters[None]] = {}
        #: Those that are read for whom asks, before the next round does it.
        self._looked_at: set[int] = set()
        #: Whether that failed, and no round has succeeded since.
        self._is_unreadable = False
        revive_log = tools.revive_log
        scope.on_end(revive_log.putting.add(self._putting))
        scope.on_end(revive_log.not_stored.add(self._unread.remove))
        scope.on_end(self._refuse_asking)

    def when_known(self, queue_id: int, ack: AckMsg) -> Deferred[None] | None:
        """See `ReviveQueues`."""
        if queue_id in self._known or self._scope.is_over or self._is_noted(ack):
            return None
        if sum(map(len, self._asking.values())) >= _MOST_ASKING:
            return fail(_still_reading())
        asking = self._asking.setdefault(queue_id, Waiters())
        known = asking.wait().addTimeout(_KNOWN_SECONDS, self._clock)
        self._look(queue_id)
        return known.addErrback(_late)

    def is_done(self, queue_id: int, ack: AckMsg) -> bool:
        """See `ReviveQueues`."""
        queue, key = self._queues.get(queue_id), check_point_key(ack, self._broker_name)
        if self._unread.is_acknowledged(key, ack.ack_offset):
            return True
        if self._unread.has_point(key) or queue_id not in self._known:
            return False
        return queue is None or not queue.books.waits(key, ack.ack_offset)

    def _is_noted(self, ack: AckMsg) -> bool:
        """Returns whether what was put in this role says what became of a message."""
        key = check_point_key(ack, self._broker_name)
        return self._unread.has_point(key) or self._unread.is_acknowledged(key, ack.ack_offset)

    def popped_by(self, queue_id: int, ack: AckMsg) -> CheckPointKey | None:
        """See `ReviveQueues`."""
        queue, key = self._queues.get(queue_id), check_point_key(ack, self._broker_name)
        offset = acknowledged_offsets(ack)[0]
        # Most are acknowledged soon, before the revive queue is read.
        if self._unread.has_point(key) or (queue is not None and queue.books.waits(key, offset)):
            return key
        if queue_id not in self._known:
            return None
        other = self._unread.another(key, offset)
        return queue.books.another(key, offset) if other is None and queue is not None else other

    def _putting(self, record: ReviveRecord) -> None:
        if len(self._unread) >= _MOST_UNREAD:
            # The queues are not read, or get nothing: they tell once they are.
            self._unread.clear()
            self._known.clear()
            self._log_end = self._store.end_offset
        self._unread.add(record)

    def _take_in(self, queue: ReviveQueue, head: RecordHead, body: bytes) -> ReviveRecord | None:
        record = super()._take_in(queue, head, body)
        if record is not None:
            self._unread.remove(record)
        return record

    def _steps(self) -> Iterator[None]:
        yield from super()._steps()
        self._is_unreadable = False

    def _look(self, queue_id: int) -> None:
        """Reads a revive queue to its end, where that may tell all."""
        has_all = self._store.dispatched_offset >= self._log_end
        if has_all and not self._is_unreadable and queue_id not in self._looked_at:
            self._looked_at.add(queue_id)
            looked = self._in_slices(self._scope.steps(self._read_whole(queue_id)))
            looked.addErrback(self._could_not_look)
            looked.addCallback(lambda _: self._looked_at.discard(queue_id))

    def _read_whole(self, queue_id: int) -> Iterator[None]:
        self._find_queues()
        queue = self._queues.get(queue_id)
        if queue is not None:
            while self._read(queue):
                yield
            self._read_to_end(queue)

    def _could_not_look(self, _: Failure) -> None:
        # The next round meets it too, and says so.
        self._is_unreadable = True

    def _read_to_end(self, queue: ReviveQueue) -> None:
        store, queue_id = self._store, queue.queue_id
        has_all = store.dispatched_offset >= self._log_end
        is_read = queue.books.read_offset >= store.max_queue_offset(self._topic, queue_id)
        if has_all and is_read and not self._scope.is_over:
            self._known.add(queue_id)
            asking = self._asking.pop(queue_id, None)
            if asking is not None:
                self._in_slices(asking.fire_in_steps(None))

    def _refuse_asking(self) -> None:
        reason = "the broker is no master any more"
        error = RequestError(ResponseCode.SERVICE_NOT_AVAILABLE, reason)
        for asking in self._asking.values():
            asking.fire(Failure(error))

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


def _still_reading() -> RequestError:
    return RequestError(
        ResponseCode.SYSTEM_BUSY,
        "what was popped before this broker became the master is being read: ask again",
    )


def _late(failure: Failure) -> None:
    if failure.check(TimeoutError):
        raise _still_reading()
    failure.raiseException()
