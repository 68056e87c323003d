"""Figures for monitoring, under stock 5.3.3's names and with its labels."""

from __future__ import annotations

from typing import Any

import pytest

from rocketmq_tw.metrics.instruments import Distribution, Metric
from rocketmq_tw.wire.bodies.base import encode_body
from rocketmq_tw.wire.bodies.clients import ConsumerData, HeartbeatData, ProducerData
from rocketmq_tw.wire.bodies.groups import SubscriptionGroupConfig
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import LanguageCode, RemotingCommand
from rocketmq_tw.wire.headers.send import ConsumerSendMsgBackRequestHeader
from rocketmq_tw.wire.headers.topics import CreateTopicRequestHeader
from tests.support.broker import BrokerInMemory, FakePeer, ok

OF_BROKER = {"node_type", "cluster", "node_id"}


def told(broker: BrokerInMemory, name: str) -> list[tuple[dict[str, str], Any]]:
    """The labels, but for those of the broker, and the value of each series of a figure."""
    return [
        ({k: v for k, v in metric.labels.items() if k not in OF_BROKER}, metric.value)
        for metric in broker.broker.metrics()
        if metric.name == name
    ]


def values_of(found: list[tuple[dict[str, str], Any]]) -> list[tuple[dict[str, str], int, float]]:
    """How many values each series of a histogram has, and their sum."""
    for _, value in found:
        assert isinstance(value, Distribution)
    return [(labels, sum(value.counts), value.total) for labels, value in found]


def test_connections_tell_program_and_version() -> None:
    broker = BrokerInMemory()
    for number, version in enumerate((477, 477, 415)):
        data = HeartbeatData(
            client_id=f"c{number}",
            producer_data_set=[ProducerData(group_name="P")],
            consumer_data_set=[
                ConsumerData(group_name=name, consume_type="CONSUME_PASSIVELY")
                for name in ("G", "CID_RMQ_SYS_X")
            ],
        )
        request = RemotingCommand.request(RequestCode.HEART_BEAT, body=encode_body(data))
        request.language, request.version = LanguageCode.JAVA, version
        broker.handlers[RequestCode.HEART_BEAT](request, FakePeer(f"10.0.0.{number}:1"))
    broker.clock.advance(0)
    kinds = [
        {"language": "java", "version": version, "protocol_type": "remoting"}
        for version in ("v5_3_2", "v5_0_1")
    ]
    producers = told(broker, "rocketmq_producer_connections")
    assert sorted((labels["version"], number) for labels, number in producers) == [
        (kinds[1]["version"], 1),
        (kinds[0]["version"], 2),
    ]
    consumers = told(broker, "rocketmq_consumer_connections")
    expected = [
        ({"consumer_group": group, "consume_mode": "push", "is_system": system, **kind}, number)
        for group, system in (("G", "false"), ("CID_RMQ_SYS_X", "true"))
        for kind, number in zip(kinds, (2, 1), strict=True)
    ]
    assert as_set(consumers) == as_set(expected)


def as_set(found: list[tuple[dict[str, str], Any]]) -> set[tuple[tuple[str, str] | Any, ...]]:
    return {(*sorted(labels.items()), value) for labels, value in found}


def test_dead_letters_count_by_where_they_came_from() -> None:
    broker = BrokerInMemory()
    ok(broker.send())
    header = ConsumerSendMsgBackRequestHeader(offset=0, group="G", delay_level=-1)
    for _ in range(2):
        ok(broker.request(RemotingCommand.request(RequestCode.CONSUMER_SEND_MSG_BACK, header)))
    labels = {"consumer_group": "G", "topic": "Topic", "is_system": "false"}
    assert told(broker, "rocketmq_send_to_dlq_messages_total") == [(labels, 2)]


def test_sizes_are_measured_where_somebody_may_ask() -> None:
    broker = BrokerInMemory(is_monitored=True)
    ok(broker.send(b"x" * 10))
    ok(broker.send(b"y" * 2000, properties={"__SHARDINGKEY": "a"}))
    ok(broker.send(properties={"DELAY": "1"}))
    found = told(broker, "rocketmq_message_size")
    kinds = [(labels["topic"], labels["message_type"], labels["is_system"]) for labels, _ in found]
    assert kinds == [
        ("Topic", "normal", "false"),
        ("Topic", "fifo", "false"),
        ("SCHEDULE_TOPIC_XXXX", "delay", "true"),
    ]
    counts = [value.counts for _, value in found]
    assert counts == [(1, 0, 0, 0, 0, 0, 0), (0, 1, 0, 0, 0, 0, 0), (1, 0, 0, 0, 0, 0, 0)]
    assert sum(value.total for _, value in found) == broker.store.end_offset
    assert told(BrokerInMemory(), "rocketmq_message_size") == []
    broker.topics.delete("Topic")
    broker.clock.advance(1)
    assert [labels["topic"] for labels, _ in told(broker, "rocketmq_message_size")] == [
        "SCHEDULE_TOPIC_XXXX"
    ]


def test_what_makes_topics_and_groups_is_timed() -> None:
    broker = BrokerInMemory()

    def make(topic: str) -> RemotingCommand | None:
        header = CreateTopicRequestHeader(
            topic=topic,
            default_topic="TBW102",
            read_queue_nums=4,
            write_queue_nums=4,
            perm=6,
            topic_filter_type="SINGLE_TAG",
            order=False,
        )
        return broker.request(RemotingCommand.request(RequestCode.UPDATE_AND_CREATE_TOPIC, header))

    ok(make("New"))
    assert ok_code(make("bad name!")) != ResponseCode.SUCCESS
    config = SubscriptionGroupConfig(group_name="New")
    ok(
        broker.request(
            RemotingCommand.request(
                RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=encode_body(config)
            )
        )
    )
    topics = values_of(told(broker, "rocketmq_topic_create_execution_time"))
    assert [(labels, number) for labels, number, _ in topics] == [
        ({"invocation_status": "success", "is_system": "false"}, 1),
        ({"invocation_status": "failure", "is_system": "false"}, 1),
    ]
    groups = values_of(told(broker, "rocketmq_consumer_group_create_execution_time"))
    assert [(labels, number) for labels, number, _ in groups] == [
        ({"invocation_status": "success"}, 1)
    ]


def ok_code(response: RemotingCommand | None) -> int:
    assert response is not None
    return response.code


@pytest.fixture
def timed() -> BrokerInMemory:
    broker = BrokerInMemory(timer_wheel_enable=True)
    for seconds in (3, 30, 30, 4000):
        ok(broker.send(properties={"TIMER_DELAY_SEC": str(seconds)}))
    for _ in range(20):
        broker.clock.advance(0.05)
    return broker


def test_delays_and_when_timed_messages_are_due(timed: BrokerInMemory) -> None:
    ((labels, value),) = told(timed, "rocketmq_delay_message_latency")
    assert labels["topic"] == "Topic" and value.counts == (3, 0, 0, 1, 0, 0, 0)
    assert 4058 <= value.total <= 4063
    ahead = {
        int(labels["timer_bound_s"]): number
        for labels, number in told(timed, "rocketmq_timer_message_snapshot")
    }
    assert list(ahead) == [5, 60, 300, 900, 3600, 14_400, 28_800, 86_400]
    assert {seconds: number for seconds, number in ahead.items() if number} == {
        5: 1,
        60: 2,
        14_400: 1,
    }


def test_every_figure_can_be_told(timed: BrokerInMemory) -> None:
    figures = list(timed.broker.metrics())
    assert all(isinstance(figure, Metric) for figure in figures)
    assert len({(figure.name, tuple(sorted(figure.labels.items()))) for figure in figures}) == len(
        figures
    )
