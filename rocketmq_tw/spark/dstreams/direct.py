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
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.streaming import StreamingContext

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

#: Batches that are done and whose ranges are kept, for windows that reach back to them.
_KEPT_BATCHES = 1000


@dataclass(frozen=True)
class _Batch:
    """What a batch reads; its time is milliseconds since 1970."""

    time: int
    ranges: list[OffsetRange]


_batches_of_rdds: OrderedDict[int, _Batch] = OrderedDict()
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
    batch = _batches_of_rdds.get(rdd.id())
    if batch is None:
        raise OffsetError(
            "this RDD is none of a direct stream itself: call offsetRanges in foreachRDD or"
            " transform on the stream that createDirectStream gave, before any map or filter"
        )
    return list(batch.ranges)


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
    """Plans where each batch starts and ends. Travels in Spark's checkpoint, so it holds only
    values."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._reader = StreamReader(options)
        self._next: OffsetsJson | None = None
        self._batches: OrderedDict[int, _Batch] = OrderedDict()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        # Older checkpoints have ranges by local time.
        self._batches = OrderedDict(
            (_milliseconds(key), _Batch(_milliseconds(key), kept))
            if isinstance(key, datetime)
            else (key, kept)
            for key, kept in self._batches.items()
        )

    def batch(self, time: datetime, context: Any) -> Any:
        """Returns the RDD of the batch; a batch that was planned before has the same messages
        again."""
        key = _milliseconds(time)
        batch = self._batches.get(key)
        if batch is None:
            batch = self._batches[key] = _Batch(key, self._new_ranges())
            _forget_done(self._batches)
        options, ranges = self._options, batch.ranges

        def fetch(part: OffsetRange) -> Iterator[Record]:
            return _records(options, part)

        rdd = context.parallelize(ranges, max(1, len(ranges))).flatMap(fetch)
        _batches_of_rdds[rdd.id()] = batch
        _forget_done(_batches_of_rdds)
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


def _milliseconds(time: datetime) -> int:
    """Returns Spark's own number for a batch's time: the local time that it becomes in Python
    comes twice where clocks go back, and is another one on a driver elsewhere."""
    return round(time.timestamp() * 1000)


def _forget_done(kept: OrderedDict[int, _Batch]) -> None:
    """Removes the oldest batches that are done; one that is not is kept however many there are,
    since after a restart Spark asks for it again."""
    if len(kept) <= _KEPT_BATCHES:
        return
    pending = _pending_times()
    if pending is None:
        return
    done = [key for key, batch in kept.items() if batch.time not in pending]
    for key in done[:-_KEPT_BATCHES]:
        del kept[key]


def _pending_times() -> set[int] | None:
    """Returns the times of the batches whose output is not done, as Spark's checkpoint has them.

    None while the context starts: it hands out the pending batches of a checkpoint one by one
    then, and knows only those it has handed out.
    """
    context = StreamingContext.getActive()
    if context is None:
        return None
    # PySpark has no name for it. One text, since each element would be a question of its own.
    times: str = context._jssc.ssc().scheduler().getPendingTimes().mkString(",")
    return {int(text.removesuffix(" ms")) for text in times.split(",") if text}


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
