"""The messages that a receiver was given and whose job has not confirmed them yet."""

from collections.abc import Callable, Iterable, Iterator

from rocketmq_tw.spark.dstreams.records import Record
from rocketmq_tw.spark.ranges import OffsetRange
from rocketmq_tw.wire.bodies.queues import MessageQueue

#: Called once nothing waits for this coming of the message any more.
OnDone = Callable[[], None]


class Unconfirmed:
    """The messages that wait for a confirmation, in the order in which they came. One that comes
    again, since its queue left and came back or was reset, takes the place of the first."""

    def __init__(self) -> None:
        self._open: dict[tuple[MessageQueue, int], tuple[Record, OnDone]] = {}

    def __len__(self) -> int:
        return len(self._open)

    def add(self, queue: MessageQueue, record: Record, done: OnDone) -> None:
        key = queue, record.queue_offset
        before = self._open.get(key)
        self._open[key] = record, done
        if before is not None:
            # Its reader has given the queue up, so this confirms nothing. But it holds a slot.
            before[1]()

    def records(self) -> list[Record]:
        """Returns all of them: what a new receiver has to get."""
        return [record for record, _ in self._open.values()]

    def confirm(self, ranges: Iterable[OffsetRange]) -> int:
        """Takes out what is within `ranges` and calls what waits for it; how many there were.

        What is not known is passed over: it was confirmed before, or another member of the group
        has the queue by now.
        """
        count = 0
        for queue, offset in self._within(ranges):
            held = self._open.pop((queue, offset), None)
            if held is not None:
                held[1]()
                count += 1
        return count

    def _within(self, ranges: Iterable[OffsetRange]) -> Iterator[tuple[MessageQueue, int]]:
        for part in ranges:
            if part.count <= len(self._open):
                yield from ((part.queue, offset) for offset in range(part.start, part.end))
            else:
                # A range of any size costs no more than what is held.
                yield from [
                    key
                    for key in self._open
                    if key[0] == part.queue and part.start <= key[1] < part.end
                ]
