"""Gives messages that were popped and not acknowledged in time to their group's retry topic.

Each revive queue is read in order: check points and acknowledgements meet in the books
(`pending.py`). Where the queue is read to its end and a check point is past its time, what is left
of it is stored again as a message of the retry topic; once that is in the log, the offset moves on.
A crash in between revives a message twice at most, and loses none.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any

from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.logger import Logger

from rocketmq_tw.broker.interfaces import Appended, IMessageStore
from rocketmq_tw.broker.pop.check_points import (
    ACK_TAG,
    BATCH_ACK_TAG,
    CHECK_POINT_TAG,
    REVIVE_GROUP,
    ReviveMessages,
    check_point_key,
)
from rocketmq_tw.broker.pop.pending import InFlight, PendingCheckPoint, PendingCheckPoints
from rocketmq_tw.broker.pop.retry_messages import RetryMessages, Unreachable
from rocketmq_tw.broker.tables.offsets.table import OffsetTable
from rocketmq_tw.broker.writing.commit import STORED, Commit
from rocketmq_tw.message import properties as props
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.message.properties import parse_properties
from rocketmq_tw.message.record import decode_records
from rocketmq_tw.wire.bodies.base import decode_body
from rocketmq_tw.wire.bodies.pop import AckMsg, BatchAckMsg, PopCheckPoint
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import BodyError, RequestError

#: Messages of a revive queue that are read at once, and their bytes.
BATCH_MESSAGES = 256
BATCH_BYTES = 1 << 20
#: Milliseconds past its time after which a check point is due: stock's, whose timer may bring an
#: acknowledgement that late.
GRACE_MS = 2_000
#: Milliseconds until what failed is tried again.
RETRY_MS = 1_000
#: Messages on their way to retry topics at once, of one revive queue.
MOST_REVIVING = 256

log = Logger()


class _Queue:
    """One revive queue."""

    __slots__ = ("books", "queue_id", "reviving")

    def __init__(self, queue_id: int, books: PendingCheckPoints) -> None:
        self.queue_id = queue_id
        self.books = books
        self.reviving = 0


class Revive:
    """Runs on the master only: `start` when the broker becomes one, `stop` when it is none any
    more. `in_flight` is told what the books have."""

    def __init__(
        self,
        store: IMessageStore,
        commit: Commit,
        offsets: OffsetTable,
        messages: ReviveMessages,
        retries: RetryMessages,
        in_flight: InFlight,
        now_ms: Callable[[], int],
        in_slices: Callable[[Iterator[None]], Deferred[Any]],
        broker_name: str,
    ) -> None:
        self._store = store
        self._commit = commit
        self._offsets = offsets
        self._messages = messages
        self._retries = retries
        self._now_ms = now_ms
        self._in_slices = in_slices
        self._broker_name = broker_name
        self._in_flight = in_flight
        self._queues: list[_Queue] = []
        self._running = False
        self._round: Deferred[Any] | None = None

    def __len__(self) -> int:
        """The check points that wait."""
        return sum(len(queue.books) for queue in self._queues)

    def start(self, queue_count: int) -> None:
        """Begins where the offsets are; the store is loaded by now."""
        topic = self._messages.topic
        self._in_flight.clear()
        self._queues = [
            _Queue(
                queue_id,
                PendingCheckPoints(
                    self._offsets.query(REVIVE_GROUP, topic, queue_id) + 1, self._in_flight
                ),
            )
            for queue_id in range(queue_count)
        ]
        self._running = True

    def pause(self) -> None:
        """Revives nothing any more, at once."""
        self._running = False

    @inlineCallbacks
    def stop(self) -> Generator[Any, Any, None]:
        """Revives nothing any more; fires once the offsets are behind what was revived."""
        self._running = False
        yield self._round
        yield self._commit.flushed()
        for queue in self._queues:
            self._keep(queue)
        self._queues = []

    def look(self) -> Deferred[Any] | None:
        """Takes in what is new, and revives what is due; the work of a `Periodic`."""
        if not self._running or self._round is not None:
            return None
        self._round = done = self._in_slices(self._steps(self._queues))

        def ended(result: Any) -> Any:
            self._round = None
            return result

        done.addBoth(ended)
        return done

    def _steps(self, queues: list[_Queue]) -> Iterator[None]:
        for queue in queues:
            yield
            while self._running and self._read(queue):
                yield
            while self._running and self._revive_next(queue):
                yield
            self._keep(queue)
        if self._running:
            self._in_flight.all_read()

    # Reading

    def _read(self, queue: _Queue) -> bool:
        """Takes in the next messages; False at the queue's end."""
        books, topic = queue.books, self._messages.topic
        if books.read_offset >= self._store.max_queue_offset(topic, queue.queue_id):
            return False
        read = self._store.read_queue(
            topic, queue.queue_id, books.read_offset, BATCH_MESSAGES, BATCH_BYTES
        )
        before = books.read_offset
        for message in decode_records(read.data):
            # At once: nothing is taken in twice if another cannot be.
            books.read_offset = message.queue_offset + 1
            try:
                self._take(books, message)
            except BodyError as error:
                log.error(
                    "message {offset} of {topic} {queue}, at {position} of the log, is passed over:"
                    " {error}",
                    offset=message.queue_offset,
                    topic=topic,
                    queue=queue.queue_id,
                    position=message.physical_offset,
                    error=error,
                )
        books.read_offset = max(books.read_offset, read.next_offset)
        return books.read_offset > before

    def _take(self, books: PendingCheckPoints, message: StoredMessage) -> None:
        tag = parse_properties(message.properties).get(props.TAGS)
        if tag == CHECK_POINT_TAG:
            point = decode_body(PopCheckPoint, message.body)
            if point.topic and point.group:
                key = check_point_key(point, self._broker_name)
                books.add(key, point, message.queue_offset)
        elif tag in (ACK_TAG, BATCH_ACK_TAG):
            if tag == ACK_TAG:
                ack = decode_body(AckMsg, message.body)
                acked = [ack.ack_offset]
            else:
                ack = decode_body(BatchAckMsg, message.body)
                acked = ack.ack_offsets
            books.acknowledge(check_point_key(ack, self._broker_name), acked)

    # Reviving

    def _revive_next(self, queue: _Queue) -> bool:
        """Revives what is left of the check point that is due longest; False where none is, or
        enough is under way."""
        if queue.reviving >= MOST_REVIVING:
            return False
        pending = queue.books.take_due(self._now_ms() - GRACE_MS)
        if pending is None:
            return False
        waiting = sorted(pending.waiting - pending.under_way)
        try:
            wanted = self._retries.is_wanted(pending.point)
            for offset in waiting:
                message = self._retries.make(pending.point, offset) if wanted else None
                if message is None:
                    self._settle(queue, pending, offset)
                elif not self._append(queue, pending, offset, message):
                    return False
        except Unreachable as error:
            return self._store_again(queue, pending, str(error))
        except RequestError as error:
            self._failed(queue, pending, error.remark)
            return False
        except Exception as error:
            log.failure("a check point cannot be revived")
            self._failed(queue, pending, repr(error))
            return False
        return True

    def _append(
        self, queue: _Queue, pending: PendingCheckPoint, offset: int, message: StoredMessage
    ) -> bool:
        """False where the store takes nothing now."""

        def done(code: ResponseCode, appended: Appended) -> None:
            queue.reviving -= 1
            pending.under_way.discard(offset)
            if code in STORED:
                self._settle(queue, pending, offset)
                self._keep(queue)
            else:
                self._failed(queue, pending, code.name)

        try:
            self._commit.append(message, done)
        except RequestError as error:
            if error.code == ResponseCode.MESSAGE_ILLEGAL:
                # It will never be taken, and what stands behind it must not wait for ever.
                log.error(
                    "message {offset} of {topic} {queue} cannot be given to {group} again: {why}",
                    offset=offset,
                    topic=pending.point.topic,
                    queue=pending.point.queue_id,
                    group=pending.point.group,
                    why=error.remark,
                )
                self._settle(queue, pending, offset)
                return True
            self._failed(queue, pending, error.remark)
            return False
        queue.reviving += 1
        pending.under_way.add(offset)
        return True

    def _settle(self, queue: _Queue, pending: PendingCheckPoint, offset: int) -> None:
        """This message is dealt with."""
        queue.books.settle(pending, [offset])

    def _failed(self, queue: _Queue, pending: PendingCheckPoint, why: str) -> None:
        if pending.reviving:
            log.warn(
                "what {group} popped of {topic} is not revived, trying again: {why}",
                group=pending.point.group,
                topic=pending.point.topic,
                why=why,
            )
            queue.books.put_back(pending, self._now_ms() - GRACE_MS + RETRY_MS)

    def _store_again(self, queue: _Queue, pending: PendingCheckPoint, why: str) -> bool:
        """The messages are another broker's, which cannot be asked now: check points for a later
        time take the place of this one, in the log before it goes."""
        for offset in sorted(pending.waiting - pending.under_way):
            later = self._messages.check_point(
                self._retries.later(pending.point, offset), queue.queue_id
            )
            if not self._append(queue, pending, offset, later):
                return False
        log.warn("{topic} is revived later: {why}", topic=pending.point.topic, why=why)
        return True

    def _keep(self, queue: _Queue) -> None:
        """The offset of what is dealt with follows."""
        topic, done = self._messages.topic, queue.books.done_offset - 1
        if done > self._offsets.query(REVIVE_GROUP, topic, queue.queue_id):
            self._offsets.commit(REVIVE_GROUP, topic, queue.queue_id, done, "revive")
