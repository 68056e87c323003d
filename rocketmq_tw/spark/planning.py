"""From options to the ranges of a batch read, and the first offsets of a stream.

What is wrong is raised here, on the driver, with what to change.
"""

from collections.abc import Callable

from rocketmq_tw.spark.cluster import Bounds, SourceCluster
from rocketmq_tw.spark.errors import OffsetError
from rocketmq_tw.spark.filters import QueueFilter
from rocketmq_tw.spark.offsets import EARLIEST, LATEST, Offsets, parse_offsets, queue_text
from rocketmq_tw.spark.options import SourceOptions
from rocketmq_tw.spark.ranges import OffsetRange, ranges_between, split
from rocketmq_tw.wire.bodies.queues import MessageQueue

AllBounds = dict[MessageQueue, Bounds]


def plan_batch(
    options: SourceOptions, cluster: SourceCluster, narrow: QueueFilter
) -> list[OffsetRange]:
    """Returns the ranges that a batch read takes, at least `minPartitions` of them where there are
    messages enough."""
    known = cluster.queues()
    if known:
        cluster.check_expression(known[0])
    chosen = [queue for queue in known if narrow.takes(queue)]
    bounds = {queue: cluster.bounds(queue) for queue in chosen}
    start = starting_offsets(options, cluster, bounds, known)
    end = _ending_offsets(options, cluster, bounds, known)
    for queue in chosen:
        if end[queue] < start[queue]:
            raise OffsetError(
                f"{queue_text(queue)}: the read would end at {end[queue]}, before it starts"
                f" at {start[queue]}: correct endingOffsets or startingOffsets"
            )
        start[queue] = narrow.start(cluster, queue, start[queue])
        end[queue] = max(start[queue], narrow.end(cluster, queue, end[queue]))
    return split(ranges_between(start, end), options.min_partitions)


def starting_offsets(
    options: SourceOptions, cluster: SourceCluster, bounds: AllBounds, known: list[MessageQueue]
) -> Offsets:
    """Returns where a read starts in each queue of `bounds`; queues that the JSON leaves out start
    at their earliest offset."""
    if options.starting_timestamp is not None:
        timestamp = options.starting_timestamp
        return {queue: cluster.first_at(queue, timestamp) for queue in bounds}
    text = options.starting_offsets
    return _resolve(options, text, "startingOffsets", bounds, known, lambda b: b.earliest)


def _ending_offsets(
    options: SourceOptions, cluster: SourceCluster, bounds: AllBounds, known: list[MessageQueue]
) -> Offsets:
    if options.ending_timestamp is not None:
        timestamp = options.ending_timestamp
        return {queue: cluster.first_at(queue, timestamp) for queue in bounds}
    text = options.ending_offsets
    return _resolve(options, text, "endingOffsets", bounds, known, lambda b: b.latest)


def _resolve(
    options: SourceOptions,
    text: str,
    option: str,
    bounds: AllBounds,
    known: list[MessageQueue],
    default: Callable[[Bounds], int],
) -> Offsets:
    if text in ("earliest", "latest"):
        earliest = text == "earliest"
        return {queue: b.earliest if earliest else b.latest for queue, b in bounds.items()}
    given = parse_offsets(text, option)
    for queue in given:
        if queue not in known:
            raise OffsetError(
                f"{option} names {queue_text(queue)}, which is not there:"
                f" there are {_known_text(queue.topic, known)}"
            )
    return {
        queue: _in_range(options, option, queue, given[queue], b) if queue in given else default(b)
        for queue, b in bounds.items()
    }


def _in_range(
    options: SourceOptions, option: str, queue: MessageQueue, offset: int, bounds: Bounds
) -> int:
    if offset == EARLIEST:
        return bounds.earliest
    if offset == LATEST:
        return bounds.latest
    if not bounds.earliest <= offset <= bounds.latest:
        if options.fail_on_data_loss:
            raise OffsetError(
                f"{option} has {offset} for {queue_text(queue)}, which has {bounds.earliest} to"
                f" {bounds.latest}: give one of these, or set failOnDataLoss=false to read what"
                " is there"
            )
        return min(max(offset, bounds.earliest), bounds.latest)
    return offset


def _known_text(topic: str, known: list[MessageQueue]) -> str:
    queues = [queue_text(queue) for queue in known if queue.topic == topic]
    topics = sorted({queue.topic for queue in known})
    return "; ".join(queues[:8]) or f"the topics {', '.join(topics)}"
