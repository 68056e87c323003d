"""Ranges of queues: how much of each a batch takes, and how they become Spark's partitions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rocketmq_tw.spark.offsets import Offsets
from rocketmq_tw.wire.bodies.queues import MessageQueue


@dataclass(frozen=True, order=True)
class OffsetRange:
    """The messages of one queue from `start` up to but not including `end`."""

    topic: str
    broker_name: str
    queue_id: int
    start: int
    end: int

    @property
    def queue(self) -> MessageQueue:
        return MessageQueue(topic=self.topic, broker_name=self.broker_name, queue_id=self.queue_id)

    @property
    def count(self) -> int:
        return self.end - self.start


def ranges_between(start: Mapping[MessageQueue, int], end: Offsets) -> list[OffsetRange]:
    """Returns what lies between, by queue, without the empty ones; `start` has every queue of
    `end`."""
    return [
        OffsetRange(queue.topic, queue.broker_name, queue.queue_id, start[queue], end[queue])
        for queue in sorted(end)
        if end[queue] > start[queue]
    ]


def prorate(start: Mapping[MessageQueue, int], latest: Offsets, limit: int) -> Offsets:
    """Returns where to end so that at most `limit` messages are taken, each queue by its share.

    Every queue that has messages gets at least one as long as the limit allows, the longest
    first, so that none starves beside long ones; the rest is divided by what remains.
    """
    sizes = {queue: max(0, offset - start[queue]) for queue, offset in latest.items()}
    if sum(sizes.values()) <= limit:
        return {queue: start[queue] + size for queue, size in sizes.items()}
    waiting = sorted((queue for queue in sizes if sizes[queue]), key=lambda q: (-sizes[q], q))
    whole = sum(sizes.values())
    taken = {queue: max(1, limit * sizes[queue] // whole) for queue in waiting[:limit]}
    # The minimum of one may spend too much, rounding down too little.
    excess = sum(taken.values()) - limit
    for _ in range(excess):
        taken[max(taken, key=lambda q: (taken[q], q))] -= 1
    for _ in range(-excess):
        taken[max(taken, key=lambda q: (sizes[q] - taken[q], q))] += 1
    return {queue: start[queue] + taken.get(queue, 0) for queue in sizes}


def split(ranges: Sequence[OffsetRange], min_partitions: int | None) -> list[OffsetRange]:
    """Cuts large ranges into equal parts until there are at least `min_partitions` ranges, as far
    as there are messages; small ranges stay whole. None cuts nothing."""
    whole = sum(part.count for part in ranges)
    if min_partitions is None or len(ranges) >= min_partitions or not whole:
        return list(ranges)
    parts: list[OffsetRange] = []
    for part, pieces in zip(ranges, _pieces(ranges, min_partitions, whole), strict=True):
        for index in range(pieces):
            parts.append(
                OffsetRange(
                    part.topic,
                    part.broker_name,
                    part.queue_id,
                    part.start + part.count * index // pieces,
                    part.start + part.count * (index + 1) // pieces,
                )
            )
    return parts


def _pieces(ranges: Sequence[OffsetRange], wanted: int, whole: int) -> list[int]:
    """Returns into how many pieces to cut each range: by size, at least one, never more than it
    has."""
    pieces = [max(1, min(part.count, wanted * part.count // whole)) for part in ranges]
    while sum(pieces) < wanted:
        index = max(range(len(ranges)), key=lambda i: (ranges[i].count / pieces[i], -i))
        if pieces[index] >= ranges[index].count:
            break
        pieces[index] += 1
    return pieces
