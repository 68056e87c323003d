"""DStreams over RocketMQ, with the names that PySpark's users expect.

Spark has deprecated DStreams; `spark.readStream.format("rocketmq")` is the way for new programs.
"""

from rocketmq_tw.spark.dstreams.direct import commit_async as commitAsync
from rocketmq_tw.spark.dstreams.direct import create_direct_stream as createDirectStream
from rocketmq_tw.spark.dstreams.direct import offset_ranges as offsetRanges
from rocketmq_tw.spark.dstreams.receiver import confirm_records as confirmRecords
from rocketmq_tw.spark.dstreams.receiver import create_stream as createStream
from rocketmq_tw.spark.dstreams.records import Record
from rocketmq_tw.spark.ranges import OffsetRange

__all__ = [
    "OffsetRange",
    "Record",
    "commitAsync",
    "confirmRecords",
    "createDirectStream",
    "createStream",
    "offsetRanges",
]
