"""How far groups are behind, as monitoring is told."""

from rocketmq_tw.message.names import retry_topic
from rocketmq_tw.wire.bodies.topics import TopicConfig
from tests.support.asked import commit_offset
from tests.support.broker import BrokerInMemory


def _figures(plane: BrokerInMemory, topic: str) -> dict[str, float]:
    return {
        metric.name.removeprefix("rocketmq_consumer_"): metric.value
        for metric in plane.broker.metrics()
        if metric.labels.get("topic") == topic and metric.labels.get("consumer_group") == "G"
    }


def test_what_waits_is_ready_and_what_was_pulled_is_in_flight(plane: BrokerInMemory) -> None:
    plane.groups.get("G")
    plane.put("T", b"1", b"2", b"3", b"4", b"5")
    stored = plane.now_ms()
    commit_offset(plane, 1)
    plane.offsets.pulled.note("G", "T", 0, 3)
    plane.clock.advance(10)
    figures = _figures(plane, "T")
    waited = plane.now_ms() - stored
    assert figures.keys() == {
        "lag_messages",
        "inflight_messages",
        "ready_messages",
        "lag_latency",
        "queueing_latency",
    }
    counts = [figures[f"{kind}_messages"] for kind in ("lag", "inflight", "ready")]
    assert counts == [4, 2, 2]
    assert waited <= figures["queueing_latency"] < figures["lag_latency"] < waited + 10


def test_a_group_that_has_all_is_not_behind(plane: BrokerInMemory) -> None:
    plane.groups.get("G")
    plane.put("T", b"1", b"2")
    commit_offset(plane, 2)
    plane.clock.advance(10)
    assert set(_figures(plane, "T").values()) == {0}


def test_an_offset_that_no_queue_has_counts_as_the_queues_end(plane: BrokerInMemory) -> None:
    plane.groups.get("G")
    plane.put("T", b"1", b"2")
    plane.offsets.commit("G", "T", 0, 50)
    assert set(_figures(plane, "T").values()) == {0}


def test_retry_topics_are_told_apart(plane: BrokerInMemory) -> None:
    plane.groups.get("G")
    topic = retry_topic("G")
    plane.topics.update(TopicConfig(topic_name=topic))
    plane.put(topic, b"again")
    plane.offsets.commit("G", topic, 0, 0)
    labels = {
        metric.labels["is_retry"]: metric.value
        for metric in plane.broker.metrics()
        if metric.name == "rocketmq_consumer_lag_messages"
    }
    assert labels == {"true": 1}


def test_no_more_pairs_are_told_of_than_a_page_has_room_for(
    plane: BrokerInMemory, monkeypatch
) -> None:
    monkeypatch.setattr("rocketmq_tw.broker.control.group_lag.MAX_LAG_PAIRS", 2)
    for topic in ("A", "B", "C"):
        plane.topics.update(TopicConfig(topic_name=topic))
        plane.put(topic, b"1")
        plane.groups.get("G")
        plane.offsets.commit("G", topic, 0, 0)
    told = [m for m in plane.broker.metrics() if m.name == "rocketmq_consumer_lag_messages"]
    assert len(told) == 2
