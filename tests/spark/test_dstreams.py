"""DStreams: what a direct stream and a receiver bring, also over failures."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from pyspark.streaming import StreamingContext

from pyspark_rocketmq.dstreams import (
    commitAsync,
    confirmRecords,
    createDirectStream,
    createStream,
    offsetRanges,
)
from rocketmq_tw.spark.dstreams import direct
from rocketmq_tw.spark.errors import OffsetError, OptionError
from tests.support.cluster import OURS
from tests.support.spark import SparkReceiver
from tests.support.wait import wait_until

#: Spark takes fractions, though its hints do not.
BATCH_SECONDS: Any = 0.5


def write_lines(path: Path, lines: list[Any]) -> None:
    with path.open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
        file.flush()
        os.fsync(file.fileno())


def read_lines(path: Path) -> list[Any]:
    """What was written, but for a last line that is not whole yet."""
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def direct_context(
    spark: Any, options: dict[str, Any], home: Path
) -> Callable[[], StreamingContext]:
    """What `StreamingContext.getOrCreate` calls where there is no checkpoint."""
    out = home / "out"

    def output(rdd: Any) -> None:
        ranges = offsetRanges(rdd)
        bodies = [record.body.decode() for record in rdd.collect()]
        assert len(bodies) == sum(part.count for part in ranges)
        write_lines(out, bodies)
        commitAsync(options, ranges)

    def create() -> StreamingContext:
        ssc = StreamingContext(spark.sparkContext, BATCH_SECONDS)
        createDirectStream(ssc, options).foreachRDD(output)
        ssc.checkpoint(str(home / "checkpoint"))
        return ssc

    return create


def test_direct_stream_goes_on_from_its_checkpoint(topics: Any, spark: Any, tmp_path: Path) -> None:
    topic = topics.filled(100)
    options = {
        "nameServers": topics.name_servers,
        "topic": topic,
        "group": f"g-{topic}",
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": 60,
    }
    checkpoint = str(tmp_path / "checkpoint")
    create = direct_context(spark, options, tmp_path)
    ssc = StreamingContext.getOrCreate(checkpoint, create)
    ssc.start()
    wait_until(lambda: len(read_lines(tmp_path / "out")) >= 100, "the first messages")
    wait_until(lambda: _committed(topics, topic, f"g-{topic}") == 100, "the commits")
    ssc.stop(stopSparkContext=False)

    topics.fill(topic, [f"m{number}" for number in range(100, 150)])
    ssc = StreamingContext.getOrCreate(checkpoint, create)
    ssc.start()
    try:
        wait_until(
            lambda: set(read_lines(tmp_path / "out")) == {f"m{n}" for n in range(150)}, "the rest"
        )
    finally:
        ssc.stop(stopSparkContext=False)


def test_direct_stream_keeps_all_batches_that_wait(
    ours: Any, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the first output takes long, more batches wait than are kept of those that are done."""
    monkeypatch.setattr(direct, "_KEPT_BATCHES", 2)
    topic, out, go = ours.filled(60), tmp_path / "out", Event()
    options = {
        "nameServers": ours.name_servers,
        "topic": topic,
        "group": f"g-{topic}",
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": 6,
    }

    def output(rdd: Any) -> None:
        go.wait(60)
        assert sum(part.count for part in offsetRanges(rdd)) == rdd.count()
        write_lines(out, _bodies(rdd))

    ssc = StreamingContext(spark.sparkContext, BATCH_SECONDS)
    createDirectStream(ssc, options).foreachRDD(output)
    ssc.start()
    try:
        wait_until(lambda: len(direct._batches_of_rdds) >= 10, "batches that wait")
        waited = set(direct._batches_of_rdds)
        go.set()
        wait_until(lambda: len(read_lines(out)) >= 60, "all messages")
        assert set(read_lines(out)) == {f"m{number}" for number in range(60)}
        wait_until(lambda: waited.isdisjoint(list(direct._batches_of_rdds)), "them to be forgotten")
    finally:
        go.set()
        ssc.stop(stopSparkContext=False)


def test_direct_stream_says_what_is_wrong_before_it_starts(ours: Any, spark: Any) -> None:
    ssc = StreamingContext(spark.sparkContext, BATCH_SECONDS)
    given = {"nameServers": ours.name_servers, "topic": ours.filled(1), "group": "g"}
    try:
        for options, said in (
            ({"topic": "no-such-topic"}, "check the option topic"),
            ({"nameServers": "127.0.0.1:1"}, "check the option nameServers"),
            ({"expression": print}, "cannot travel"),
        ):
            with pytest.raises(OptionError, match=said):
                createDirectStream(ssc, given | options)
        with pytest.raises(OptionError, match="give the option group"):
            createDirectStream(ssc, {k: v for k, v in given.items() if k != "group"})
        with pytest.raises(OffsetError, match="before any map"):
            offsetRanges(spark.sparkContext.parallelize([1]))
    finally:
        ssc.stop(stopSparkContext=False)


@pytest.fixture
def receiver(topics: Any, tmp_path: Path) -> Iterator[Callable[[str], SparkReceiver]]:
    """Starts the receiver service for a topic."""
    started: list[SparkReceiver] = []

    def start(topic: str) -> SparkReceiver:
        service = SparkReceiver(tmp_path / "service", topics.name_servers, topic, f"g-{topic}")
        started.append(service)
        service.start()
        return service

    yield start
    for service in started:
        service.close()


@pytest.mark.parametrize(
    "topics", [OURS, pytest.param("4.9.7", marks=pytest.mark.more), "5.3.3"], indirect=True
)
def test_receiver_commits_only_what_the_job_confirmed(
    topics: Any, spark: Any, receiver: Any, tmp_path: Path
) -> None:
    """The first job fails before it confirms, then the service is killed: all comes again."""
    topic = topics.filled(120)
    service = receiver(topic)
    seen = tmp_path / "seen"

    ssc = _receiving(spark, service, lambda rdd: write_lines(seen, _bodies(rdd)))
    wait_until(lambda: len(set(read_lines(seen))) == 120, "all messages")
    ssc.stop(stopSparkContext=False)
    assert _committed(topics, topic, f"g-{topic}") == 0
    service.kill()
    service.start()

    out = tmp_path / "out"

    def confirming(rdd: Any) -> None:
        write_lines(out, _bodies(rdd))
        confirmRecords(rdd, service.control)

    ssc = _receiving(spark, service, confirming)
    try:
        wait_until(lambda: len(set(read_lines(out))) == 120, "all messages again")
        wait_until(lambda: _committed(topics, topic, f"g-{topic}") == 120, "commits")
    finally:
        ssc.stop(stopSparkContext=False)


def _receiving(spark: Any, service: SparkReceiver, output: Callable[[Any], None]) -> Any:
    ssc = StreamingContext(spark.sparkContext, BATCH_SECONDS)
    createStream(ssc, service.address).foreachRDD(output)
    ssc.start()
    return ssc


def _bodies(rdd: Any) -> list[str]:
    return [record.body.decode() for record in rdd.collect()]


def _committed(topics: Any, topic: str, group: str) -> int:
    queues = topics.queues(topic)
    return sum(topics.client.committed_offset(queue, group) or 0 for queue in queues)
