"""Check points while the broker acts for its master: the master of another group gets them all, and
their acknowledgements (docs/formats/pop.md, "Check points of other brokers").

The broker's own log takes nothing. So what it copied of the revive topic and is not acknowledged is
sent on at once, not only when it is due: the offsets of the revive group get behind it, and neither
this broker nor the master that comes back finds it there again. What is not acknowledged at the
other master in time is revived there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from rocketmq_tw.broker.pop.check_points import (
    CheckPointKey,
    acknowledged_offsets,
    check_point_key,
    is_local,
)
from rocketmq_tw.broker.pop.pending import (
    BEHIND_ALL,
    PendingCheckPoint,
    PendingCheckPoints,
)
from rocketmq_tw.broker.pop.revive_queues import (
    GRACE_MS,
    ReviveQueue,
    ReviveQueues,
    ReviveTools,
)
from rocketmq_tw.broker.writing.sink import attempt
from rocketmq_tw.runtime.scope import Scope
from rocketmq_tw.structs import msgspec
from rocketmq_tw.wire.bodies.pop import AckMsg, PopCheckPoint

#: Acknowledgements of one revive queue that are remembered until it is read; where there are more,
#: messages of the first ones are revived for nothing.
MOST_EARLY = 10_000
#: Check points of one revive queue on their way at once.
_MOST_SENT = 64
#: Behind the time of any check point.
_ANY_TIME = BEHIND_ALL << 2


class EscapingCheckPoints(ReviveQueues):
    """Sends check points on during a role as the acting master, and counts what is in flight of
    those that escaped, until their time."""

    def __init__(self, tools: ReviveTools, scope: Scope) -> None:
        super().__init__(tools, scope)
        self._escaped = PendingCheckPoints(0, tools.in_flight)
        #: Revive queue -> what came before the queue was read.
        self._early: dict[int, deque[AckMsg]] = {}
        #: Revive queues that were read to their end once.
        self._read_once: set[int] = set()
        #: Whether one could not be sent in the present round: the others could not either.
        self._has_failed = False
        scope.on_end(tools.revive_log.acknowledged.add(self._acknowledged))
        scope.on_end(tools.revive_log.check_point_stored.add(self._has_escaped))

    def __len__(self) -> int:
        return super().__len__() + len(self._escaped)

    @property
    def kept(self) -> int:
        return super().kept + self._escaped.kept

    def _all_books(self) -> Iterable[PendingCheckPoints]:
        return [*super()._all_books(), self._escaped]

    def _steps(self) -> Iterator[None]:
        self._has_failed = False
        due_by = self._now_ms() - GRACE_MS
        while (over := self._escaped.take_due(due_by)) is not None:
            self._escaped.settle(over, list(over.waiting))
            yield
        yield from super()._steps()

    def _read_to_end(self, queue: ReviveQueue) -> None:
        self._read_once.add(queue.queue_id)
        for ack in self._early.pop(queue.queue_id, ()):
            queue.books.acknowledge(self._key(ack), acknowledged_offsets(ack))

    def _due_by(self) -> int:
        return _ANY_TIME

    def _revive_next(self, queue: ReviveQueue) -> bool:
        may_send = queue.reviving < _MOST_SENT and not self._has_failed
        return may_send and super()._revive_next(queue)

    def _failed(self, queue: ReviveQueue, pending: PendingCheckPoint, why: str) -> None:
        self._has_failed = True
        super()._failed(queue, pending, why)

    def _deal_with(self, queue: ReviveQueue, pending: PendingCheckPoint) -> bool:
        point = pending.point
        waiting = sorted(pending.waiting)
        # Its acknowledgements name it by all that stays as it is.
        left = msgspec.structs.replace(
            point,
            broker_name=point.broker_name or self._broker_name,
            offset_diffs=[offset - point.start_offset for offset in waiting],
            count=len(waiting),
        )
        put = attempt(self._revive_log.put_check_point(left, queue.queue_id))
        goes_on = self._put(queue, pending, waiting, put)
        put.addCallback(lambda _: self._go_on(queue))
        return goes_on

    def _go_on(self, queue: ReviveQueue) -> None:
        """Sends more of the queue once what is under way has arrived."""
        if not queue.reviving and not self._has_failed:
            self.revive()

    def _acknowledged(self, ack: AckMsg, revive_queue_id: int) -> None:
        """Notes an acknowledgement that escapes: its check point need not, or has escaped."""
        key, offsets = self._key(ack), acknowledged_offsets(ack)
        self._escaped.acknowledge(key, offsets)
        if revive_queue_id in self._read_once:
            self._queues[revive_queue_id].books.acknowledge(key, offsets)
        else:
            self._early.setdefault(revive_queue_id, deque(maxlen=MOST_EARLY)).append(ack)

    def _has_escaped(self, point: PopCheckPoint) -> None:
        is_here = is_local(point, self._broker_name)
        self._escaped.add(self._key(point), point, 0, is_local=is_here)

    def _key(self, point: PopCheckPoint | AckMsg) -> CheckPointKey:
        return check_point_key(point, self._broker_name)
