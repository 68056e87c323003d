"""How fast Spark reads a topic, and how much of that time is Spark's own.

    python tools/spark_bench.py [--servers ours|4.9.7|5.3.3] [--messages N] [--size BYTES]

Fills a topic, reads it with `format("rocketmq")` into nothing, then has Spark take as many equal
rows from Arrow batches that a worker holds ready: that is Spark's own path, with no broker and no
decoding. Prints rows a second of both, of the workers' reading alone, and the share; and the same
from the CPU time of broker, JVM and workers, which says more on a machine that does other things.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from rocketmq_tw.client.blocking import BlockingClient
from rocketmq_tw.client.message import Message
from rocketmq_tw.spark.cluster import SourceCluster
from rocketmq_tw.spark.columns import SCHEMA, arrow_schema
from rocketmq_tw.spark.filters import QueueFilter
from rocketmq_tw.spark.options import source_options
from rocketmq_tw.spark.planning import plan_batch
from rocketmq_tw.spark.reading import read_range
from tests.support.cluster import Cluster
from tests.support.spark import session

SETTINGS = {
    "maxTransferCountOnMessageInMemory": "4096",
    "maxTransferBytesOnMessageInMemory": str(4 * 1024 * 1024),
    "mappedFileSizeCommitLog": str(1024 * 1024 * 1024),
    "mappedFileSizeConsumeQueue": str(20 * 300_000),
}
COLUMN_SETS = {"all 12 columns": None, "body and queueOffset": "body binary, queueOffset bigint"}


class HeldReader(DataSourceReader):
    """Two tasks that give one batch again and again."""

    def __init__(self, schema: StructType, rows: int, size: int) -> None:
        self._schema, self._rows, self._size = schema, rows, size

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(0), InputPartition(1)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        count = 10_000
        batch = self._batch(count)
        for _ in range(self._rows // 2 // count):
            yield batch

    def _batch(self, count: int) -> pa.RecordBatch:
        values = {
            "topic": "bench",
            "flag": 0,
            "body": b"x" * self._size,
            "properties": [
                ("KEYS", "key-12345"),
                ("TAGS", "a"),
                ("UNIQ_KEY", "F" * 32),
                ("WAIT", "true"),
            ],
            "brokerName": "broker",
            "queueId": 1,
            "queueOffset": 12345,
            "bornTimestamp": 0,
            "storeTimestamp": 0,
            "keys": ["key-12345"],
            "tags": "a",
            "msgId": "F" * 32,
        }
        schema = arrow_schema(self._schema)
        columns = [pa.array([values[field.name]] * count, field.type) for field in schema]
        return pa.RecordBatch.from_arrays(columns, schema=schema)


class HeldSource(DataSource):
    """Batches that are there already."""

    @classmethod
    def name(cls) -> str:
        return "held"

    def schema(self) -> StructType:
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        return HeldReader(schema, int(self.options["rows"]), int(self.options["size"]))


def fill(name_servers: str, count: int, size: int) -> None:
    """`count` messages of `size` bytes with a key and a tag each."""
    body = b"x" * size
    with BlockingClient(name_servers) as client:
        for at in range(0, count, 500):
            client.send_batch(
                [
                    Message("bench", body, tags="a", keys=[f"key-{number}"])
                    for number in range(at, min(at + 500, count))
                ]
            )


class Cost(NamedTuple):
    """Seconds of one run, by the clock and of CPU."""

    wall: float
    cpu: float


def cost(run: Callable[[], Any], times: int) -> Cost:
    """The best of several runs after one to warm up."""
    run()
    costs = []
    for _ in range(times):
        wall, cpu = time.perf_counter(), cpu_seconds()
        run()
        costs.append(Cost(time.perf_counter() - wall, cpu_seconds() - cpu))
    return Cost(min(one.wall for one in costs), min(one.cpu for one in costs))


def cpu_seconds() -> float:
    """Of this process and all that it started: JVM, workers, broker, name server."""
    own = psutil.Process()
    total = 0.0
    for process in [own, *own.children(recursive=True)]:
        try:
            total += sum(process.cpu_times()[:4])
        except psutil.NoSuchProcess:
            continue
    return total


def alone(name_servers: str) -> int:
    """Reads the topic in this process without Spark; the rows."""
    options = source_options({"nameServers": name_servers, "topic": "bench"})
    with SourceCluster(options) as cluster:
        parts = plan_batch(options, cluster, QueueFilter())
    schema = arrow_schema(SCHEMA)
    return sum(batch.num_rows for part in parts for batch in read_range(options, part, schema))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--servers", default="ours", choices=("ours", "4.9.7", "5.3.3"))
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=200)
    parser.add_argument("--times", type=int, default=3)
    chosen = parser.parse_args()
    count = chosen.messages
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        kinds = [chosen.servers]
        with Cluster.of(home, name_servers=kinds, brokers=kinds, settings=SETTINGS) as cluster:
            fill(cluster.namesrv, count, chosen.size)
            memory = {"spark.driver.memory": "2g"}
            spark = session(home / "spark", short_lived=False, **memory)
            spark.dataSource.register(HeldSource)
            reading = cost(lambda: alone(cluster.namesrv), chosen.times)
            show("one reader and its broker, no Spark", rates(count, reading))
            for name, schema in COLUMN_SETS.items():
                show(name, measure(spark, cluster.namesrv, schema, chosen))
            spark.stop()


def show(name: str, result: dict[str, Any]) -> None:
    print(json.dumps({name: result}), flush=True)


def measure(spark: Any, name_servers: str, schema: str | None, chosen: Any) -> dict[str, Any]:
    """Rows a second through the source and through Spark alone."""

    def drain(kind: str, **options: Any) -> None:
        reader = spark.read.format(kind).options(**options)
        if schema is not None:
            reader = reader.schema(schema)
        reader.load().write.format("noop").mode("overwrite").save()

    given = {"nameServers": name_servers, "topic": "bench"}
    real = cost(lambda: drain("rocketmq", **given), chosen.times)
    own = cost(lambda: drain("held", rows=chosen.messages, size=chosen.size), chosen.times)
    return {
        **rates(chosen.messages, real),
        "Spark's own path": rates(chosen.messages, own),
        "Spark's share of the time": round(own.wall / real.wall, 2),
        "Spark's share of the CPU time": round(own.cpu / real.cpu, 2),
    }


def rates(count: int, spent: Cost) -> dict[str, Any]:
    """Rows a second as they came, and as two cores would give them that do nothing else."""
    return {
        "rows/s": round(count / spent.wall),
        "CPU us a row": round(spent.cpu / count * 1e6, 1),
        "rows/s of two cores by CPU time": round(2 * count / spent.cpu),
    }


if __name__ == "__main__":
    main()
