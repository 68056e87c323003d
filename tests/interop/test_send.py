"""Stock producers send to the cluster; what arrives is what was sent."""

from typing import Any

import pytest

from tests.support.cluster import Cluster
from tests.support.java_client import JavaClients, Json, Producer, PullConsumer
from tests.support.wait import wait_until

#: Compressed, and with what: a client of 5.x clears the first bit when it decompresses, one of
#: 4.9 knows nothing of the others.
COMPRESSED_FLAGS = 0x701
MEBIBYTE = 1024 * 1024


def _bodies(messages: list[Json]) -> list[str]:
    return sorted(message["body"] for message in messages)


def _numbered(topic: str, count: int) -> tuple[list[str], list[Json]]:
    bodies = [f"m{number:04}" for number in range(count)]
    return bodies, [{"topic": topic, "body": body} for body in bodies]


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_acknowledged_sends_lie_where_the_result_says(
    mode: str, producer: Producer, puller: PullConsumer, names
) -> None:
    topic = names.topic  # the broker makes it
    bodies, messages = _numbered(topic, 40)
    results = producer.send(*messages, mode=mode)
    found = puller.drain(topic)
    assert _bodies(found) == bodies
    places = {(m["broker"], m["queue"], m["offset"]): m for m in found}
    for body, result in zip(bodies, results, strict=True):
        message = places[result["broker"], result["queue"], result["offset"]]
        assert message["body"] == body
        assert message["msgId"] == result["msgId"]
        assert puller.view(topic, result["offsetMsgId"])["body"] == body


def test_oneway_sends_arrive(producer: Producer, puller: PullConsumer, names) -> None:
    topic = names.topic
    bodies, messages = _numbered(topic, 40)
    producer.send({"topic": topic, "body": "the first makes the topic"})
    producer.send(*messages, mode="oneway")
    found = wait_until(
        lambda: (
            [m for m in puller.drain(topic) if m["body"] in bodies][39:] and puller.drain(topic)
        ),
        "40 oneway messages",
        interval=0.1,
    )
    assert _bodies(found)[:40] == bodies


def test_a_batch_lies_together_in_one_queue(
    producer: Producer, puller: PullConsumer, names
) -> None:
    topic = names.topic
    bodies, messages = _numbered(topic, 50)
    (result,) = producer.send(*messages, mode="batch")
    found = puller.drain(topic)
    assert [m["body"] for m in found] == bodies
    assert [m["offset"] for m in found] == list(range(result["offset"], result["offset"] + 50))
    assert {m["queue"] for m in found} == {result["queue"]}
    offset_ids = result["offsetMsgId"].split(",")
    assert [puller.view(topic, offset_id)["body"] for offset_id in offset_ids] == bodies


def test_a_chosen_queue_keeps_the_order(producer: Producer, puller: PullConsumer, names) -> None:
    topic = names.topic
    bodies, messages = _numbered(topic, 20)
    producer.send(*messages, queue=2)
    assert [(m["queue"], m["body"]) for m in puller.drain(topic)] == [(2, b) for b in bodies]


def test_a_compressed_body_is_served_as_it_came(
    producer: Producer, puller: PullConsumer, names
) -> None:
    topic = names.topic
    body = "compress me " * 300  # over the 4 KiB from which the client compresses
    assert len(body) < 4096 < len(body * 2)
    producer.send({"topic": topic, "body": body}, {"topic": topic, "body": body * 2})
    small, large = sorted(puller.drain(topic), key=lambda m: m["size"])
    assert small["body"] == body
    assert not small["sysFlag"] & COMPRESSED_FLAGS
    assert large["size"] == len(body) * 2
    assert large["sysFlag"] & COMPRESSED_FLAGS


def test_a_body_of_3_mib_comes_back(
    producer: Producer, puller: PullConsumer, java: JavaClients, cluster: Cluster, names
) -> None:
    topic = names.topic
    producer.send(*({"topic": topic, "size": 3 * MEBIBYTE, "seed": seed} for seed in (1, 2, 3)))
    pulled = puller.drain(topic)
    assert {m["size"] for m in pulled} == {3 * MEBIBYTE}
    assert len({m["crc"] for m in pulled}) == 3
    with java.consumer(cluster.namesrv, names.group, {topic: "*"}) as consumer:
        pushed = consumer.received(3)
    assert {m["crc"] for m in pushed} == {m["crc"] for m in pulled}


def test_tags_keys_flag_and_unicode_properties_come_back(
    producer: Producer, puller: PullConsumer, names
) -> None:
    topic = names.topic
    properties = {"ключ": "значение", "日本": "語 🚀", "quote": '"\\\n'}
    producer.send(
        {
            "topic": topic,
            "body": "Grüße, 世界 🚀",
            "tags": "étiquette",
            "keys": "k1 k2",
            "flag": 77,
            "properties": properties,
        }
    )
    (message,) = puller.drain(topic)
    assert message["body"] == "Grüße, 世界 🚀"
    assert message["tags"] == "étiquette"
    assert message["keys"] == "k1 k2"
    assert message["flag"] == 77
    assert message["properties"] | properties == message["properties"]


def test_messages_are_found_by_key_and_by_id(
    producer: Producer, puller: PullConsumer, names
) -> None:
    topic = names.topic
    first, second = producer.send(
        {"topic": topic, "body": "one", "keys": "alpha shared"},
        {"topic": topic, "body": "two", "keys": "beta shared"},
    )
    wait_until(lambda: len(puller.query(topic, "shared")) == 2, "both in the index")
    assert _bodies(puller.query(topic, "alpha")) == ["one"]
    assert puller.view(topic, first["msgId"])["body"] == "one"
    assert puller.view(topic, second["offsetMsgId"])["body"] == "two"


def test_a_message_that_is_too_large_is_refused(
    java: JavaClients, cluster: Cluster, puller: PullConsumer, names
) -> None:
    topic = cluster.create_topic(java, names.topic)
    options: dict[str, Any] = {
        "maxMessageSize": 8 * MEBIBYTE,
        "retries": 0,
        "compressOver": 64 * MEBIBYTE,
    }
    with java.producer(cluster.namesrv, **options) as producer:
        (refused,) = producer.send({"topic": topic, "size": 6 * MEBIBYTE, "seed": 1}, check=False)
        assert "CODE: 13" in refused["error"], refused
        producer.send({"topic": topic, "body": "the next one is taken"})
    assert [m["body"] for m in puller.drain(topic)] == ["the next one is taken"]
