"""What orderly groups popped last of each queue: `config/consumerOrderInfo.json` in stock's form.

An orderly pop has no check point: the group's offset stays where it is until the first message is
acknowledged, and until then, or until the messages may be seen again, nobody else gets any of that
queue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from rocketmq_tw.broker.pop.positions import PoppedQueue
from rocketmq_tw.broker.tables.offsets.pairs import pair_key, split_key
from rocketmq_tw.broker.tables.versioned import TableFile
from rocketmq_tw.broker.tables.write_behind import WriteBehindTable
from rocketmq_tw.wire.bodies.base import decode_body, encode_body
from rocketmq_tw.wire.bodies.pop import OrderInfo, OrderInfoTable

#: Milliseconds after which what nobody consumes any more is forgotten.
FORGOTTEN_AFTER_MS = 24 * 3600 * 1000
#: Queues that are looked at in one step of a scan.
_STEP = 1000


class OrderBook(WriteBehindTable):
    """Queue of a group → what was popped last."""

    def __init__(self, file: TableFile, now_ms: Callable[[], int]) -> None:
        super().__init__(file.write)
        self._file = file
        self._now_ms = now_ms
        self._table: dict[str, dict[int, OrderInfo]] = {}

    def load(self) -> None:
        """Takes what the file has; raises what the file's reading raises where it is damaged."""
        table = self._file.read(lambda data: decode_body(OrderInfoTable, data))
        if table is not None:
            self._table = table.table

    def is_blocked(self, queue: PoppedQueue, attempt_id: str | None, invisible_time: int) -> bool:
        """Whether messages of the queue are being consumed. The same attempt may pop again;
        `invisible_time` stands in for one that is not known."""
        info = self._get(queue)
        if info is None or not info.offsets:
            return False
        if info.attempt_id is not None and info.attempt_id == attempt_id:
            return False
        if not info.invisible_time or info.invisible_time <= 0:
            info.invisible_time = invisible_time
        return self._now_ms() < _free_at(info)

    def free_at(self, queue: PoppedQueue) -> int | None:
        """When the queue is free though nothing more is acknowledged, in ms; None where it is."""
        info = self._get(queue)
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
    ) -> list[tuple[int, int]]:
        """These messages are being consumed now; returns those that were before, and how often."""
        topic, group, queue_id = queue
        before = self._get(queue)
        first = offsets[0]
        info = OrderInfo(
            attempt_id=attempt_id,
            invisible_time=invisible_time,
            last_consume_timestamp=self._now_ms(),
            offsets=[first, *(offset - first for offset in offsets[1:])],
            pop_time=pop_time,
        )
        if before is not None:
            info.consumed_counts = _counts(before, info, offsets)
        self._table.setdefault(pair_key(topic, group), {})[queue_id] = info
        self._dirty = True
        return sorted((info.consumed_counts or {}).items())

    def acknowledge(self, queue: PoppedQueue, offset: int, pop_time: int) -> int | None:
        """Where the group goes on now that a message is consumed; None where it was popped again
        since. Raises `ValueError` where it was not popped at all."""
        info = self._get(queue)
        if info is None:
            return offset + 1
        if not info.offsets:
            raise ValueError("nothing is being consumed")
        if pop_time != info.pop_time:
            return None
        offsets = _absolute(info)
        if offset not in offsets:
            raise ValueError(f"what is being consumed are the messages {offsets}")
        info.commit_bits |= 1 << offsets.index(offset)
        self._dirty = True
        waiting = _waiting(info)
        return waiting[0] if waiting else offsets[-1] + 1

    def hide(self, queue: PoppedQueue, offset: int, pop_time: int, visible_at: int) -> None:
        """The message may be seen again at another time; passed over where it was popped again."""
        info = self._get(queue)
        if info is None or info.pop_time != pop_time:
            return
        # Another one in its place: `encode` may be reading it.
        info.next_visible_times = {**(info.next_visible_times or {}), offset: visible_at}
        self._dirty = True

    def clear(self, queue: PoppedQueue) -> None:
        """Nothing of the queue is being consumed: the group's offset was reset."""
        topic, group, queue_id = queue
        queues = self._table.get(pair_key(topic, group))
        if queues is not None and queues.pop(queue_id, None) is not None:
            self._dirty = True

    def clamp(self, end_of: Callable[[str, int], int | None]) -> Iterator[None]:
        """Forgets what was popped behind `end_of(topic, queue_id)`: it is cut off the log. None:
        the queue is not cut. A step for each group."""
        for key, queues in list(self._table.items()):
            yield
            topic, _ = split_key(key)
            for queue_id, info in list(queues.items()):
                end = end_of(topic, queue_id)
                if end is not None and info.offsets and _absolute(info)[-1] >= end:
                    del queues[queue_id]
                    self._dirty = True

    def forget_unused(self, is_there: Callable[[str, str, int], bool]) -> Iterator[None]:
        """Drops what nobody consumed for a day, and what is no queue of a topic and a group any
        more; a step for some of them, between which the table may change."""
        oldest = self._now_ms() - FORGOTTEN_AFTER_MS
        looked = 0
        for key in list(self._table):
            queues = self._table.get(key, {})
            topic, group = split_key(key)
            for queue_id, info in list(queues.items()):
                looked += 1
                if info.last_consume_timestamp < oldest or not is_there(topic, group, queue_id):
                    del queues[queue_id]
                    self._dirty = True
            if not queues and key in self._table:
                del self._table[key]
                self._dirty = True
            if looked >= _STEP:
                looked = 0
                yield

    def encode(self) -> bytes:
        """The whole table as the file has it. May be called in any thread, also while the table
        changes: each entry is as it was at some moment of the call."""
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

    def _get(self, queue: PoppedQueue) -> OrderInfo | None:
        topic, group, queue_id = queue
        return self._table.get(pair_key(topic, group), {}).get(queue_id)


def _absolute(info: OrderInfo) -> list[int]:
    """The queue offsets of what was popped."""
    first = info.offsets[0]
    return [first, *(first + distance for distance in info.offsets[1:])]


def _waiting(info: OrderInfo) -> list[int]:
    """Those that are not acknowledged."""
    return [
        offset for index, offset in enumerate(_absolute(info)) if not info.commit_bits & 1 << index
    ]


def _free_at(info: OrderInfo) -> int:
    """When all that is not acknowledged may be seen again; 0 where there is nothing."""
    usual = info.pop_time + (info.invisible_time or 0)
    changed = info.next_visible_times or {}
    return max((changed.get(offset, usual) for offset in _waiting(info)), default=0)


def _counts(before: OrderInfo, info: OrderInfo, offsets: Sequence[int]) -> dict[int, int]:
    """How often each of `offsets` was consumed before."""
    known = before.consumed_counts or {}
    if before.attempt_id is not None and before.attempt_id == info.attempt_id:
        return known
    former = set(_absolute(before)) if before.offsets else set()
    return {offset: known.get(offset, 0) + 1 for offset in offsets if offset in former}
