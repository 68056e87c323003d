"""The revive queues: read here in one role of the broker, but not what is done with check points.

That is in `revival.py` for a master, in `escaping.py` for an acting master. Each queue is read in
order: check points and acknowledgements meet in the books (`pending.py`). Where the queue is read
to its end, what is left of due check points is put into a log; once it is in there, the offset
moves on. A crash in between puts it twice at most, and loses none. Rules: docs/formats/pop.md,
"Revival".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger

from rocketmq_tw.broker.assembly.host import Host
from rocketmq_tw.broker.pop.check_points import (
    REVIVE_GROUP,
    CheckPointKey,
    ReviveLog,
    ReviveRecord,
    acknowledged_offsets,
    check_point_key,
    decode_revive_message,
    is_local,
    popped_distances,
    revive_queue_ids,
)
from rocketmq_tw.broker.pop.pending import (
    BEHIND_ALL,
    InFlight,
    PendingCheckPoint,
    PendingCheckPoints,
)
from rocketmq_tw.broker.tables.offsets.table import OffsetTable
from rocketmq_tw.broker.writing.sink import Attempt
from rocketmq_tw.message.record import RecordHead, heads_and_bodies
from rocketmq_tw.runtime.clock import is_ahead
from rocketmq_tw.runtime.retries import RETRY_USUAL_MS
from rocketmq_tw.runtime.scope import Scope
from rocketmq_tw.runtime.waiters import Waiters
from rocketmq_tw.store.interface import IMessageStore
from rocketmq_tw.store.queue_batches import next_batch
from rocketmq_tw.store.still_needed import place_of
from rocketmq_tw.wire.bodies.pop import AckMsg, PopCheckPoint
from rocketmq_tw.wire.errors import BodyError, RequestError

#: Milliseconds past its time after which a check point is due, as in stock, whose timer may bring
#: an acknowledgement that late.
GRACE_MS = 2_000
#: Seconds until a check point whose messages cannot be reached is due again, by how often it was
#: tried; the last one holds for all further times.
LATER_SECONDS = (10, 20, 30, *range(60, 601, 60), 1200, 1800, 3600, 7200)
#: Messages on their way to retry topics at once, of one revive queue.
MOST_REVIVING = 256

log = Logger()


class ReviveTools(NamedTuple):
    """What reviving has in every role."""

    host: Host
    store: IMessageStore
    offsets: OffsetTable
    revive_log: ReviveLog
    in_flight: InFlight


class ReviveQueue:
    """One revive queue."""

    __slots__ = ("books", "queue_id", "reviving")

    def __init__(self, queue_id: int, books: PendingCheckPoints) -> None:
        self.queue_id = queue_id
        self.books = books
        self.reviving = 0


class ReviveQueues:
    """The revive queues during the role of `scope`, from the offsets of the revive group on;
    `in_flight` is told what the books have. A subclass says what is due when, and what becomes of
    it."""

    def __init__(self, tools: ReviveTools, scope: Scope) -> None:
        host = tools.host
        self._now_ms = host.now_ms
        self._in_slices = host.in_slices
        self._config = host.config
        self._broker_name = host.config.broker_name
        self._store = tools.store
        self._offsets = tools.offsets
        self._revive_log = tools.revive_log
        self._topic = tools.revive_log.topic
        self._in_flight = tools.in_flight
        self._scope = scope
        #: When the last round began, in ms since 1970.
        self._began_ms = host.now_ms()
        self._in_flight.clear()
        self._configured = host.config.revive_queue_num
        self._queues: dict[int, ReviveQueue] = {}
        #: Whether all were read to their ends once.
        self._are_read = False
        self._round: Deferred[Any] | None = None
        self._put_all = Waiters[None]()

    def __len__(self) -> int:
        """Returns how many check points wait."""
        return sum(len(queue.books) for queue in self._queues.values())

    def places(self) -> Iterator[int]:
        """Yields where in the log the first popped message of each revive queue stands that waits;
        all of the log may be needed until the queues are read."""
        if not self._are_read:
            yield 0
        for queue in list(self._queues.values()):
            yield queue.books.first_place

    @property
    def kept(self) -> int:
        """How many entries the books have, also of check points that are dealt with."""
        return sum(queue.books.kept for queue in self._queues.values())

    def behind(self) -> Iterator[tuple[int, int, int]]:
        """Yields each revive queue with the number of its messages that are not dealt with, and the
        age in ms of the first of them; 0 where there is none."""
        store, topic = self._store, self._topic
        for queue_id in list(self._queues):
            done = self._offsets.query(REVIVE_GROUP, topic, queue_id) + 1
            messages = max(store.max_queue_offset(topic, queue_id) - done, 0)
            stored = store.store_time(topic, queue_id, done) if messages else 0
            yield queue_id, messages, max(self._now_ms() - stored, 0) if stored > 0 else 0

    def revive(self) -> Deferred[Any] | None:
        """Takes in what is new, and revives what is due; the work of a `Periodic`."""
        if self._scope.is_over or self._round is not None:
            return None
        self._round = done = self._in_slices(self._steps())

        def ended(result: Any) -> Any:
            self._round = None
            return result

        done.addBoth(ended)
        return done

    def finished(self) -> Deferred[Any]:
        """Fires once the round that is under way has ended."""
        return succeed(None) if self._round is None else self._round

    def all_put(self) -> Deferred[None]:
        """Fires once nothing is on its way into a log."""
        return self._put_all.wait() if self._is_putting else succeed(None)

    def when_known(self, queue_id: int, ack: AckMsg) -> Deferred[None] | None:
        """Returns None where `is_done` can be asked now; else what fires once it can: as a role
        begins, or where very much was put and not read, the revive queue has to be read. It fails
        with `RequestError` where that takes long, or the role ends."""
        return None

    def is_done(self, queue_id: int, ack: AckMsg) -> bool:
        """Returns whether it is known that nobody waits for an acknowledgement of this message any
        more, whose check point is in a revive queue: it was acknowledged, or stored again."""
        return False

    def popped_by(self, queue_id: int, ack: AckMsg) -> CheckPointKey | None:
        """Returns the name of the check point that a message waits in, where that is known: the one
        that the acknowledgement names, or one of another group or topic."""
        return None

    @property
    def _is_putting(self) -> bool:
        return any(queue.reviving for queue in self._queues.values())

    def save_offsets(self) -> None:
        """Moves the offsets of the revive group behind what is dealt with."""
        for queue in self._queues.values():
            self._save_offset(queue)

    def _all_books(self) -> Iterable[PendingCheckPoints]:
        """Returns all books there are now."""
        return [queue.books for queue in self._queues.values()]

    def _find_queues(self) -> None:
        """Begins with the revive queues that are not read yet."""
        for queue_id in revive_queue_ids(self._store, self._topic, self._configured):
            if queue_id not in self._queues:
                begin = self._offsets.query(REVIVE_GROUP, self._topic, queue_id) + 1
                books = PendingCheckPoints(begin, self._in_flight)
                self._queues[queue_id] = ReviveQueue(queue_id, books)

    def _steps(self) -> Iterator[None]:
        scope = self._scope
        now = self._now_ms()
        before, self._began_ms = self._began_ms, now
        if is_ahead(before, now):
            log.warn(
                "the clock was set back by {seconds:.0f} s: what was popped before counts as popped"
                " now",
                seconds=(before - now) / 1000,
            )
            for books in self._all_books():
                yield from books.count_from(now)
        self._find_queues()
        for queue in list(self._queues.values()):
            yield
            while not scope.is_over and self._read(queue):
                yield
            self._read_to_end(queue)
            while not scope.is_over and self._revive_next(queue):
                yield
            self._save_offset(queue)
        if not scope.is_over:
            self._in_flight.all_read()
            self._are_read = True

    # Reading

    def _read(self, queue: ReviveQueue) -> bool:
        """Takes in the next messages of a revive queue; False at its end."""
        books, topic = queue.books, self._topic
        read = next_batch(self._store, topic, queue.queue_id, books.read_offset)
        if read is None:
            return False
        for head, body in heads_and_bodies(read.data):
            # Before the message is taken in: if that fails, none is taken in twice.
            books.read_offset = head.queue_offset + 1
            try:
                self._take_in(queue, head, body)
            except BodyError as error:
                log.error(
                    "message {offset} of {topic} {queue}, at {position} of the log, is passed over:"
                    " {error}",
                    offset=head.queue_offset,
                    topic=topic,
                    queue=queue.queue_id,
                    position=head.physical_offset,
                    error=error,
                )
        books.read_offset = max(books.read_offset, read.next_offset)
        return True

    def _read_to_end(self, queue: ReviveQueue) -> None:
        """Does what is due when all of a revive queue was taken in, before anything of it is
        revived."""

    def _take_in(self, queue: ReviveQueue, head: RecordHead, body: bytes) -> ReviveRecord | None:
        """Has the books of a revive queue know of its next message; returns what that is, None
        where it is nothing of theirs."""
        point = decode_revive_message(head.properties, body)
        if point is None:
            return None
        self._revive_log.counts.read(point, queue.queue_id)
        books, key = queue.books, check_point_key(point, self._broker_name)
        if isinstance(point, AckMsg):
            books.acknowledge(key, acknowledged_offsets(point))
        elif point.topic and point.group:
            place, is_here = BEHIND_ALL, is_local(point, self._broker_name)
            if is_here:
                # The oldest one that was popped: what a filter left out may lie in front of it.
                first = point.start_offset + min(popped_distances(point), default=0)
                place = next(place_of(self._store, point.topic, point.queue_id, first), BEHIND_ALL)
            latest_ms = self._latest_ms(point, head.store_timestamp)
            books.add(key, point, head.queue_offset, place, is_local=is_here, latest_ms=latest_ms)
        return point

    def _latest_ms(self, point: PopCheckPoint, stored_ms: int) -> int:
        """Returns until when a check point may hide messages that was stored at a time: anybody may
        send one, and what is hidden for years would keep the whole log. A pop in a time to come, by
        a clock that was ahead, counts as one of now."""
        now = self._now_ms()
        longest_ms = max(self._config.max_invisible_time_mills, LATER_SECONDS[-1] * 1000)
        latest = min(stored_ms, now) + longest_ms
        if is_ahead(point.pop_time, now):
            latest = min(latest, now + point.invisible_time)
        return latest

    # Reviving

    def _revive_next(self, queue: ReviveQueue) -> bool:
        """Deals with the check point that is due longest; False where none is, or enough is under
        way."""
        if queue.reviving >= MOST_REVIVING:
            return False
        pending = queue.books.take_due(self._due_by())
        if pending is None:
            return False
        try:
            return self._deal_with(queue, pending)
        except RequestError as error:
            self._failed(queue, pending, error.remark)
            return False
        except Exception as error:
            log.failure(
                "what {group} popped of {topic} cannot be revived",
                group=pending.point.group,
                topic=pending.point.topic,
            )
            self._failed(queue, pending, repr(error))
            return False

    def _due_by(self) -> int:
        """Returns the time in ms up to which check points are dealt with now."""
        raise NotImplementedError

    def _deal_with(self, queue: ReviveQueue, pending: PendingCheckPoint) -> bool:
        """Begins to deal with what is left of a check point; False where nothing can be stored
        now."""
        raise NotImplementedError

    def _put(
        self,
        queue: ReviveQueue,
        pending: PendingCheckPoint,
        offsets: Collection[int],
        put: Deferred[Attempt],
    ) -> bool:
        """Deals with messages of `pending`, for which `put` is under way; False where nothing can
        be stored now."""
        queue.reviving += 1
        pending.under_way = pending.under_way.union(offsets)

        def ended(result: Attempt) -> None:
            queue.reviving -= 1
            pending.under_way = pending.under_way.difference(offsets)
            if result.is_stored:
                queue.books.settle(pending, offsets)
                self._save_offset(queue)
            elif result.is_hopeless:
                # What stands behind it must not wait for ever.
                log.error(
                    "messages {offsets} of {topic} {queue} cannot be given to {group} again: {why}",
                    offsets=offsets,
                    topic=pending.point.topic,
                    queue=pending.point.queue_id,
                    group=pending.point.group,
                    why=result.why,
                )
                queue.books.settle(pending, offsets)
            else:
                self._failed(queue, pending, result.why)
            if self._put_all and not self._is_putting:
                self._put_all.fire(None)

        put.addCallbacks(ended, lambda failure: ended(Attempt(False, repr(failure.value))))
        # Where it failed at once, the check point is due again later.
        return pending.is_reviving

    def _failed(self, queue: ReviveQueue, pending: PendingCheckPoint, why: str) -> None:
        if pending.is_reviving:
            log.warn(
                "what {group} popped of {topic} is not revived, trying again: {why}",
                group=pending.point.group,
                topic=pending.point.topic,
                why=why,
            )
            queue.books.put_back(pending, self._now_ms() - GRACE_MS + RETRY_USUAL_MS)

    def _save_offset(self, queue: ReviveQueue) -> None:
        done = queue.books.done_offset - 1
        if done > self._offsets.query(REVIVE_GROUP, self._topic, queue.queue_id):
            self._offsets.commit(REVIVE_GROUP, self._topic, queue.queue_id, done, "revive")
