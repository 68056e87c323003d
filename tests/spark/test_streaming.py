"""Topics as streams: batches of the size asked for, restarts, failures, new queues, progress."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from rocketmq_tw.client.blocking import BlockingClient
from rocketmq_tw.client.errors import ClientError
from rocketmq_tw.client.message import Message
from rocketmq_tw.spark.offsets import lag
from rocketmq_tw.testing.cluster import Cluster, make_broker
from rocketmq_tw.testing.wait import wait_until


def bodies(spark: Any, path: Path) -> list[str]:
    return [row.body for row in spark.read.parquet(str(path)).select("body").collect()]


def to_parquet(frame: Any, home: Path, **trigger: Any) -> Any:
    """A started query that writes the bodies as text."""
    return (
        frame.selectExpr("string(body) as body")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(home / "checkpoint"))
        .trigger(**trigger)
        .start(str(home / "out"))
    )


def test_available_now_reads_what_is_there_in_batches_of_the_limit(
    topics: Any, spark: Any, tmp_path: Path
) -> None:
    topic = topics.filled(250)
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 100, "group": "counted"}
    frame = topics.reader(spark.readStream, topic, **options).load()
    query = to_parquet(frame, tmp_path, availableNow=True)
    query.awaitTermination(120)
    rows = [progress["numInputRows"] for progress in query.recentProgress]
    assert [count for count in rows if count] == [100, 100, 50]
    assert lag(query.lastProgress["sources"][0]) == {topic: 0}
    behind = [lag(progress["sources"][0])[topic] for progress in query.recentProgress]
    assert behind[:3] == [150, 50, 0]

    topics.fill(topic, ["later"])
    frame = topics.reader(spark.readStream, topic, **options).load()
    to_parquet(frame, tmp_path, availableNow=True).awaitTermination(120)
    assert sorted(bodies(spark, tmp_path / "out")) == sorted(
        [f"m{n}" for n in range(250)] + ["later"]
    )
    queues = topics.client.queues(topic)
    told = sum(topics.client.committed_offset(queue, "counted") or 0 for queue in queues)
    assert 250 <= told <= 251


def test_a_stream_is_written_to_a_topic(ours: Any, spark: Any, tmp_path: Path) -> None:
    topic, copy = ours.filled(100, tags="red"), ours.name()
    frame = ours.reader(spark.readStream, topic, startingOffsets="earliest").load()
    query = (
        ours.reader(frame.selectExpr("body", "tags").writeStream, copy)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    assert sorted(ours.bodies(copy)) == sorted(f"m{number}" for number in range(100))


def test_a_query_follows_brokers_that_come_and_fall(spark: Any, tmp_path: Path) -> None:
    """A broker is killed while a query runs and comes back; another one joins."""
    with Cluster.of(tmp_path / "cluster", name_servers=["ours"], brokers=["ours"]) as cluster:
        client = BlockingClient(cluster.namesrv)
        _send(client, "t", range(100))
        frame = (
            spark.readStream.format("rocketmq")
            .options(nameServers=cluster.namesrv, topic="t", startingOffsets="earliest")
            .load()
        )
        query = to_parquet(frame, tmp_path, processingTime="0 seconds")
        try:
            _wait_for(spark, query, tmp_path, 100)
            cluster.broker.kill()
            failing = query.lastProgress["batchId"]
            cluster.broker.start()
            _send(client, "t", range(100, 200))
            _wait_for(spark, query, tmp_path, 200)
            assert query.lastProgress["batchId"] > failing

            second = make_broker("ours", "second", tmp_path / "second", cluster.name_servers)
            with second:
                cluster.brokers.append(second)
                queue = client.queues("t")[0]
                elsewhere = type(queue)(topic="t", broker_name="second", queue_id=0)
                wait_until(lambda: _arrives(client, elsewhere), "a send to the second broker")
                _wait_for(spark, query, tmp_path, 201)
        finally:
            query.stop()
        found = bodies(spark, tmp_path / "out")
        assert sorted(found) == sorted([f"m{number}" for number in range(200)] + ["elsewhere"])


def test_a_stream_with_a_mistake_ends_with_what_to_change(ours: Any, spark: Any) -> None:
    frame = ours.reader(spark.readStream, ours.filled(1), endingOffsets="latest").load()
    with pytest.raises(PySparkException, match="a stream has no end"):
        frame.writeStream.format("noop").start().awaitTermination(60)


def _send(client: BlockingClient, topic: str, numbers: range) -> None:
    for number in numbers:
        client.send(Message(topic, f"m{number}".encode()))


def _arrives(client: BlockingClient, queue: Any) -> bool:
    client.forget_routes()
    client.route("TBW102")
    try:
        client.send(Message(queue.topic, b"elsewhere"), queue=queue)
    except ClientError:
        return False
    return True


def _wait_for(spark: Any, query: Any, home: Path, count: int) -> None:
    def there() -> bool:
        error = query.exception()
        if error is not None:
            raise AssertionError(str(error))
        progress = query.recentProgress
        return sum(item["numInputRows"] for item in progress) >= count

    wait_until(there, f"{count} rows", limit=90, interval=0.2)
