"""Topics that change while they are used, topics of one kind, and the topic of traces, with stock's
clients and tools."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.cluster import OURS, Cluster
from tests.support.java_client import JavaClients, Json, Producer, PushConsumer
from tests.support.rmqadmin import answer
from tests.support.wait import wait_until

TRACES = "RMQ_SYS_TRACE_TOPIC"


@pytest.fixture(scope="module")
def strict(servers: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A broker that makes no topic by itself but the trace topic, and looks at kinds."""
    settings = {
        "autoCreateTopicEnable": "false",
        "traceTopicEnable": "true",
        "enableTopicMessageTypeCheck": "true",
    }
    home = tmp_path_factory.mktemp("strict")
    with Cluster.of(home, name_servers=[OURS], brokers=[servers], settings=settings) as started:
        yield started


def queues_of(consumer: PushConsumer, topic: str) -> list[int]:
    return sorted(queue["queue"] for queue in consumer.assigned() if queue["topic"] == topic)


def test_a_topic_grows_and_shrinks_while_it_is_used(
    java: JavaClients, cluster: Cluster, producer: Producer, names
) -> None:
    topic, address = cluster.create_topic(java, names.topic, queues=2), cluster.broker.address
    sent: list[str] = []

    def queues(read: int, write: int) -> None:
        said = java.mqadmin(
            *("updateTopic", "-n", cluster.namesrv, "-b", address),
            *("-t", topic, "-r", str(read), "-w", str(write)),
        )
        assert f"to {address} success" in said

    def send(round_: str, count: int) -> set[int]:
        """Sends some; the queues where they went."""
        bodies = [f"{round_}-{number}" for number in range(count)]
        sent.extend(bodies)
        results = producer.send(*({"topic": topic, "body": body} for body in bodies))
        return {result["queue"] for result in results}

    def until_sent_to(wanted: set[int]) -> None:
        """Sends until the producer has heard of the queues."""
        rounds = iter(range(1000))
        wait_until(lambda: send(f"{wanted}{next(rounds)}", 8) == wanted, f"queues {wanted}")

    with java.consumer(cluster.namesrv, names.group, {topic: "*"}) as consumer:
        until_sent_to({0, 1})
        queues(read=4, write=4)
        until_sent_to({0, 1, 2, 3})
        wait_until(lambda: queues_of(consumer, topic) == [0, 1, 2, 3], "four queues")
        # To take queues away one first stops to write to them, and lets them be read.
        queues(read=4, write=1)
        until_sent_to({0})
        assert queues_of(consumer, topic) == [0, 1, 2, 3]
        consumer.wait_bodies(set(sent))
        queues(read=1, write=1)
        wait_until(lambda: queues_of(consumer, topic) == [0], "one queue")
        send("last", 4)
        consumer.wait_bodies(set(sent))
        assert sorted(consumer.bodies()) == sorted(sent), "each once"


@pytest.mark.parametrize("kind", ["FIFO", "DELAY", "TRANSACTION", "NORMAL"])
def test_a_topic_of_one_kind(
    kind: str, jvms: dict[str, JavaClients], strict: Cluster, names
) -> None:
    java, topic = jvms["5.3.3"], names.topic
    said = java.mqadmin(
        *("updateTopic", "-n", strict.namesrv, "-c", "TestCluster", "-t", topic),
        *("-a", f"+message.type={kind}"),
    )
    assert "success" in said
    made = answer(strict.namesrv, f"topicRoute -t {topic}")
    assert made["brokerDatas"]
    kinds: dict[str, Json] = {
        "NORMAL": {},
        "FIFO": {"properties": {"__SHARDINGKEY": "k"}},
        "DELAY": {"delayLevel": 1},
    }
    with (
        java.producer(strict.namesrv, names.new("p"), retries=0) as producer,
        java.transactions(strict.namesrv, names.new("tp")) as transactions,
    ):
        for sent, given in kinds.items():
            (result,) = producer.send({"topic": topic, "body": sent} | given, check=False)
            if sent == kind:
                assert result["status"] == "SEND_OK"
            else:
                assert "CODE: 13" in result["error"]
                assert f"takes {kind} messages, this one is {sent}" in result["error"]
        half = {"topic": topic, "body": "half", "properties": {"decide": "commit"}}
        if kind == "TRANSACTION":
            (result,) = transactions.send(half)
            assert result["status"] == "SEND_OK"
        else:
            with pytest.raises(Exception, match="this one is TRANSACTION"):
                transactions.send(half)


def test_what_became_of_a_message_is_traced(java: JavaClients, strict: Cluster, names) -> None:
    topic, group = strict.create_topic(java, names.topic, queues=1), names.group
    with (
        java.producer(strict.namesrv, names.new("p"), trace=True) as producer,
        java.consumer(strict.namesrv, group, {topic: "*"}, trace=True) as consumer,
    ):
        (sent,) = producer.send({"topic": topic, "body": "traced", "keys": "k"})
        consumer.received(1)

        def trace() -> str:
            return java.mqadmin("queryMsgTraceById", "-n", strict.namesrv, "-i", sent["msgId"])

        # Clients send what they noted a little later.
        shown = wait_until(
            lambda: found if "Pub" in (found := trace()) and group in found else "",
            "the trace of the send and of its consumption",
            interval=1.0,
        )
        assert "success" in shown


def test_a_broker_has_the_topic_of_traces(strict: Cluster) -> None:
    route = answer(strict.namesrv, f"topicRoute -t {TRACES}")
    assert [data["writeQueueNums"] for data in route["queueDatas"]] == [1]
