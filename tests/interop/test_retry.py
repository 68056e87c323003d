"""Consumers that fail: retry topics, the dead-letter queue; and messages with a delay."""

import time
from itertools import pairwise

from tests.support.cluster import Cluster
from tests.support.java_client import JavaClients, Producer
from tests.support.processes import TEST_SETTINGS
from tests.support.wait import wait_until

ROUNDS = 40
#: The promise: a delayed message comes within half a second of its time.
TOLERANCE_MS = 500
DELAYS_MS = [
    int(level[:-1]) * (60_000 if level.endswith("m") else 1000)
    for level in TEST_SETTINGS["messageDelayLevel"].split()
]


def test_a_failed_message_comes_again_and_then_no_more(
    java: JavaClients, cluster: Cluster, producer: Producer, names
) -> None:
    topic = cluster.create_topic(java, names.topic)
    bodies = ["fails twice", "so does this"]
    producer.send(*({"topic": topic, "body": body, "keys": "k"} for body in bodies))
    with java.consumer(cluster.namesrv, names.group, {topic: "*"}, failTimes=2) as consumer:
        received = consumer.received(6)
        for body in bodies:
            attempts = [message for message in received if message["body"] == body]
            assert [message["reconsumeTimes"] for message in attempts] == [0, 1, 2]
            assert {message["topic"] for message in attempts} == {topic}
            assert len({message["msgId"] for message in attempts}) == 1
            assert {message["keys"] for message in attempts} == {"k"}
        gaps = [late["received"] - early["received"] for early, late in pairwise(attempts)]
        for times, gap in enumerate(gaps):
            # The first retry waits for delay level 3, the next one for level 4; the client takes
            # its own time to send the message back, so only "too early" is a fault here.
            assert gap >= DELAYS_MS[2 + times] - 100, gaps


def test_a_message_that_always_fails_ends_in_the_dead_letter_queue(
    java: JavaClients, cluster: Cluster, producer: Producer, names
) -> None:
    topic = cluster.create_topic(java, names.topic)
    group = names.group
    options = {"failTimes": 100, "maxReconsumeTimes": 1}
    (result,) = producer.send({"topic": topic, "body": "poison", "properties": {"mine": "kept"}})
    with java.consumer(cluster.namesrv, group, {topic: "*"}, **options) as consumer:
        consumer.received(2)
        dead_letters = f"%DLQ%{group}"
        with java.consumer(cluster.namesrv, names.group, {dead_letters: "*"}) as undertaker:
            (dead,) = undertaker.received(1)
        assert dead["body"] == "poison"
        assert dead["topic"] == dead_letters
        assert dead["msgId"] == result["msgId"]
        assert dead["properties"]["mine"] == "kept"
        assert dead["properties"]["RETRY_TOPIC"] == topic
        assert len(consumer.received()) == 2


def test_delayed_messages_come_at_their_time(
    java: JavaClients, cluster: Cluster, producer: Producer, names
) -> None:
    topic = cluster.create_topic(java, names.topic)
    levels = (1, 2, 6, 7)
    best = dict.fromkeys(levels, 3_600_000)
    rounds = 0
    with java.consumer(cluster.namesrv, names.group, {topic: "*"}) as consumer:
        wait_until(lambda: len(consumer.assigned()) >= 4, "the queues")
        producer.send({"topic": topic, "body": "warm"})
        consumer.received(1)
        start = 1
        # A pause of the machine makes anything late, so each level has to be in time once.
        while rounds < ROUNDS and max(best.values()) > TOLERANCE_MS:
            rounds += 1
            producer.send(
                *(
                    {"topic": topic, "body": str(level), "delayLevel": level, "tags": "t"}
                    for level in levels
                )
            )
            received = consumer.received(len(levels), start=start)
            start += len(levels)
            by_level = {int(message["body"]): message for message in received}
            assert set(by_level) == set(levels)
            assert {message["tags"] for message in received} == {"t"}
            assert {message["topic"] for message in received} == {topic}
            for level, message in by_level.items():
                late = message["received"] - message["born"] - DELAYS_MS[level - 1]
                assert late >= 0, f"level {level} came {-late} ms early"
                best[level] = min(best[level], late)
    assert max(best.values()) <= TOLERANCE_MS, f"milliseconds late, by level, at best: {best}"


def test_a_delayed_message_is_not_seen_before_its_time(
    java: JavaClients, cluster: Cluster, producer: Producer, puller, names
) -> None:
    topic = cluster.create_topic(java, names.topic)
    level = 8
    due = int(time.time() * 1000) + DELAYS_MS[level - 1]
    producer.send({"topic": topic, "body": "later", "delayLevel": level})
    early = puller.drain(topic)
    # It was asked in time, unless the machine stood still.
    assert not early or time.time() * 1000 >= due
    (message,) = wait_until(lambda: puller.drain(topic), "the delayed message")
    assert message["stored"] >= due
