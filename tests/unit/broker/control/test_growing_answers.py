"""Answers about everything that the broker has: made in slices, and not without end."""

from __future__ import annotations

import pytest

from rocketmq_tw.broker.clients.registry import Client
from rocketmq_tw.broker.control import consume_stats
from rocketmq_tw.wire.bodies.base import decode_body
from rocketmq_tw.wire.bodies.clients import ConsumerData, ProducerTable, SubscriptionData
from rocketmq_tw.wire.bodies.queues import ConsumeStatsList
from rocketmq_tw.wire.bodies.topics import GroupList, TopicConfig, TopicList
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.clients import (
    GetConsumeStatsInBrokerHeader,
    GetConsumeStatsRequestHeader,
)
from rocketmq_tw.wire.headers.offsets import (
    CloneGroupOffsetRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
    QueryCorrectionOffsetHeader,
    ResetOffsetRequestHeader,
)
from rocketmq_tw.wire.headers.topics import (
    GetTopicStatsInfoRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
    QueryTopicsByConsumerRequestHeader,
)
from tests.support.broker import BrokerInMemory, fired
from tests.support.network import FakePeer


def all_groups(broker: BrokerInMemory) -> ConsumeStatsList:
    header = GetConsumeStatsInBrokerHeader(is_order=False)
    answer = broker.ask(RequestCode.GET_BROKER_CONSUME_STATS, header)
    if hasattr(answer, "addCallback"):
        for _ in range(10):
            broker.clock.advance(0)
        answer = fired(answer)
    return decode_body(ConsumeStatsList, answer.body)


def test_all_groups_at_once_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = BrokerInMemory()
    broker.add_topic("T", read_queue_nums=4, write_queue_nums=4)
    for number in range(10):
        broker.groups.get(f"G{number}")
        broker.offsets.commit(f"G{number}", "T", 0, 1)
    listed = {
        name
        for each in all_groups(broker).consume_stats_list
        for name, stats in each.items()
        if stats
    }
    assert listed == {f"G{number}" for number in range(10)}
    monkeypatch.setattr(consume_stats, "MAX_LISTED_QUEUES", 39)
    with pytest.raises(RequestError, match="more than 39 queues: ask for one group") as raised:
        all_groups(broker)
    assert raised.value.code == ResponseCode.SYSTEM_ERROR


def test_all_producers_and_subscribers_are_looked_for_bit_by_bit() -> None:
    broker = BrokerInMemory()
    peer = FakePeer()
    for number in range(3_000):
        client = Client(peer, "c", "JAVA", 400)
        broker.clients.register_producer(f"P{number}", client)
        data = ConsumerData(
            group_name=f"G{number}", subscription_data_set=[SubscriptionData(topic="T")]
        )
        broker.clients.register_consumer(client, data, notify_changes=False)
    broker.threads.eager = False
    answers: list[RemotingCommand] = []
    for code, header in (
        (RequestCode.GET_ALL_PRODUCER_INFO, None),
        (
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
            QueryTopicConsumeByWhoRequestHeader(topic="T"),
        ),
    ):
        asked = len(answers)
        broker.ask(code, header).addCallback(answers.append)
        assert len(answers) == asked, "it is not looked for in one go"
        for _ in range(100):
            broker.clock.advance(0.001)
            broker.threads.run()
    assert len(decode_body(ProducerTable, answers[0].body).data) == 3_000
    assert len(decode_body(GroupList, answers[1].body).group_list) == 3_000


def bit_by_bit(broker: BrokerInMemory, code: int, header: object) -> RemotingCommand:
    """The answer, which takes some turns of the reactor."""
    broker.threads.eager = False
    answers: list[RemotingCommand] = []
    broker.ask(code, header).addCallback(answers.append)
    assert not answers, "it is not made in one go"
    for _ in range(1_000):
        broker.clock.advance(0.001)
        broker.threads.run()
    broker.threads.eager = True
    return answers[0]


@pytest.mark.parametrize(
    ("code", "header", "listed"),
    [
        (202, GetTopicStatsInfoRequestHeader(topic="T"), b'"maxOffset"'),
        (208, GetConsumeStatsRequestHeader(consumer_group="G"), b'"consumerOffset"'),
        (303, QueryConsumeTimeSpanRequestHeader(topic="T", group="G"), b'"minTimeStamp"'),
        (308, QueryCorrectionOffsetHeader(topic="T", compare_group="other"), b":7"),
        (222, ResetOffsetRequestHeader(topic="T", group="G", timestamp=-1), b'"queueId"'),
    ],
)
def test_answers_about_all_queues_of_a_topic_are_made_bit_by_bit(
    code: int, header: object, listed: bytes
) -> None:
    broker = BrokerInMemory()
    broker.add_topic("T", read_queue_nums=1_000, write_queue_nums=1_000)
    broker.groups.get("G")
    for queue_id in range(1_000):
        broker.offsets.commit("G", "T", queue_id, 7)
    if code == RequestCode.INVOKE_BROKER_TO_RESET_OFFSET:
        broker.subscribe("G", FakePeer(), topic="T")
    answer = bit_by_bit(broker, code, header)
    assert answer.code == 0 and answer.body.count(listed) == 1_000


def test_all_topics_of_a_group_are_listed_and_copied_bit_by_bit() -> None:
    broker = BrokerInMemory()
    names = [f"T{number}" for number in range(9_000)]
    broker.topics.update(*[TopicConfig(topic_name=name, read_queue_nums=1) for name in names])
    broker.groups.get("D")
    for name in names:
        broker.offsets.commit("G", name, 0, 1)
    header = QueryTopicsByConsumerRequestHeader(group="G")
    answer = bit_by_bit(broker, RequestCode.QUERY_TOPICS_BY_CONSUMER, header)
    assert decode_body(TopicList, answer.body).topic_list == sorted(names)
    copied = CloneGroupOffsetRequestHeader(src_group="G", dest_group="D")
    assert bit_by_bit(broker, RequestCode.CLONE_GROUP_OFFSET, copied).code == 0
    assert broker.offsets.topics_of("D") == set(names)


def test_a_group_of_too_many_queues_is_asked_about_topic_by_topic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = BrokerInMemory()
    for name in ("T", "U"):
        broker.add_topic(name, read_queue_nums=4, write_queue_nums=4)
        broker.offsets.commit("G", name, 0, 1)
    monkeypatch.setattr(consume_stats, "MAX_LISTED_QUEUES", 7)
    with pytest.raises(RequestError, match="more than 7 queues: ask for one topic at a time"):
        broker.ask(RequestCode.GET_CONSUME_STATS, GetConsumeStatsRequestHeader(consumer_group="G"))
