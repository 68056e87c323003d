"""Keeps what orderly groups popped last of each queue: `config/consumerOrderInfo.json` in stock's
form (docs/formats/pop.md, "Orderly groups").

An orderly pop has no check point. The group's offset stays where it is until the first message is
acknowledged; until then, or until the messages are visible again, nobody else gets any of that
queue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from functools import partial
from typing import Any

from twisted.internet.interfaces import IReactorTime

from rocketmq_tw.broker.pop.check_points import PoppedQueue
from rocketmq_tw.broker.tables.versioned import TableFile
from rocketmq_tw.broker.tables.write_behind import WriteBehindTable
from rocketmq_tw.message.names import pair_key, split_pair
from rocketmq_tw.runtime.alarm import LONGEST_WAIT, Alarm
from rocketmq_tw.runtime.clock import is_ahead
from rocketmq_tw.runtime.listeners import Listeners
from rocketmq_tw.structs import msgspec
from rocketmq_tw.wire.bodies.base import decode_body, encode_body
from rocketmq_tw.wire.bodies.pop import OrderInfo, OrderInfoTable

#: Milliseconds after which a queue is forgotten that nobody consumes.
FORGOTTEN_AFTER_MS = 24 * 3600 * 1000
#: Queues that one step of a scan looks at.
_STEP = 1000


class OrderBook(WriteBehindTable):
    """Queue of a group → the messages of its last pop. `changed` tells of each queue of which
    others may get messages at another time than before."""

    def __init__(self, file: TableFile, now_ms: Callable[[], int]) -> None:
        super().__init__(file.write)
        self._file = file
        self._now_ms = now_ms
        self._table: dict[str, dict[int, OrderInfo]] = {}
        #: When the pop came that has the messages. Not in the file: a restart ends what is held.
        self._came: dict[PoppedQueue, int] = {}
        #: The messages of the last pop that no consumer got. Not in the file, which is in stock's
        #: form: after a restart they count as consumed once more.
        self._undelivered: dict[PoppedQueue, set[int]] = {}
        self.changed: Listeners[PoppedQueue] = Listeners("the order of a queue changed")

    def load(self) -> None:
        """Takes over the file; raises what reading it raises where it is damaged."""
        table = self._file.read(lambda data: decode_body(OrderInfoTable, data))
        if table is not None:
            self._table = table.table

    def is_blocked(
        self,
        queue: PoppedQueue,
        attempt_id: str | None,
        invisible_time: int,
        came: int | None = None,
    ) -> bool:
        """Returns whether messages of the queue are being consumed, by another attempt than
        `attempt_id`: the same one may pop again. A pop that came, by the elapsed time, before the
        one that has them may not: its client has gone on. None: it comes now. `invisible_time`
        stands in for one that is not known. Times in ms."""
        info = self._present_info_of(queue)
        if info is None or not info.offsets:
            return False
        is_same = info.attempt_id is not None and info.attempt_id == attempt_id
        if is_same and (came is None or came >= self._came.get(queue, came)):
            return False
        if not info.invisible_time or info.invisible_time <= 0:
            info.invisible_time = invisible_time
        return self._now_ms() < _free_at(info)

    def free_at(self, queue: PoppedQueue) -> int | None:
        """Returns when the queue will be free though nothing more is acknowledged, in ms; None: it
        is."""
        info = self._present_info_of(queue)
        if info is None or not info.offsets:
            return None
        free = _free_at(info)
        return free if free > self._now_ms() else None

    def popped(
        self,
        queue: PoppedQueue,
        attempt_id: str | None,
        pop_time: int,
        invisible_time: int,
        offsets: Sequence[int],
        came: int,
    ) -> list[tuple[int, int]]:
        """Notes that these messages are being consumed now, by a pop that came at `came` of the
        elapsed time; returns which of them were consumed before, and how often. Times in ms."""
        topic, group, queue_id = queue
        before = self._info_of(queue)
        first = offsets[0]
        info = OrderInfo(
            attempt_id=attempt_id,
            invisible_time=invisible_time,
            last_consume_timestamp=self._now_ms(),
            offsets=[first, *(offset - first for offset in offsets[1:])],
            pop_time=pop_time,
        )
        if before is not None:
            undelivered = self._undelivered.pop(queue, set())
            info.consumed_counts = _consume_counts(before, info, offsets, undelivered)
        self._table.setdefault(pair_key(topic, group), {})[queue_id] = info
        self._came[queue] = came
        self._dirty = True
        self.changed.tell(queue)
        return sorted((info.consumed_counts or {}).items())

    def __contains__(self, queue: PoppedQueue) -> bool:
        """Returns whether it is known what was popped last of a queue."""
        return self._info_of(queue) is not None

    def acknowledge(
        self, queue: PoppedQueue, offset: int, pop_time: int, committed: int
    ) -> int | None:
        """Notes that a message is consumed, and all in front of `committed`, the group's offset;
        returns the offset at which the group goes on, None where the message was popped again
        since. Raises `ValueError` where it was not popped."""
        info = self._info_of(queue)
        if info is None or not info.offsets:
            raise ValueError("nothing is being consumed")
        if pop_time != info.pop_time:
            return None
        offsets = _popped_offsets(info)
        if offset not in offsets:
            raise ValueError(f"what is being consumed are the messages {offsets}")
        for number, each in enumerate(offsets):
            # Another broker may have taken the acknowledgements of some.
            if each == offset or each < committed:
                info.commit_bits |= 1 << number
        self._dirty = True
        self.changed.tell(queue)
        waiting = _unacknowledged(info)
        return waiting[0] if waiting else offsets[-1] + 1

    def end_attempt(self, queue: PoppedQueue, pop_time: int) -> bool:
        """Has no attempt pop again what was popped then; False where it was popped again since."""
        info = self._info_of(queue)
        if info is None or info.pop_time != pop_time:
            return False
        info.attempt_id = None
        self._dirty = True
        return True

    def note_undelivered(self, queue: PoppedQueue, offset: int, pop_time: int) -> None:
        """Has this pop of a message not count, since no consumer got it; ignored where it was
        popped again since."""
        info = self._info_of(queue)
        if info is None or not info.offsets or info.pop_time != pop_time:
            return
        if offset in _popped_offsets(info):
            self._undelivered.setdefault(queue, set()).add(offset)

    def hide(self, queue: PoppedQueue, offset: int, pop_time: int, visible_at: int) -> bool:
        """Changes when a message becomes visible again, in ms; False where it was acknowledged or
        popped again since, or was not popped at all. Ignored where it is not known what was
        popped."""
        info = self._present_info_of(queue)
        if info is None or not info.offsets:
            return True
        if info.pop_time != pop_time or offset not in _unacknowledged(info):
            return False
        info.last_consume_timestamp = self._now_ms()
        # Another one in its place: `encode` may be reading it.
        info.next_visible_times = {**(info.next_visible_times or {}), offset: visible_at}
        self._dirty = True
        self.changed.tell(queue)
        return True

    def clear(self, queue: PoppedQueue) -> None:
        """Notes that nothing of the queue is being consumed, as where the group's offset was
        reset."""
        topic, group, queue_id = queue
        self._came.pop(queue, None)
        self._undelivered.pop(queue, None)
        queues = self._table.get(pair_key(topic, group))
        if queues is not None and queues.pop(queue_id, None) is not None:
            self._dirty = True

    def clear_all(self) -> None:
        """Notes that nothing of any queue is being consumed here: another broker is the master."""
        self._came.clear()
        self._undelivered.clear()
        if self._table:
            self._table = {}
            self._dirty = True

    def clamp(self, end_of: Callable[[str, int], int | None]) -> Iterator[None]:
        """Forgets pops that reach behind `end_of(topic, queue_id)`, the new end of the queue; None:
        it is not cut. A step for each group."""
        for key in list(self._table):
            yield
            topic, group = split_pair(key)
            for queue_id, info in list(self._table.get(key, {}).items()):
                end = end_of(topic, queue_id)
                if end is not None and info.offsets and _popped_offsets(info)[-1] >= end:
                    self.clear((topic, group, queue_id))

    def forget_consumed(self, committed: Callable[[str, str, int], int]) -> Iterator[None]:
        """Forgets pops of which all is in front of `committed(group, topic, queue_id)`, where the
        group goes on: it was acknowledged at another broker. A step for each group."""
        for key in list(self._table):
            yield
            topic, group = split_pair(key)
            for queue_id, info in list(self._table.get(key, {}).items()):
                if info.offsets and _popped_offsets(info)[-1] < committed(group, topic, queue_id):
                    self.clear((topic, group, queue_id))

    def forget_unused(self, is_there: Callable[[str, str, int], bool]) -> Iterator[None]:
        """Forgets queues that nobody consumed for a day, and those for which `is_there(topic,
        group, queue_id)` is false; a step for some of them, between which the table may change."""
        oldest = self._now_ms() - FORGOTTEN_AFTER_MS
        looked = 0
        for key in list(self._table):
            queues = self._table.get(key, {})
            topic, group = split_pair(key)
            for queue_id, info in list(queues.items()):
                looked += 1
                if info.last_consume_timestamp < oldest or not is_there(topic, group, queue_id):
                    self.clear((topic, group, queue_id))
            if not queues and key in self._table:
                del self._table[key]
                self._dirty = True
            if looked >= _STEP:
                looked = 0
                yield

    def encode(self) -> bytes:
        """Returns the file's bytes. May be called in any thread, also while the table changes: each
        entry is as it was at some moment of the call."""
        groups = []
        for key, queues in list(self._table.items()):
            infos = [
                b"%d:%b" % (number, encode_body(info)) for number, info in list(queues.items())
            ]
            groups.append(b"%b:{%b}" % (encode_body(key), b",".join(infos)))
        entries: Any = msgspec.Raw(b"{" + b",".join(groups) + b"}")
        return encode_body(OrderInfoTable(table=entries))

    def _encoder(self) -> Callable[[], bytes]:
        return self.encode

    def _present_info_of(self, queue: PoppedQueue) -> OrderInfo | None:
        """Returns what was popped last, as if it were popped now where that is in a time to come:
        the clock was set back, or the last master's is ahead of this one's."""
        info, now = self._info_of(queue), self._now_ms()
        if info is not None and is_ahead(info.last_consume_timestamp, now):
            ahead_ms = info.last_consume_timestamp - now
            info.last_consume_timestamp = now
            changed = info.next_visible_times or {}
            info.next_visible_times = {
                offset: visible_at - ahead_ms for offset, visible_at in changed.items()
            }
            self._dirty = True
            self.changed.tell(queue)
        return info

    def _info_of(self, queue: PoppedQueue) -> OrderInfo | None:
        topic, group, queue_id = queue
        return self._table.get(pair_key(topic, group), {}).get(queue_id)


class OrderWatch:
    """Calls `freed(queue)` once a queue of the book is free, acknowledged or not."""

    def __init__(
        self,
        order: OrderBook,
        clock: IReactorTime,
        now_ms: Callable[[], int],
        freed: Callable[[PoppedQueue], None],
    ) -> None:
        self._order = order
        self._clock = clock
        self._now_ms = now_ms
        self._freed = freed
        self._alarms: dict[PoppedQueue, Alarm] = {}
        order.changed.add(self._update)

    def stop(self) -> None:
        """Forgets the queues that are not free, up to their next change."""
        for alarm in self._alarms.values():
            alarm.cancel()
        self._alarms.clear()

    def _update(self, queue: PoppedQueue) -> None:
        free_at = self._order.free_at(queue)
        alarm = self._alarms.get(queue)
        if free_at is None:
            if alarm is not None:
                alarm.cancel()
                del self._alarms[queue]
            self._freed(queue)
        else:
            if alarm is None:
                alarm = self._alarms[queue] = Alarm(
                    self._clock, partial(self._update, queue), LONGEST_WAIT
                )
            alarm.set((free_at - self._now_ms()) / 1000)


def _popped_offsets(info: OrderInfo) -> list[int]:
    """Returns the queue offsets of the popped messages."""
    first = info.offsets[0]
    return [first, *(first + distance for distance in info.offsets[1:])]


def _unacknowledged(info: OrderInfo) -> list[int]:
    """Returns the queue offsets of those that are not acknowledged."""
    return [
        offset
        for index, offset in enumerate(_popped_offsets(info))
        if not info.commit_bits & 1 << index
    ]


def _free_at(info: OrderInfo) -> int:
    """Returns when all that is not acknowledged is visible again, in ms; 0 where there is
    nothing."""
    # The pop's time is its name too, and stays where its clock was ahead.
    popped_ms = min(info.pop_time, info.last_consume_timestamp or info.pop_time)
    usual = popped_ms + (info.invisible_time or 0)
    changed = info.next_visible_times or {}
    return max((changed.get(offset, usual) for offset in _unacknowledged(info)), default=0)


def _consume_counts(
    before: OrderInfo, info: OrderInfo, offsets: Sequence[int], undelivered: Set[int]
) -> dict[int, int]:
    """Returns how often those of `offsets` were consumed that were consumed before; of
    `undelivered` the pop before does not count."""
    known = before.consumed_counts or {}
    if before.attempt_id is not None and before.attempt_id == info.attempt_id:
        return known
    former = set(_popped_offsets(before)) if before.offsets else set()
    counts = {
        offset: known.get(offset, 0) + (offset not in undelivered)
        for offset in offsets
        if offset in former
    }
    return {offset: count for offset, count in counts.items() if count}
