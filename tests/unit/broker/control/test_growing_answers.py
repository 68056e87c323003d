"""Answers about everything that the broker has: made in slices, and not without end."""

from __future__ import annotations

import pytest

from rocketmq_tw.broker.clients.registry import Client
from rocketmq_tw.broker.control import consume_stats
from rocketmq_tw.wire.bodies.base import decode_body
from rocketmq_tw.wire.bodies.consumers import ProducerTable
from rocketmq_tw.wire.bodies.heartbeat import ConsumerData, SubscriptionData
from rocketmq_tw.wire.bodies.offsets import ConsumeStatsList
from rocketmq_tw.wire.bodies.topics import GroupList
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.groups import GetConsumeStatsInBrokerHeader
from rocketmq_tw.wire.headers.topics import QueryTopicConsumeByWhoRequestHeader
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
