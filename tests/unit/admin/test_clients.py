"""Clients and groups: who is connected, how groups consume, who gets which queues."""

from __future__ import annotations

import json

import pytest

from rocketmq_tw.client.producer import Producer
from rocketmq_tw.client.session import Session


@pytest.fixture
def topic(world):
    world.rmqadmin("updateTopic -t T -c DefaultCluster -r 4 -w 4")
    return world


def test_connected_producers(topic) -> None:
    world = topic
    session = Session(
        world.reactor,
        world.names,
        remoting=world.network.client("10.0.1.7"),
        client_id="10.0.1.7@1",
    )
    producer = Producer(world.reactor, world.names, "shop", session=session)
    world.result(producer.start())
    world.result(producer.queues("T"))
    world.wait_for(lambda: "10.0.1.7@1" in world.rmqadmin("producer -b 10.0.0.2:10911").out)
    found = world.rmqadmin("producerConnection -g shop -t T --output json").json
    (connection,) = found["connections"]
    assert connection["clientId"] == "10.0.1.7@1"
    assert connection["clientAddr"].startswith("10.0.1.7:")
    (row,) = world.rmqadmin("producer -b 10.0.0.2:10911 --output json").json["producers"]
    assert (row["group"], row["clientId"]) == ("shop", "10.0.1.7@1")
    assert "10.0.1.7:" in row["remoteIP"]
    outcome = world.rmqadmin("producerConnection -g nix -t T")
    assert outcome.status == 1
    assert "no producer of group nix is connected to the brokers of T" in outcome.err
    world.result(producer.stop())


def test_connected_consumers(topic) -> None:
    world = topic
    consumer = world.consume("billing", "T")
    for arguments in ("", " -b 10.0.0.2:10911"):
        found = world.rmqadmin(f"consumerConnection -g billing{arguments} --output json").json
        assert [one["clientId"] for one in found["connections"]] == ["10.0.1.9@1"]
        assert {"topic": "T", "expression": "*", "type": "TAG"} in found["subscriptions"]
        assert found["messageModel"] == "CLUSTERING"
    lines = world.rmqadmin("consumerConnection -g billing").lines
    assert ["T", "*", "TAG"] in lines
    world.result(consumer.stop())
    for group, hint in (
        ("billing", "start a consumer of it"),
        ("biling", "did you mean billing?"),
        ("nix", "consumerProgress shows all"),
    ):
        for command in ("consumerConnection", "consumerStatus"):
            outcome = world.rmqadmin(f"{command} -g {group}")
            assert outcome.err == f"rmqadmin: no consumer of group {group} is connected: {hint}\n"


def test_what_members_say(topic) -> None:
    world = topic
    consumer = world.consume("billing", "T")
    world.wait_for(
        lambda: (
            len(world.rmqadmin("consumer -g billing --output json").json["members"][0]["queues"])
            >= 4
        )
    )
    found = world.rmqadmin("consumer -g billing --output json").json
    assert found["sameSubscriptions"] is True
    offsets = world.rmqadmin("getConsumerStatus -g billing -t T --output json")
    rows = offsets.json["queues"]
    assert [(row["clientId"], row["queueId"], row["offset"]) for row in rows] == [
        ("10.0.1.9@1", queue, 0) for queue in range(4)
    ]
    outcome = world.rmqadmin("getConsumerStatus -g nix -t T")
    assert outcome.status == 1
    assert "no consumer of group nix is connected" in outcome.err
    world.result(consumer.stop())


def test_groups_that_have_never_consumed_are_listed(world) -> None:
    world.rmqadmin("updateSubGroup -g billing -c DefaultCluster")
    listed = world.rmqadmin("consumerProgress --output json").json["groups"]
    assert [(row["group"], row["count"]) for row in listed] == [("billing", 0)]
    outcome = world.rmqadmin("deleteSubGroup -g Biling -c DefaultCluster --yes")
    assert outcome.err.endswith("at cluster DefaultCluster: did you mean billing?\n")
    assert "did you mean billing?" in world.rmqadmin("getConsumerConfig -g bill").err


def test_groups_are_monitored(topic) -> None:
    world = topic
    world.rmqadmin("sendMessage -t T -p x")
    consumer = world.consume("billing", "T")
    found = world.rmqadmin("startMonitoring --rounds 1 --output json").json["groups"]
    (row,) = [row for row in found if row["group"] == "billing"]
    assert (row["count"], row["sameSubscriptions"], row["error"]) == (1, True, None)
    world.result(consumer.stop())
    (row,) = world.rmqadmin("startMonitoring --rounds 1 --output json").json["groups"]
    assert (row["group"], row["count"], row["sameSubscriptions"]) == ("billing", 0, None)


def test_a_group_pulls_or_pops(topic) -> None:
    world = topic
    world.rmqadmin("updateSubGroup -g billing -c DefaultCluster")
    mode = world.rmqadmin(
        "setConsumeMode -c DefaultCluster -t T -g billing -m pop -q 2 --output json"
    )
    assert mode.json == {
        "topic": "T",
        "group": "billing",
        "mode": "POP",
        "popShareQueueNum": 2,
        "brokers": ["10.0.0.2:10911"],
    }
    outcome = world.rmqadmin("setConsumeMode -b 10.0.0.2:10911 -t T -g billing -m PULL")
    assert outcome.out == "billing gets T by PULL on 10.0.0.2:10911\n"
    assert world.rmqadmin("setConsumeMode -c DefaultCluster -t nix -g billing -m POP").status == 1
    assert "'X' is not one of" in world.rmqadmin("setConsumeMode -t T -g G -m X").err


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_topics_and_groups_of_a_file(world, tmp_path, form: str) -> None:
    file = tmp_path / "list"

    def write(*entries) -> str:
        lines = "".join(
            "- "
            + ", ".join(f"{key}: {value}" for key, value in entry.items()).replace(", ", "\n  ")
            + "\n"
            for entry in entries
        )
        file.write_text(json.dumps(entries) if form == "json" else lines)
        return f"-c DefaultCluster -f {file} --output json"

    topics = write({"topicName": "A", "readQueueNums": 3}, {"topicName": "B", "perm": 4})
    assert world.rmqadmin(f"updateTopicList {topics}").json == {
        "topics": ["A", "B"],
        "brokers": ["10.0.0.2:10911"],
    }
    topic = world.brokers["broker-a"].topics.get("A")
    assert (topic.read_queue_nums, topic.perm) == (3, 6)
    groups = write({"groupName": "billing", "retryMaxTimes": 5})
    assert world.rmqadmin(f"updateSubGroupList {groups}").json["groups"] == ["billing"]
    assert world.brokers["broker-a"].groups.all()["billing"].retry_max_times == 5
    for entry, line in (
        ({"topicName": "a/b"}, "'a/b' has an illegal character"),
        ({"perm": 4}, "entry 1 has no topicName"),
        ({"topicName": "A", "queues": 4}, "'queues' is no key, those are: attributes, order"),
        ({"topicName": "A", "perm": "all"}, "entry 1: the body is no TopicConfig"),
    ):
        outcome = world.rmqadmin(f"updateTopicList {write(entry)}")
        assert outcome.status == 2
        assert line in outcome.err
    file.write_text("{")
    assert world.rmqadmin(f"updateTopicList -c DefaultCluster -f {file}").status == 2
    assert "does not exist" in world.rmqadmin("updateTopicList -c C -f /no/such/file").err


def test_a_permission_is_changed_and_the_rest_stays(world) -> None:
    world.rmqadmin("updateTopic -t T -c DefaultCluster -r 3 -w 2 -a +message.type=FIFO")
    changed = world.rmqadmin("updateTopicPerm -t T -c DefaultCluster -p 4 --output json").json
    assert changed == {
        "topic": "T",
        "perm": 4,
        "brokers": [{"address": "10.0.0.2:10911", "permBefore": 6}],
    }
    topic = world.brokers["broker-a"].topics.get("T")
    assert (topic.perm, topic.read_queue_nums, topic.write_queue_nums) == (4, 3, 2)
    assert topic.attributes == {"message.type": "FIFO"}
    outcome = world.rmqadmin("updateTopicPerm -t nix -b 10.0.0.2:10911 -p 4")
    assert "no name server knows the topic nix" in outcome.err


def test_clusters_of_a_topic(world) -> None:
    world.rmqadmin("updateTopic -t T -c DefaultCluster")
    assert world.rmqadmin("topicClusterList -t T").out == "DefaultCluster\n"
    assert world.rmqadmin("topicClusterList -t nix").status == 1


def test_who_would_get_which_queues(topic) -> None:
    world = topic
    found = world.rmqadmin("allocateMQ -t T -i a,b,c --output json").json
    assert {
        name: [queue["queueId"] for queue in queues] for name, queues in found["members"].items()
    } == {"a": [0, 1], "b": [2], "c": [3]}
    lines = world.rmqadmin("allocateMQ -t T -i a,b,c,d,e").lines
    assert lines[-1] == ["without", "a", "queue:", "e"]
    assert "give each member once" in world.rmqadmin("allocateMQ -t T -i a,a").err
