"""Stock pull consumers: by offset, every status that a client knows, offsets by time."""

import pytest

from tests.support.cluster import Cluster
from tests.support.java_client import JavaClients, Json, Producer, PullConsumer
from tests.support.wait import wait_past, wait_until


@pytest.fixture
def queue(java: JavaClients, cluster: Cluster, puller: PullConsumer, names) -> Json:
    """The only queue of a new topic."""
    topic = cluster.create_topic(java, names.topic, queues=1)
    (queue,) = wait_until(lambda: puller.queues(topic), "the queue")
    return queue


def _send(producer: Producer, queue: Json, count: int, **fields: str) -> list[str]:
    bodies = [f"m{number:03}" for number in range(count)]
    producer.send(*({"topic": queue["topic"], "body": body, **fields} for body in bodies))
    return bodies


def test_pull_by_offset_goes_through_a_queue(
    producer: Producer, puller: PullConsumer, queue: Json
) -> None:
    bodies = _send(producer, queue, 50)
    assert (puller.min_offset(queue), puller.max_offset(queue)) == (0, 50)
    first = puller.pull(queue, 0, 20)
    assert (first["status"], first["next"], first["min"], first["max"]) == ("FOUND", 20, 0, 50)
    second = puller.pull(queue, 20, 30)
    assert [m["body"] for m in first["messages"] + second["messages"]] == bodies
    middle = puller.pull(queue, 17, 3)
    assert [m["offset"] for m in middle["messages"]] == [17, 18, 19]


def test_pull_where_there_is_nothing(producer: Producer, puller: PullConsumer, queue: Json) -> None:
    _send(producer, queue, 5, tags="a")
    end = puller.pull(queue, 5)
    assert (end["status"], end["next"]) == ("NO_NEW_MSG", 5)
    beyond = puller.pull(queue, 4711)
    assert (beyond["status"], beyond["next"]) == ("OFFSET_ILLEGAL", 5)
    unmatched = puller.pull(queue, 0, expression="b")
    assert (unmatched["status"], unmatched["next"]) == ("NO_MATCHED_MSG", 5)


def test_search_offset_finds_the_first_message_at_or_after_a_time(
    producer: Producer, puller: PullConsumer, queue: Json
) -> None:
    for _ in range(3):
        _send(producer, queue, 1)
        (message,) = puller.pull(queue, puller.max_offset(queue) - 1)["messages"]
        wait_past(message["stored"] + 3)
    messages = puller.pull(queue, 0)["messages"]
    times = [message["stored"] for message in messages]
    assert times == sorted(set(times)), "the messages need a millisecond each"
    for offset, time in enumerate(times):
        assert puller.search_offset(queue, time) == offset
    assert puller.search_offset(queue, times[0] - 60_000) == 0
    # Stock gives the last message for a time behind it; an end offset would pass over it.
    assert puller.search_offset(queue, times[-1] + 60_000) in (2, 3)


def test_committed_offsets_are_kept(
    java: JavaClients,
    cluster: Cluster,
    producer: Producer,
    puller: PullConsumer,
    queue: Json,
    names,
) -> None:
    _send(producer, queue, 10)
    group = names.group
    with java.puller(cluster.namesrv, group) as mine:
        # A queue whose first message is still at hand is consumed from there.
        assert mine.committed(queue) == 0
        assert len(mine.pull(queue, 0, 7)["messages"]) == 7
        mine.commit(queue, 7)
        wait_until(lambda: mine.committed(queue) == 7, "the committed offset")
    assert puller.committed(queue) == 0
    with java.puller(cluster.namesrv, group) as again:
        assert again.committed(queue) == 7


def test_mqadmin_shows_the_cluster_and_the_group(
    java: JavaClients, cluster: Cluster, producer: Producer, queue: Json, names
) -> None:
    topic = queue["topic"]
    shown = java.mqadmin("clusterList", "-n", cluster.namesrv)
    assert cluster.broker.address in shown
    assert cluster.broker.address in java.mqadmin("topicRoute", "-n", cluster.namesrv, "-t", topic)
    _send(producer, queue, 3)
    status = java.mqadmin("topicStatus", "-n", cluster.namesrv, "-t", topic)
    assert cluster.broker.name[:32] in status, status
    group = names.group
    with java.consumer(cluster.namesrv, group, {topic: "*"}) as consumer:
        consumer.received(3)
        wait_until(
            lambda: (
                "Diff Total: 0"
                in java.mqadmin("consumerProgress", "-n", cluster.namesrv, "-g", group)
            ),
            "mqadmin to see all consumed",
            interval=0.5,
        )
