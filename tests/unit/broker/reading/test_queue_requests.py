"""Units of a consume queue, as tools see them."""

from typing import Any

from rocketmq_tw.wire.bodies.base import decode_body
from rocketmq_tw.wire.bodies.clients import (
    ConsumeQueueBody,
)
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.headers.pull import QueryConsumeQueueRequestHeader
from tests.support.asked import refused
from tests.support.broker import BrokerInMemory
from tests.support.network import FakePeer


def test_units_of_a_queue_are_shown(plane: BrokerInMemory) -> None:
    plane.put("T", b"one", b"two", b"three", queue_id=2)
    first = plane.heartbeat("c1", FakePeer(), topics=("T",))
    assert first.code == 0

    def units(**fields: Any) -> ConsumeQueueBody:
        header = QueryConsumeQueueRequestHeader(topic="T", queue_id=2, **fields)
        return decode_body(
            ConsumeQueueBody, plane.ask(RequestCode.QUERY_CONSUME_QUEUE, header).body
        )

    body = units(index=1, count=10, consumer_group="G")
    assert (body.min_queue_index, body.max_queue_index) == (0, 3)
    shown = [(unit.physic_offset, unit.physic_size) for unit in body.queue_data]
    assert len(shown) == 2 and shown[1][0] == sum(shown[0])
    assert plane.store.message_at(shown[1][0]).body == b"three"
    assert body.subscription_data is not None and body.filter_data == "null"
    stranger = units(index=0, count=1, consumer_group="nobody")
    assert len(stranger.queue_data) == 1
    assert stranger.filter_data == "nobody does not subscribe to T now"
    assert units(index=-1, count=5).queue_data == units(index=3, count=5).queue_data == []
    assert units(index=0, count=1 << 30).queue_data[1:] == body.queue_data
    with refused(ResponseCode.SYSTEM_ERROR):
        plane.ask(RequestCode.QUERY_CONSUME_QUEUE, QueryConsumeQueueRequestHeader(topic="T"))
