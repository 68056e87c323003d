"""Messages and bytes of topics and groups, as monitoring is told."""

from rocketmq_tw.broker.writing import incoming
from rocketmq_tw.message.batch import BatchedMessage, encode_batch
from tests.support.broker import BrokerInMemory, ok
from tests.support.transactions import HALF, begin, end, let


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


def types(broker: BrokerInMemory) -> dict[tuple[str, str], float]:
    """Messages that came in, by topic and type."""
    return {
        (metric.labels["topic"], metric.labels["message_type"]): metric.value
        for metric in broker.broker.metrics()
        if metric.name == "rocketmq_messages_in_total"
    }


def test_messages_count_by_their_type() -> None:
    broker = BrokerInMemory()
    ok(broker.send())
    ok(
        broker.send(
            encode_batch([BatchedMessage(0, b"a", b""), BatchedMessage(0, b"b", b"")]), batch=True
        )
    )
    ok(broker.send(properties={"__SHARDINGKEY": "order-7"}))
    # With a property of the broker's own it takes the longer way.
    ok(broker.send(properties={"__SHARDINGKEY": "order-7", "TRACE_ON": "true"}))
    assert types(broker) == {("Topic", "normal"): 3, ("Topic", "fifo"): 2}
    ok(broker.send(topic="%RETRY%G"))
    assert ("%RETRY%G", "normal") not in types(broker), "it came in before"
    broker.topics.delete("Topic")
    broker.clock.advance(1)
    assert types(broker) == {}


def test_what_waited_counts_where_it_goes_too() -> None:
    broker = BrokerInMemory()
    ok(broker.send(properties={"DELAY": "1"}))
    ok(broker.send(properties={"TIMER_DELAY_SEC": "2"}))
    committed, _ = begin(broker, b"yes"), begin(broker, b"no")
    ok(end(broker, committed))
    waiting = {
        ("SCHEDULE_TOPIC_XXXX", "delay"): 1,
        ("rmq_sys_wheel_timer", "delay"): 1,
        (HALF, "transaction"): 2,
    }
    assert types(broker) == waiting | {("Topic", "transaction"): 1}
    let(broker, 5)
    assert types(broker) == waiting | {("Topic", "transaction"): 1, ("Topic", "delay"): 2}


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
    monkeypatch.setattr(incoming, "MAX_SERIES", 1)
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
