"""The receiver stream: Spark's own network receiver, fed by `twistd rmq-spark-receiver`.

The service is a member of the consumer group. It keeps each message until the job has confirmed
it, gives all that is not confirmed to a receiver that connects anew, and commits offsets only up
to the first message that is still open.
"""

from typing import Any

from pyspark import StorageLevel
from pyspark.serializers import BatchedSerializer, CPickleSerializer
from pyspark.streaming import DStream

from rocketmq_tw.net.address import split_address
from rocketmq_tw.spark.dstreams.control import confirm
from rocketmq_tw.spark.dstreams.records import Record, covered, merged
from rocketmq_tw.spark.ranges import OffsetRange


def create_stream(
    ssc: Any, data: str, storage_level: StorageLevel = StorageLevel.MEMORY_AND_DISK
) -> Any:
    """Returns a DStream of `Record` from the service whose data port is `data` (host:port).

    The receiver holds one core for as long as the stream runs. Messages come again until
    `confirm_records` has told the service of them.
    """
    host, port = split_address(data)
    level = ssc._sc._getJavaStorageLevel(storage_level)
    raw = ssc._jssc.rawSocketStream(host, port, level)
    stream: DStream[Any] = DStream(raw, ssc, BatchedSerializer(CPickleSerializer()))
    return stream.map(Record._make)


def confirm_records(rdd: Any, control: str, *, secret: str = "") -> int:
    """Tells the service at `control` that all records of a batch are done with; call it after
    the output. Raises `ControlError`, after which the messages come again."""

    def ranges(records: Any) -> list[OffsetRange]:
        return covered(records)

    parts = merged(rdd.mapPartitions(ranges).collect())
    return confirm(control, parts, secret=secret) if parts else 0
