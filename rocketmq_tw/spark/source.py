"""`format("rocketmq")`: Spark's Python data source for reading and writing topics."""

import sys
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    Filter,
    InputPartition,
)
from pyspark.sql.types import StructType

from rocketmq_tw.spark.cluster import SourceCluster
from rocketmq_tw.spark.columns import arrow_schema, check_schema, table_schema
from rocketmq_tw.spark.filters import QueueFilter
from rocketmq_tw.spark.options import SourceOptions, sink_options, source_options
from rocketmq_tw.spark.planning import plan_batch
from rocketmq_tw.spark.ranges import OffsetRange
from rocketmq_tw.spark.reading import read_range
from rocketmq_tw.spark.sink import BatchWriter, StreamWriter
from rocketmq_tw.spark.stream import StreamReader

_PUSH_DOWN_PLANNER = "pyspark.sql.worker.data_source_pushdown_filters"


class RangePartition(InputPartition):
    """The range of offsets that one task reads."""

    def __init__(self, part: OffsetRange) -> None:
        super().__init__(part)


class BatchReader(DataSourceReader):
    """Reads what is between the starting and the ending offsets."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._filter = QueueFilter()

    def partitions(self) -> list[InputPartition]:
        with SourceCluster(self._options) as cluster:
            parts = plan_batch(self._options, cluster, self._filter)
        # Spark makes a partition of None out of an empty list.
        return [RangePartition(part) for part in parts] or [RangePartition(_NOTHING)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_range(self._options, partition.value, arrow_schema(self._schema))


class FilteringBatchReader(BatchReader):
    """Reads a topic once, without the queues and offsets that Spark's filters rule out."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._filter.push(filters)


class TopicStreamReader(StreamReader, DataSourceStreamReader):
    """Reads a topic as it grows."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        super().__init__(options)
        self._schema = schema

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return [RangePartition(part) for part in self.ranges(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_range(self._options, partition.value, arrow_schema(self._schema))


class RocketMQDataSource(DataSource):
    """Options, columns and guarantees are in docs/spark.md."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq"

    def schema(self) -> StructType:
        # `load` asks for the schema first, so what is wrong is said there and not by a task.
        options = source_options(self.options)
        with SourceCluster(options) as cluster:
            cluster.queues()
        return table_schema(options.damaged)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = source_options(self.options, streaming=False)
        check_schema(schema, options.damaged)
        # A reader that takes filters is refused while Spark does not hand them down, which it only
        # does in a planner of its own. And it is only for those that ask: Spark 4.3 keeps what one
        # query of a DataFrame pushed for all others of the same load().
        takes = options.push_filters and _PUSH_DOWN_PLANNER in sys.modules
        kind = FilteringBatchReader if takes else BatchReader
        return kind(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options = source_options(self.options, streaming=True)
        check_schema(schema, options.damaged)
        return TopicStreamReader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return BatchWriter(sink_options(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return StreamWriter(sink_options(self.options), schema, overwrite=False)


_NOTHING = OffsetRange("", "", 0, 0, 0)
