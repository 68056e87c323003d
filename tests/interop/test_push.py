"""Stock push consumers: concurrent, orderly, shared, broadcast, by tag, and their offsets."""

from collections import defaultdict

import pytest

from tests.support.cluster import Cluster
from tests.support.java_client import JavaClients, Json, Producer, PushConsumer
from tests.support.wait import wait_until

ROUNDS = 60


def _messages(topic: str, bodies: list[str]) -> list[Json]:
    return [{"topic": topic, "body": body} for body in bodies]


def _wait_assigned(consumer: PushConsumer, topic: str, count: int) -> list[Json]:
    """The consumer's queues of the topic, once there are `count` of them."""

    def assigned() -> list[Json]:
        queues = [queue for queue in consumer.assigned() if queue["topic"] == topic]
        return queues if len(queues) == count else []

    return wait_until(assigned, f"{count} queues of {topic} for {consumer.handle}", interval=0.1)


def _wait_shared(consumers: list[PushConsumer], topic: str) -> None:
    """Until each of two consumers has two queues of the topic, which are not the other's."""

    def shared() -> bool:
        held = [
            {queue["queue"] for queue in consumer.assigned() if queue["topic"] == topic}
            for consumer in consumers
        ]
        return [len(queues) for queues in held] == [2, 2] and not held[0] & held[1]

    wait_until(shared, f"two queues of {topic} for each", interval=0.1)


@pytest.fixture
def topic(java: JavaClients, cluster: Cluster, names) -> str:
    """A topic with four queues."""
    return cluster.create_topic(java, names.topic)


def test_concurrent_consumer_gets_each_message_once(
    java: JavaClients, cluster: Cluster, producer: Producer, topic: str, names
) -> None:
    early = [f"early-{number}" for number in range(50)]
    late = [f"late-{number}" for number in range(50)]
    producer.send(*_messages(topic, early))
    with java.consumer(cluster.namesrv, names.group, {topic: "*"}) as consumer:
        consumer.received(50)
        producer.send(*_messages(topic, late))
        assert sorted(consumer.bodies(100)) == sorted(early + late)


def test_a_waiting_consumer_gets_a_message_at_once(
    java: JavaClients, cluster: Cluster, producer: Producer, topic: str, names
) -> None:
    with java.consumer(cluster.namesrv, names.group, {topic: "*"}) as consumer:
        _wait_assigned(consumer, topic, 4)
        producer.send(*_messages(topic, ["warm"] * 8))
        consumer.received(8)
        delays: list[list[int]] = []
        # A pause of the machine makes anything late, so one round of many has to be at once. A
        # pull that polled instead of being held would be seconds late (stock's client: 20 s).
        while len(delays) < ROUNDS and not any(round_[4] < 500 for round_ in delays):
            start = 8 + 8 * len(delays)
            producer.send(*_messages(topic, ["held"] * 8))
            came = consumer.received(8, start=start)
            delays.append(sorted(message["received"] - message["born"] for message in came))
    assert any(round_[4] < 500 for round_ in delays), delays


def test_orderly_consumer_sees_each_queue_in_order_and_retries_in_place(
    java: JavaClients, cluster: Cluster, producer: Producer, topic: str, names
) -> None:
    for number in range(40):
        producer.send(*_messages(topic, [f"{number:03}"]), queue=number % 4)
    options = {"orderly": True, "failTimes": 1}
    with java.consumer(cluster.namesrv, names.group, {topic: "*"}, **options) as consumer:
        received = consumer.received(80)
    queues: dict[int, list[str]] = defaultdict(list)
    for message in received:
        queues[message["queue"]].append(message["body"])
    # Each message failed once, and the next one waited until it was taken.
    assert dict(queues) == {
        queue: [f"{number:03}" for number in range(queue, 40, 4) for _ in range(2)]
        for queue in range(4)
    }


def test_two_consumers_share_queues_and_one_takes_over_when_the_other_leaves(
    java: JavaClients, cluster: Cluster, producer: Producer, topic: str, names
) -> None:
    group = names.group
    first = java.consumer(cluster.namesrv, group, {topic: "*"})
    second = java.consumer(cluster.namesrv, group, {topic: "*"})
    with first, second:
        _wait_shared([first, second], topic)
        shared = [f"shared-{number}" for number in range(40)]
        producer.send(*_messages(topic, shared))
        wait_until(
            lambda: set(shared) <= set(first.bodies() + second.bodies()), "all, by either of them"
        )
        assert first.received()
        assert second.received()

        taken = set(second.bodies())
        second.stop()
        _wait_assigned(first, topic, 4)
        alone = {f"alone-{number}" for number in range(40)}
        producer.send(*_messages(topic, sorted(alone)))
        first.wait_bodies(alone)
        # What the second one had taken and committed does not come again.
        assert not taken & set(first.bodies())


def test_orderly_consumers_share_locks(
    java: JavaClients, cluster: Cluster, producer: Producer, topic: str, names
) -> None:
    group = names.group
    first = java.consumer(cluster.namesrv, group, {topic: "*"}, orderly=True)
    second = java.consumer(cluster.namesrv, group, {topic: "*"}, orderly=True)
    with first, second:
        _wait_shared([first, second], topic)
        for number in range(20):
            producer.send(*_messages(topic, [f"{number}"]), queue=number % 4)
        wait_until(
            lambda: len(first.received()) + len(second.received()) == 20, "20 by both", interval=0.1
        )
        queues = [{m["queue"] for m in consumer.received()} for consumer in (first, second)]
        assert [len(held) for held in queues] == [2, 2]
        assert not queues[0] & queues[1]


def test_broadcast_brings_every_message_to_each_consumer(
    java: JavaClients, cluster: Cluster, producer: Producer, topic: str, names
) -> None:
    group = names.group
    with (
        java.consumer(cluster.namesrv, group, {topic: "*"}, broadcast=True) as first,
        java.consumer(cluster.namesrv, group, {topic: "*"}, broadcast=True) as second,
    ):
        for consumer in (first, second):
            _wait_assigned(consumer, topic, 4)
        bodies = [f"b-{number}" for number in range(20)]
        producer.send(*_messages(topic, bodies))
        for consumer in (first, second):
            assert sorted(consumer.bodies(20)) == sorted(bodies)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("red", {"red"}),
        ("red || blue", {"red", "blue"}),
        ("*", {"red", "green", "blue", "none", "AaAa", "BBBB"}),
        # These two have the same hash code, so the consume queue alone cannot tell them apart.
        ("AaAa", {"AaAa"}),
    ],
)
def test_tag_expressions(
    expression: str,
    expected: set[str],
    java: JavaClients,
    cluster: Cluster,
    producer: Producer,
    topic: str,
    names,
) -> None:
    tags = ("red", "green", "blue", "AaAa", "BBBB")
    messages = [{"topic": topic, "body": tag, "tags": tag} for tag in tags]
    messages.append({"topic": topic, "body": "none"})
    last = {"topic": topic, "body": "last", "tags": expression.split(" ||")[0].replace("*", "x")}
    producer.send(*messages, last, queue=0)
    with java.consumer(cluster.namesrv, names.group, {topic: expression}) as consumer:
        # All lie in one queue: what matches is pulled before the last one, or with it, but the
        # client's threads may hear of the last one first.
        received = consumer.wait_bodies({*expected, "last"})
    assert {message["body"] for message in received} == {*expected, "last"}


def test_offsets_survive_the_consumer(
    java: JavaClients, cluster: Cluster, producer: Producer, topic: str, names
) -> None:
    group = names.group
    producer.send(*_messages(topic, [f"first-{number}" for number in range(20)]))
    consumer = java.consumer(cluster.namesrv, group, {topic: "*"})
    consumer.received(20)
    consumer.stop()
    seconds = [f"second-{number}" for number in range(20)]
    producer.send(*_messages(topic, seconds))
    with java.consumer(cluster.namesrv, group, {topic: "*"}) as again:
        assert sorted(again.bodies(20)) == sorted(seconds)
