"""How far groups are, as tools see it."""

from rocketmq_tw.wire.bodies.base import decode_body
from rocketmq_tw.wire.bodies.queues import (
    ConsumeStats,
    MessageQueue,
    TopicStatsTable,
)
from rocketmq_tw.wire.bodies.topics import TopicConfig
from rocketmq_tw.wire.codes import RequestCode
from rocketmq_tw.wire.headers.clients import (
    GetConsumeStatsRequestHeader,
)
from rocketmq_tw.wire.headers.topics import (
    GetTopicStatsInfoRequestHeader,
)
from tests.support.asked import commit_offset
from tests.support.broker import BrokerInMemory


def test_consume_stats_tell_the_lag(plane: BrokerInMemory) -> None:
    plane.groups.get("G")
    plane.put("T", b"one", b"two", b"three")
    commit_offset(plane, 1)
    header = GetConsumeStatsRequestHeader(consumer_group="G")
    body = decode_body(ConsumeStats, plane.ask(RequestCode.GET_CONSUME_STATS, header).body)
    queue = MessageQueue(topic="T", broker_name="broker-a", queue_id=0)
    wrapper = body.offset_table[queue]
    assert (wrapper.broker_offset, wrapper.consumer_offset) == (3, 1)
    assert body.consume_tps == 0
    assert wrapper.last_timestamp == plane.now_ms() - 2


def test_rates_are_told_with_the_offsets(plane: BrokerInMemory) -> None:
    plane.groups.get("G")
    plane.topics.update(TopicConfig(topic_name="T"))
    plane.put("T", *[b"x"] * 60)
    commit_offset(plane, 1)
    plane.traffic.pulled("T", "G", 30, 300)
    plane.clock.advance(2)
    asked = plane.ask(RequestCode.GET_TOPIC_STATS_INFO, GetTopicStatsInfoRequestHeader(topic="T"))
    put_tps = decode_body(TopicStatsTable, asked.body).topic_put_tps
    asked = plane.ask(
        RequestCode.GET_CONSUME_STATS, GetConsumeStatsRequestHeader(consumer_group="G")
    )
    get_tps = decode_body(ConsumeStats, asked.body).consume_tps
    assert put_tps is not None and 28 < put_tps <= 30.5 and 14 < get_tps <= 15.5
