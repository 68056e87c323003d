"""Static topics with stock 5.3's tools and clients: made, moved and consumed on two of our
brokers, on one of ours beside stock's, and on a store that changes hands."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rocketmq_tw.client.blocking import BlockingClient
from rocketmq_tw.spark.cluster import SourceCluster
from rocketmq_tw.spark.columns import SCHEMA, arrow_schema
from rocketmq_tw.spark.filters import QueueFilter
from rocketmq_tw.spark.options import source_options
from rocketmq_tw.spark.planning import plan_batch
from rocketmq_tw.spark.reading import read_range
from tests.support.cluster import OURS, Cluster, make_broker, make_name_server
from tests.support.jars import PROJECT
from tests.support.java_client import JavaClients, Json
from tests.support.ports import BrokerPorts
from tests.support.processes import BrokerProcess
from tests.support.rmqadmin import answer
from tests.support.wait import wait_until

STOCK = "5.3.3"
#: The broker name of logic queues, and the offsets at which a moved queue begins.
LOGIC = "__syslo__global__"
BLOCK = 10_000
PAIRS = {"ours": [OURS, OURS], "ours-stock": [OURS, STOCK], "stock-ours": [STOCK, OURS]}


@pytest.fixture(scope="module", params=PAIRS)
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """Static topics begin on the first broker and move to the second."""
    home = tmp_path_factory.mktemp("static")
    with Cluster.numbered(home, PAIRS[request.param]) as started:
        yield started


@pytest.fixture
def java(jvms: dict[str, JavaClients]) -> JavaClients:
    return jvms[STOCK]


def mqadmin(java: JavaClients, cluster: Cluster, command: str, *arguments: str) -> str:
    return java.mqadmin(command, "-n", cluster.namesrv, *arguments)


def make(java: JavaClients, cluster: Cluster, topic: str, brokers: str, queues: int) -> None:
    mqadmin(java, cluster, "updateStaticTopic", "-t", topic, "-b", brokers, "-qn", str(queues))
    wait_until(lambda: cluster.name_servers[0].routes(topic, []), f"the route of {topic}")


def numbers(messages: list[Json]) -> Counter[str]:
    return Counter(message["body"] for message in messages)


def send(producer: Any, topic: str, first: int, count: int) -> list[Json]:
    messages = [{"topic": topic, "body": str(n)} for n in range(first, first + count)]
    sent: list[Json] = producer.send(*messages)
    return sent


def test_a_topic_that_moves(java: JavaClients, pair: Cluster, names) -> None:
    topic, group = names.topic, names.group
    first, second = (broker.name for broker in pair.brokers)
    make(java, pair, topic, first, 2)
    with (
        java.producer(pair.namesrv, names.group) as producer,
        java.consumer(pair.namesrv, group, {topic: "*"}) as consumer,
    ):
        sent = send(producer, topic, 0, 20)
        assert {each["queue"] for each in sent} == {0, 1}
        assert max(each["offset"] for each in sent) < BLOCK
        consumer.wait_bodies({str(n) for n in range(20)})
        mqadmin(java, pair, "remappingStaticTopic", "-t", topic, "-b", second)
        later = wait_until(
            lambda: [
                each
                for each in send(producer, topic, 20, 20)
                if each["offset"] >= BLOCK
            ],
            "messages behind the move",
        )  # fmt: skip
        assert {each["queue"] for each in later} == {0, 1}
        came = consumer.wait_bodies({str(n) for n in range(40)})
        for message in came:
            assert message["broker"] == LOGIC
        for queue in (0, 1):
            offsets = {each["offset"] for each in came if each["queue"] == queue}
            before = len([each for each in offsets if each < BLOCK])
            behind = len(offsets) - before
            assert offsets == {*range(before), *range(BLOCK, BLOCK + behind)}
        assert set(numbers(came)) == {str(n) for n in range(40)}
    # Another group reads all of it, across the move, and where it is stays with the queue.
    with java.consumer(pair.namesrv, names.group, {topic: "*"}) as other:
        again = other.wait_bodies({str(n) for n in range(40)})
        assert {each["queue"]: min(e["offset"] for e in again) for each in again} == {0: 0, 1: 0}
        other.stop()
    status = mqadmin(java, pair, "topicStatus", "-t", topic)
    assert LOGIC in status


def test_more_queues_and_progress(java: JavaClients, pair: Cluster, names) -> None:
    topic, group = names.topic, names.group
    both = ",".join(broker.name for broker in pair.brokers)
    make(java, pair, topic, both, 2)
    make(java, pair, topic, both, 4)
    with java.producer(pair.namesrv, names.group) as producer:
        firsts = itertools.count(0, 8)

        def all_queues() -> bool:
            sent = send(producer, topic, next(firsts), 8)
            return {each["queue"] for each in sent} == {0, 1, 2, 3}

        wait_until(all_queues, "sends to all four queues")
        with java.consumer(pair.namesrv, group, {topic: "*"}) as consumer:
            # The last of them are in all queues, so each has an offset then.
            consumer.wait_bodies({str(n) for n in range(next(firsts))})

            def is_consumed() -> bool:
                progress = mqadmin(java, pair, "consumerProgress", "-g", group)
                lines = [line.split() for line in progress.splitlines() if line.startswith(topic)]
                assert {line[1] for line in lines} <= {LOGIC}, progress
                consumed = [int(line[2]) for line in lines if line[3] == line[4]]
                return sorted(consumed) == [0, 1, 2, 3]

            # While it runs: what it tells at its end, one-way, may be lost with its connections.
            wait_until(is_consumed, "all four queues to be shown as consumed", interval=0.5)


def test_offsets_of_a_moved_queue(java: JavaClients, pair: Cluster, names) -> None:
    topic = names.topic
    first, second = (broker.name for broker in pair.brokers)
    make(java, pair, topic, first, 1)
    with (
        java.producer(pair.namesrv, names.group) as producer,
        java.puller(pair.namesrv, names.group) as puller,
    ):
        sent = send(producer, topic, 0, 5)
        assert [each["offset"] for each in sent] == [0, 1, 2, 3, 4]
        mqadmin(java, pair, "remappingStaticTopic", "-t", topic, "-b", second)
        later = wait_until(
            lambda: [each for each in send(producer, topic, 5, 1) if each["offset"] >= BLOCK],
            "a message behind the move",
        )
        (queue,) = puller.queues(topic)
        assert (queue["broker"], queue["queue"]) == (LOGIC, 0)
        assert puller.min_offset(queue) == 0
        # Stock fills its queue after it has answered.
        end = later[0]["offset"] + 1
        wait_until(lambda: puller.max_offset(queue) == end, "the end of the second queue")
        got = puller.pull(queue, 2)
        assert [message["offset"] for message in got["messages"]] == [2, 3, 4]
        none = puller.pull(queue, 5)
        assert (none["status"], none["next"]) == ("NO_MATCHED_MSG", BLOCK)
        puller.commit(queue, 3)
        wait_until(lambda: puller.committed(queue) == 3, "the offset in the first queue")
        puller.commit(queue, BLOCK + 1)
        wait_until(lambda: puller.committed(queue) == BLOCK + 1, "the offset in the second")


def test_rmqadmin_makes_and_moves_them(java: JavaClients, pair: Cluster, names) -> None:
    """What one tool has made the other one shows and changes."""
    topic, namesrv = names.topic, pair.namesrv
    first, second = (broker.name for broker in pair.brokers)
    made = answer(namesrv, f"updateStaticTopic -t {topic} -b {first} -qn 2")
    assert [queue["brokerName"] for queue in made["queues"]] == [first, first]
    with java.producer(namesrv, names.group) as producer:
        send(producer, topic, 0, 4)
        moved = answer(namesrv, f"remappingStaticTopic -t {topic} -b {second}")
        assert [queue["logicOffset"] for queue in moved["queues"]] == [BLOCK, BLOCK]
        wait_until(
            lambda: [each for each in send(producer, topic, 4, 4) if each["offset"] >= BLOCK],
            "messages behind the move",
        )
        mqadmin(java, pair, "remappingStaticTopic", "-t", topic, "-b", first)
        wait_until(
            lambda: [each for each in send(producer, topic, 8, 4) if each["offset"] >= 2 * BLOCK],
            "messages behind the second move",
        )
        with java.consumer(namesrv, names.group, {topic: "*"}) as consumer:
            consumer.wait_bodies({str(n) for n in range(12)})


@pytest.mark.parametrize(
    "pair",
    [pytest.param("ours", marks=pytest.mark.more), "ours-stock", "stock-ours"],
    indirect=True,
)
def test_our_clients_go_on_behind_a_move(pair: Cluster, names) -> None:
    """The producer has no further tries, and knows the route of before the move."""
    topic, group, namesrv = names.topic, names.group, pair.namesrv
    first, second = (broker.name for broker in pair.brokers)
    answer(namesrv, f"updateStaticTopic -t {topic} -b {first} -qn 2")
    wait_until(lambda: pair.name_servers[0].routes(topic, []), f"the route of {topic}")
    program = [sys.executable, "-m", "tests.support.moved_clients"]
    with subprocess.Popen(
        [*program, namesrv, topic, group, "6"],
        cwd=PROJECT,
        env=os.environ | {"PYTHONPATH": str(PROJECT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as clients:
        assert clients.stdin is not None and clients.stdout is not None
        assert clients.stdout.readline() == "0\n"
        answer(namesrv, f"remappingStaticTopic -t {topic} -b {second}")
        print(file=clients.stdin, flush=True)
        assert clients.stdout.readline() == "1\n"
        print(file=clients.stdin, flush=True)
        seen = json.loads(clients.stdout.readline())
    places = {body: tuple(place) for body, place in seen["sent"].items()}
    assert sorted(places.values()) == [
        (queue, begin + number) for queue in (0, 1) for begin in (0, BLOCK) for number in range(3)
    ]
    first_time = [message for message in seen["came"] if not message[4]]
    assert {message[1] for message in first_time} == {LOGIC}
    assert {message[0]: (message[2], message[3]) for message in first_time} == places
    assert len(first_time) == len(places)
    assert sorted(message[0] for message in seen["came"] if message[4]) == ["0-0", "1-0"]
    with BlockingClient([namesrv], group=group, timeout=60) as client:
        for queue in client.queues(topic):
            assert client.committed_offset(queue) == client.max_offset(queue) == BLOCK + 3
            pulled = client.pull(queue, 0)
            assert [message.queue_offset for message in pulled.messages] == [0, 1, 2]
    assert spark_reads(namesrv, topic) == set(places.values())
    shown = answer(namesrv, f"consumeMessage -t {topic}")["messages"]
    assert {message["body"]: (message["queueId"], message["queueOffset"]) for message in shown} == (
        places
    )


def spark_reads(namesrv: str, topic: str) -> set[tuple[int, int]]:
    """The queue ids and offsets that a batch read of Spark's has; raises for lost messages."""
    options = source_options({"nameServers": namesrv, "topic": topic})
    with SourceCluster(options) as cluster:
        parts = plan_batch(options, cluster, QueueFilter())
    return {
        (row["queueId"], row["queueOffset"])
        for part in parts
        for batch in read_range(options, part, arrow_schema(SCHEMA))
        for row in batch.to_pylist(maps_as_pydicts="lossy")
    }


@pytest.mark.parametrize("ours_first", [True, False], ids=["ours-first", "stock-first"])
def test_a_store_changes_hands(ours_first: bool, java: JavaClients, tmp_path: Path, names) -> None:
    """The second broker serves the logic queues that the first one's file has."""
    topic, group = names.topic, names.group
    name_server = make_name_server(OURS, tmp_path / "namesrv")
    ports, store = BrokerPorts(), tmp_path / "store"
    kinds = [OURS, STOCK] if ours_first else [STOCK, OURS]
    brokers: list[BrokerProcess] = [
        make_broker(
            kind, "handed-over", tmp_path / str(number), [name_server], store=store, ports=ports
        )
        for number, kind in enumerate(kinds)
    ]
    first, second = brokers
    try:
        name_server.start()
        first.start()
        cluster = Cluster([name_server], [first])
        make(java, cluster, topic, "handed-over", 2)
        with java.producer(name_server.address, names.group) as producer:
            send(producer, topic, 0, 4)
            first.stop()
            second.start()
            wait_until(lambda: name_server.knows(second), "the second broker's registration")
            sent = wait_until(lambda: send(producer, topic, 4, 4), "sends to the second broker")
            assert {each["queue"] for each in sent} == {0, 1}
            assert {each["offset"] for each in sent} == {2, 3}
            with java.consumer(name_server.address, group, {topic: "*"}) as consumer:
                consumer.wait_bodies({str(n) for n in range(8)})
    finally:
        for broker in brokers:
            broker.close()
        name_server.close()
