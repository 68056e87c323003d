"""Counts of a topic, as tools see them."""

from rocketmq_tw.wire.bodies.base import decode_body
from rocketmq_tw.wire.bodies.stats import BrokerStatsData
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.headers.broker import ViewBrokerStatsDataRequestHeader
from tests.support.asked import refused
from tests.support.broker import BrokerInMemory


def test_the_traffic_of_a_topic_is_shown(plane: BrokerInMemory) -> None:
    plane.traffic.pulled("T", "G", 4, 40)
    header = ViewBrokerStatsDataRequestHeader(stats_name="GROUP_GET_NUMS", stats_key="T@G")
    answer = plane.ask(RequestCode.VIEW_BROKER_STATS_DATA, header)
    found = decode_body(BrokerStatsData, answer.body)
    assert found.stats_minute is not None and found.stats_minute.sum == 4
    header = ViewBrokerStatsDataRequestHeader(stats_name="GROUP_GET_NUMS", stats_key="T@H")
    with refused(ResponseCode.SYSTEM_ERROR) as refusal:
        plane.ask(RequestCode.VIEW_BROKER_STATS_DATA, header)
    assert "GROUP_GET_NUMS of T@H" in refusal.value.remark
