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
#: Records that were put and not read; some 300 bytes each.
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
        #: Whether the books have all of that.
        self._knows = False
        self._asking = Waiters[None]()
        #: Reads on for those that ask, before the next round does.
        self._looking: Deferred[None] | None = None
        revive_log = tools.revive_log
        scope.on_end(revive_log.putting.add(self._putting))
        scope.on_end(revive_log.not_stored.add(self._unread.remove))
        scope.on_end(self._refuse_asking)

    def when_known(self) -> Deferred[None] | None:
        """See `ReviveQueues`."""
        if self._knows or self._scope.is_over:
            return None
        if len(self._asking) >= _MOST_ASKING:
            return fail(_still_reading())
        known = self._asking.wait().addTimeout(_KNOWN_SECONDS, self._clock)
        if self._looking is None and self._store.dispatched_offset >= self._log_end:
            looking = self._looking = self._in_slices(self._scope.steps(self._look()))
            looking.addErrback(self._look_failed).addCallback(self._looked)
        return known.addErrback(_late)

    def is_done(self, queue_id: int, ack: AckMsg) -> bool:
        """See `ReviveQueues`."""
        queue, key = self._queues.get(queue_id), check_point_key(ack, self._broker_name)
        if not self._knows:
            return False
        if self._unread.is_acknowledged(key, ack.ack_offset):
            return True
        if self._unread.has_point(key):
            return False
        return queue is None or not queue.books.waits(key, ack.ack_offset)

    def popped_by(self, queue_id: int, ack: AckMsg) -> CheckPointKey | None:
        """See `ReviveQueues`."""
        queue, key = self._queues.get(queue_id), check_point_key(ack, self._broker_name)
        offset = acknowledged_offsets(ack)[0]
        # Most are acknowledged soon, before the revive queue is read.
        if self._unread.has_point(key) or (queue is not None and queue.books.waits(key, offset)):
            return key
        if not self._knows:
            return None
        other = self._unread.another(key, offset)
        return queue.books.another(key, offset) if other is None and queue is not None else other

    def _putting(self, record: ReviveRecord) -> None:
        if len(self._unread) >= _MOST_UNREAD:
            # The queues are not read, or get nothing: they tell once they are.
            self._unread.clear()
            self._knows, self._log_end = False, self._store.end_offset
        self._unread.add(record)

    def _take_in(self, queue: ReviveQueue, head: RecordHead, body: bytes) -> ReviveRecord | None:
        record = super()._take_in(queue, head, body)
        if record is not None:
            self._unread.remove(record)
        return record

    def _steps(self) -> Iterator[None]:
        yield from self._and_know(super()._steps())

    def _look(self) -> Iterator[None]:
        yield from self._and_know(self._read_all())

    def _read_all(self) -> Iterator[None]:
        self._find_queues()
        for queue in list(self._queues.values()):
            while self._read(queue):
                yield

    def _and_know(self, steps: Iterator[None]) -> Iterator[None]:
        """Notes what is known once `steps` have read the revive queues."""
        log_end = self._log_end
        has_all = self._store.dispatched_offset >= log_end
        yield from steps
        if has_all and log_end == self._log_end and not self._scope.is_over:
            self._knows = True
            yield from self._asking.fire_in_steps(None)

    def _look_failed(self, failure: Failure) -> None:
        log.failure("what was popped cannot be read; the next round tries again", failure=failure)

    def _looked(self, _: None) -> None:
        self._looking = None

    def _refuse_asking(self) -> None:
        reason = "the broker is no master any more"
        self._asking.fire(Failure(RequestError(ResponseCode.SERVICE_NOT_AVAILABLE, reason)))

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
