"""Topics as streams: batches of the size asked for, restarts, failures, new queues, progress."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from rocketmq_tw.client.blocking import BlockingClient
from rocketmq_tw.client.commands import max_offset_command, read_max_offset
from rocketmq_tw.client.errors import ClientError
from rocketmq_tw.client.message import Message
from rocketmq_tw.spark.offsets import from_json, lag
from rocketmq_tw.wire.bodies.queues import MessageQueue
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.topics import DeleteTopicRequestHeader
from tests.support.cluster import OURS, Cluster, make_broker, make_name_server
from tests.support.jars import STOCK_VERSIONS
from tests.support.processes import BrokerProcess
from tests.support.remoting import ask, create_topic
from tests.support.replicas import Replicas, wait_topic
from tests.support.spark import TOO_SLOW, patient_client, run_to_end
from tests.support.wait import wait_until


def bodies(spark: Any, path: Path) -> list[str]:
    return [row.body for row in spark.read.parquet(str(path)).select("body").collect()]


def to_parquet(frame: Any, home: Path, **trigger: Any) -> Any:
    """Writes the bodies as text; the query is started."""
    return (
        frame.selectExpr("string(body) as body")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(home / "checkpoint"))
        .trigger(**trigger)
        .start(str(home / "out"))
    )


class Running:
    """A query for as long as a test lasts; started again where Spark gave it up before it began."""

    def __init__(self, start: Callable[[], Any]) -> None:
        self._start = start
        self._query = start()

    @property
    def batch(self) -> int:
        """The number of the last batch."""
        return int(self._query.lastProgress["batchId"])

    def wait_for(self, count: int) -> None:
        """Returns once it has read `count` messages in all."""
        wait_until(lambda: self._rows() >= count, f"{count} rows", limit=480, interval=0.2)

    def stop(self) -> None:
        self._query.stop()

    def _rows(self) -> int:
        error = self._query.exception()
        progress = self._query.recentProgress
        if error is not None:
            assert TOO_SLOW in str(error), str(error)
            assert not progress, str(error)
            self._query = self._start()
        return sum(item["numInputRows"] for item in progress)


def test_available_now_reads_what_is_there_in_batches_of_the_limit(
    topics: Any, spark: Any, tmp_path: Path
) -> None:
    topic = topics.filled(1)
    most, least = topics.queues(topic)[:2]
    for queue, first, last in ((most, 1, 201), (most, 201, 246), (least, 246, 250)):
        part = [Message(topic, f"m{number}".encode()) for number in range(first, last)]
        topics.client.send_batch(part, queue=queue)
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 100, "group": "counted"}
    frame = topics.reader(spark.readStream, topic, **options).load()
    query = run_to_end(lambda: to_parquet(frame, tmp_path, availableNow=True))
    rows = [progress["numInputRows"] for progress in query.recentProgress]
    assert [count for count in rows if count] == [100, 100, 50]
    assert lag(query.lastProgress["sources"][0]) == {topic: 0}
    behind = [lag(progress["sources"][0])[topic] for progress in query.recentProgress]
    assert behind[:3] == [150, 50, 0]
    # The queue with 4 or 5 of 250 messages is part of each batch.
    ends = [from_json(json.loads(source["endOffset"]))[least] for source in _sources(query)[:3]]
    assert 0 < ends[0] < ends[1] < ends[2]

    topics.fill(topic, ["later"])
    run_to_end(lambda: to_parquet(frame, tmp_path, availableNow=True))
    assert sorted(bodies(spark, tmp_path / "out")) == sorted(
        [f"m{n}" for n in range(250)] + ["later"]
    )
    queues = topics.queues(topic)
    told = sum(topics.client.committed_offset(queue, "counted") or 0 for queue in queues)
    assert 250 <= told <= 251


def test_a_topic_made_anew_is_a_loss(ours: Any, spark: Any, tmp_path: Path) -> None:
    topic, broker = ours.name(), ours.cluster.broker.address

    def fill(first: int, last: int) -> None:
        create_topic(broker, topic, 1)
        ours.queues(topic)
        ours.fill(topic, [f"m{number}" for number in range(first, last)])

    options = {"startingOffsets": "earliest", "brokerDownTimeoutMs": 1000}

    def run(**more: Any) -> None:
        frame = ours.reader(spark.readStream, topic, **options, **more).load()
        run_to_end(lambda: to_parquet(frame, tmp_path, availableNow=True))

    fill(0, 50)
    run()
    header = DeleteTopicRequestHeader(topic=topic)
    ask(broker, RemotingCommand.request(RequestCode.DELETE_TOPIC_IN_BROKER, header))
    fill(50, 70)
    with pytest.raises(PySparkException, match="ends at 20 and was read up to 50 before"):
        run()
    run(failOnDataLoss=False)
    assert sorted(bodies(spark, tmp_path / "out")) == sorted(f"m{n}" for n in range(70))


def test_a_stream_is_written_to_a_topic(ours: Any, spark: Any, tmp_path: Path) -> None:
    topic, copy = ours.filled(100, tags="red"), ours.name()
    frame = ours.reader(spark.readStream, topic, startingOffsets="earliest").load()
    writer = (
        ours.reader(frame.selectExpr("body", "tags").writeStream, copy)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
    )
    run_to_end(writer.start)
    assert sorted(ours.bodies(copy)) == sorted(f"m{number}" for number in range(100))


@pytest.mark.timeout(2400)
def test_a_query_follows_brokers_that_come_and_fall(spark: Any, tmp_path: Path) -> None:
    """A broker is killed while a query runs and comes back; another one joins."""
    with Cluster.of(tmp_path / "cluster", name_servers=["ours"], brokers=["ours"]) as cluster:
        client = patient_client(cluster.namesrv)
        _send(client, "t", range(100))
        frame = (
            spark.readStream.format("rocketmq")
            .options(nameServers=cluster.namesrv, topic="t", startingOffsets="earliest")
            .load()
        )
        query = Running(lambda: to_parquet(frame, tmp_path, processingTime="0 seconds"))
        try:
            query.wait_for(100)
            cluster.broker.kill()
            failing = query.batch
            cluster.broker.start()
            _send(client, "t", range(100, 200))
            query.wait_for(200)
            assert query.batch > failing

            create_topic(cluster.broker.address, "t", queues=8)
            wait_until(lambda: len(_queues_now(client)) == 8, "the new queues")
            client.send(Message("t", b"new queue"), queue=_queues_now(client)[-1])
            query.wait_for(201)

            second = make_broker("ours", "second", tmp_path / "second", cluster.name_servers)
            with second:
                cluster.brokers.append(second)
                queue = client.queues("t")[0]
                elsewhere = type(queue)(topic="t", broker_name="second", queue_id=0)
                wait_until(lambda: _arrives(client, elsewhere), "a send to the second broker")
                query.wait_for(202)

                # The topic moves: the first broker goes for good.
                cluster.broker.kill()
                wait_until(lambda: _only_on(client, "second"), "a route without the first broker")
                _send(client, "t", range(200, 300))
                query.wait_for(302)
        finally:
            query.stop()
        found = bodies(spark, tmp_path / "out")
        others = ["elsewhere", "new queue"]
        assert sorted(found) == sorted([f"m{number}" for number in range(300)] + others)


@pytest.mark.timeout(2400)
@pytest.mark.parametrize("kind", [OURS, pytest.param(STOCK_VERSIONS[-1], marks=pytest.mark.more)])
def test_a_slave_serves_what_its_dead_master_did_not(spark: Any, tmp_path: Path, kind: str) -> None:
    """The master is killed for good between two triggers of a query that has read a part."""
    name_server = make_name_server(kind, tmp_path / "names")
    with (
        name_server,
        Replicas("pair", tmp_path / "pair", [name_server], master=kind, slaves=[kind]) as pair,
    ):
        pair.master.start()
        pair.slave.start()
        client = patient_client(name_server.address)
        client.send_batch([Message("t", f"m{number}".encode()) for number in range(400)])
        pair.wait_equal(pair.slave)
        wait_topic(pair.slave, "t")
        wait_until(lambda: _max_offset(pair.slave, client) == 400, "the slave's queue")
        frame = (
            spark.readStream.format("rocketmq")
            .options(nameServers=name_server.address, topic="t", maxOffsetsPerTrigger=50)
            .options(startingOffsets="earliest")
            .load()
        )
        query = Running(lambda: to_parquet(frame, tmp_path, processingTime="1 second"))
        try:
            query.wait_for(50)
            pair.master.kill()
            query.wait_for(400)
        finally:
            query.stop()
        assert sorted(bodies(spark, tmp_path / "out")) == sorted(f"m{n}" for n in range(400))


def test_a_stream_with_a_mistake_ends_with_what_to_change(ours: Any, spark: Any) -> None:
    frame = ours.reader(spark.readStream, ours.filled(1), endingOffsets="latest").load()
    with pytest.raises(PySparkException, match="a stream has no end"):
        run_to_end(lambda: frame.writeStream.format("noop").start())


def _sources(query: Any) -> list[Any]:
    return [progress["sources"][0] for progress in query.recentProgress]


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


def _queues_now(client: BlockingClient) -> list[MessageQueue]:
    client.forget_routes()
    return client.queues("t")


def _only_on(client: BlockingClient, name: str) -> bool:
    return {queue.broker_name for queue in _queues_now(client)} == {name}


def _max_offset(broker: BrokerProcess, client: BlockingClient) -> int:
    """Messages of the topic t that the broker has in its queues."""

    def newest(queue: MessageQueue) -> int:
        answer = ask(broker.address, max_offset_command(queue), 10.0)
        return read_max_offset(broker.address, answer)

    return sum(newest(queue) for queue in client.queues("t"))
