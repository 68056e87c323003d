"""The direct stream: the driver knows the ranges of each batch, workers read them.

PySpark has no way to make an input stream in Python, so each batch of an empty stream of files is
replaced by one of ours. Spark writes the plan into its checkpoint with all that it has in it: the
ranges of batches that are not done, and where the next one starts.
"""

import logging
import tempfile
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime
from typing import Any

from pyspark.sql.streaming.datasource import ReadLimit

from rocketmq_tw.client.errors import ClientError
from rocketmq_tw.spark.cluster import SourceCluster
from rocketmq_tw.spark.columns import SCHEMA, arrow_schema
from rocketmq_tw.spark.dstreams.records import Record
from rocketmq_tw.spark.errors import OffsetError, OptionError
from rocketmq_tw.spark.offsets import OffsetsJson, queue_text, to_json
from rocketmq_tw.spark.options import SourceOptions, source_options
from rocketmq_tw.spark.ranges import OffsetRange
from rocketmq_tw.spark.reading import read_range
from rocketmq_tw.spark.stream import StreamReader
from rocketmq_tw.wire.bodies.queues import MessageQueue

log = logging.getLogger(__name__)

#: Batches whose ranges are kept to be read again.
_KEPT_BATCHES = 1000
_ranges_of_rdds: OrderedDict[int, list[OffsetRange]] = OrderedDict()
_commits = ThreadPoolExecutor(1, "rocketmq-commit")


def create_direct_stream(ssc: Any, options: Mapping[str, object]) -> Any:
    """Returns a DStream of `Record` over the options of a streaming read, which must name a group.

    Starts where the group is, else at `startingOffsets`; after a restart from a checkpoint, where
    the checkpoint is. `maxOffsetsPerTrigger` limits a batch. Raises `OptionError` before anything
    is started.
    """
    parsed = source_options(options, streaming=True)
    if not parsed.commit_offsets:
        raise OptionError("a direct stream keeps its offsets for a group: give the option group")
    with SourceCluster(parsed) as cluster:
        cluster.queues()
    plan = _Plan(parsed)

    def next_batch(time: datetime, rdd: Any) -> Any:
        return plan.batch(time, rdd.context)

    empty = tempfile.mkdtemp(prefix="rocketmq-direct-")
    return ssc.textFileStream(f"file://{empty}").transform(next_batch)


def offset_ranges(rdd: Any) -> list[OffsetRange]:
    """Returns the ranges of a batch; for the RDD that a direct stream hands to `foreachRDD`
    itself."""
    ranges = _ranges_of_rdds.get(rdd.id())
    if ranges is None:
        raise OffsetError(
            "this RDD is none of a direct stream itself: call offsetRanges in foreachRDD or"
            " transform on the stream that createDirectStream gave, before any map or filter"
        )
    return list(ranges)


def commit_async(options: Mapping[str, object], ranges: Sequence[OffsetRange]) -> Future[None]:
    """Tells the brokers that the group is done with `ranges`; call it after the output.

    The future is for who wants to know when that is done; a failure is logged as well, and does
    no harm, since later commits cover earlier ones.
    """
    return _commits.submit(_commit, source_options(options, streaming=True), list(ranges))


def _commit(options: SourceOptions, ranges: Sequence[OffsetRange]) -> None:
    ends: dict[MessageQueue, int] = {}
    for part in ranges:
        ends[part.queue] = max(part.end, ends.get(part.queue, 0))
    with SourceCluster(options) as cluster:
        for queue, end in ends.items():
            try:
                cluster.commit(queue, end)
            except ClientError as error:
                log.warning("the offset of %s: %s", queue_text(queue), error)
                raise


class _Plan:
    """Where each batch starts and ends. Travels in Spark's checkpoint, so it holds only values."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._reader = StreamReader(options)
        self._next: OffsetsJson | None = None
        self._batches: OrderedDict[datetime, list[OffsetRange]] = OrderedDict()

    def batch(self, time: datetime, context: Any) -> Any:
        """Returns the RDD of the batch; a batch that was planned before has the same messages
        again."""
        ranges = self._batches.get(time)
        if ranges is None:
            ranges = self._batches[time] = self._new_ranges()
            _shorten(self._batches)
        options = self._options

        def fetch(part: OffsetRange) -> Iterator[Record]:
            return _records(options, part)

        rdd = context.parallelize(ranges, max(1, len(ranges))).flatMap(fetch)
        _ranges_of_rdds[rdd.id()] = ranges
        _shorten(_ranges_of_rdds)
        return rdd

    def _new_ranges(self) -> list[OffsetRange]:
        start = self._next if self._next is not None else self._first()
        limit: ReadLimit = self._reader.getDefaultReadLimit()
        end = self._reader.latestOffset(start, limit)
        ranges = self._reader.ranges(start, end)
        self._next = end
        return ranges

    def _first(self) -> OffsetsJson:
        """Returns where the group is; where it is nowhere, what the options say."""
        offsets = self._reader.initialOffset()
        with SourceCluster(self._options) as cluster:
            kept = {queue: cluster.committed(queue) for queue in cluster.queues()}
        known = {queue: offset for queue, offset in kept.items() if offset is not None}
        for topic, brokers in to_json(known).items():
            for broker, queues in brokers.items():
                offsets[topic][broker] |= queues
        return offsets


def _shorten(kept: OrderedDict[Any, Any]) -> None:
    while len(kept) > _KEPT_BATCHES:
        kept.popitem(last=False)


def _records(options: SourceOptions, part: OffsetRange) -> Iterator[Record]:
    for batch in read_range(options, part, arrow_schema(SCHEMA)):
        for row in batch.to_pylist(maps_as_pydicts="lossy"):
            yield Record(
                row["topic"],
                row["brokerName"],
                row["queueId"],
                row["queueOffset"],
                row["body"],
                row["tags"],
                row["keys"] or [],
                row["properties"],
                row["msgId"],
                round(row["bornTimestamp"].timestamp() * 1000),
                round(row["storeTimestamp"].timestamp() * 1000),
                row["flag"],
            )
