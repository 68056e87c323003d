"""Messages and bytes of topics and groups, as monitoring is told."""

from rocketmq_tw.broker.stats import totals
from tests.support.broker import BrokerInMemory, ok


def figures(broker: BrokerInMemory, way: str) -> dict[tuple[str, str], tuple[float, str]]:
    return {
        (metric.name, metric.labels["topic"]): (
            metric.value,
            metric.labels.get("consumer_group", metric.labels["is_system"]),
        )
        for metric in broker.broker.metrics()
        if metric.name.endswith(f"_{way}_total") and metric.name.startswith("rocketmq_")
        if "topic" in metric.labels
    }


def test_each_topic_counts_messages_and_bytes() -> None:
    broker = BrokerInMemory()
    for body in (b"x", b"y" * 100):
        ok(broker.send(body))
    ok(broker.send(properties={"DELAY": "1"}))
    came = figures(broker, "in")
    assert came["rocketmq_messages_in_total", "Topic"] == (2, "false")
    assert came["rocketmq_messages_in_total", "SCHEDULE_TOPIC_XXXX"] == (1, "true")
    bytes_in = sum(value for (name, _), (value, _) in came.items() if "throughput" in name)
    assert bytes_in == broker.store.end_offset


def test_each_group_counts_what_it_read() -> None:
    broker = BrokerInMemory()
    ok(broker.send())
    answer = broker.pull(0)
    assert answer is not None
    assert figures(broker, "out") == {
        ("rocketmq_messages_out_total", "Topic"): (1, "G"),
        ("rocketmq_throughput_out_total", "Topic"): (len(answer.body), "G"),
    }


def test_what_has_no_series_of_its_own_counts_together(monkeypatch) -> None:
    monkeypatch.setattr(totals, "MAX_SERIES", 1)
    broker = BrokerInMemory()
    for _ in range(2):
        ok(broker.send())
        ok(broker.send(properties={"DELAY": "1"}))
    told = [
        (metric.labels.get("topic"), metric.value)
        for metric in broker.broker.metrics()
        if metric.name == "rocketmq_messages_in_total"
    ]
    assert told == [("Topic", 2), (None, 2)]
