"""Looking at messages and queues."""

from __future__ import annotations

from typing import Any

import pytest

from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.wire.bodies.base import decode_body
from rocketmq_tw.wire.bodies.clients import ConsumeQueueBody
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.pull import (
    QueryConsumeQueueRequestHeader,
    QueryMessageRequestHeader,
)
from tests.support.asked import refused
from tests.support.broker import BrokerInMemory, messages_of, ok
from tests.support.network import FakePeer
from tests.support.stores import START_MS, cut, queues_of


def ask(plane: BrokerInMemory, code: int, **fields: object) -> RemotingCommand | None:
    texts = {name: str(value) for name, value in fields.items()}
    return plane.request(RemotingCommand(code, ext_fields=texts))


@pytest.fixture
def plane() -> BrokerInMemory:
    """Three messages a second apart, with the keys k0 to k2 and a common one."""
    plane = BrokerInMemory()
    for n in range(3):
        ok(plane.send(b"%d" % n, properties={"KEYS": f"k{n} all"}))
        plane.clock.advance(1)
    return plane


def test_view_by_offset(plane: BrokerInMemory) -> None:
    second = plane.consume()[1]
    response = ask(plane, RequestCode.VIEW_MESSAGE_BY_ID, offset=second.physical_offset)
    ok(response)
    assert response is not None
    assert messages_of(response.body) == [second]


@pytest.mark.parametrize("offset", [1, 1 << 40, -1])
def test_no_message_at_an_offset(plane: BrokerInMemory, offset: int) -> None:
    response = ask(plane, RequestCode.VIEW_MESSAGE_BY_ID, offset=offset)
    assert response is not None and response.code == ResponseCode.SYSTEM_ERROR


def query(plane: BrokerInMemory, key: str, **fields: Any) -> RemotingCommand | None:
    header = {
        "topic": "Topic",
        "key": key,
        "max_num": 32,
        "begin_timestamp": 0,
        "end_timestamp": 1 << 60,
    }
    request = RemotingCommand.request(
        RequestCode.QUERY_MESSAGE, QueryMessageRequestHeader(**header | fields)
    )
    return plane.request(request)


def test_query_by_key(plane: BrokerInMemory) -> None:
    response = query(plane, "k1")
    fields = ok(response)
    assert response is not None
    assert [message.body for message in messages_of(response.body)] == [b"1"]
    assert fields["indexLastUpdatePhyoffset"] == str(plane.consume()[2].physical_offset)


def test_query_is_bounded_by_number_and_time(plane: BrokerInMemory) -> None:
    response = query(plane, "all", max_num=2)
    ok(response)
    assert response is not None
    assert len(messages_of(response.body)) == 2
    response = query(plane, "all", end_timestamp=START_MS + 500)
    ok(response)
    assert response is not None
    assert [message.body for message in messages_of(response.body)] == [b"0"]


@pytest.mark.parametrize(("most", "bodies"), [(32, [b"0", b"1", b"2"]), (2, [b"1", b"2"])])
def test_a_query_finds_the_newest_and_tells_them_oldest_first(
    plane: BrokerInMemory, most: int, bodies: list[bytes]
) -> None:
    """Clients take the first one for the message of a unique id."""
    response = query(plane, "all", max_num=most)
    ok(response)
    assert response is not None
    assert [message.body for message in messages_of(response.body)] == bodies


@pytest.mark.parametrize("most", [0, -1])
def test_who_wants_no_message_gets_none(plane: BrokerInMemory, most: int) -> None:
    response = query(plane, "all", max_num=most)
    assert response is not None and response.code == ResponseCode.QUERY_NOT_FOUND


def test_query_finds_nothing(plane: BrokerInMemory) -> None:
    response = query(plane, "other")
    assert response is not None and response.code == ResponseCode.QUERY_NOT_FOUND


QUEUE = {"topic": "Topic", "queueId": 0}


def test_ends_and_times_of_a_queue(plane: BrokerInMemory) -> None:
    assert ok(ask(plane, RequestCode.GET_MAX_OFFSET, **QUEUE)) == {"offset": "3"}
    assert ok(ask(plane, RequestCode.GET_MIN_OFFSET, **QUEUE)) == {"offset": "0"}
    assert ok(ask(plane, RequestCode.GET_EARLIEST_MSG_STORETIME, **QUEUE)) == {
        "timestamp": str(START_MS)
    }


def test_a_queue_that_is_not_there(plane: BrokerInMemory) -> None:
    nowhere = {"topic": "../../etc", "queueId": 7}
    assert ok(ask(plane, RequestCode.GET_MAX_OFFSET, **nowhere)) == {"offset": "0"}
    assert ok(ask(plane, RequestCode.GET_EARLIEST_MSG_STORETIME, **nowhere)) == {"timestamp": "-1"}
    assert set(queues_of(plane.store)) == {"Topic"}


@pytest.mark.parametrize(
    ("time", "boundary", "offset"),
    [(0, None, 0), (1000, None, 1), (1001, "LOWER", 2), (1001, "UPPER", 1), (1500, "upper", 1)],
)
def test_offsets_by_time(
    plane: BrokerInMemory, time: int, boundary: str | None, offset: int
) -> None:
    fields = QUEUE | {"timestamp": START_MS + time}
    if boundary is not None:
        fields["boundaryType"] = boundary
    response = ask(plane, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, **fields)
    assert ok(response) == {"offset": str(offset)}


def with_a_hot_key(**store: Any) -> BrokerInMemory:
    """3,000 messages with the key `all`, after one that is five seconds older."""
    plane = BrokerInMemory(max_index_num=5000, **store)
    ok(plane.send(b"first", properties={"KEYS": "all"}))
    plane.clock.advance(5)
    for _ in range(3000):
        message = StoredMessage(topic="Topic", queue_id=0, body=b"m")
        message.properties = b"KEYS\x01all\x02"
        plane.store.append(message)
    plane.store.write_pending()
    plane.store.fsync()
    plane.store.dispatch()
    return plane


def test_a_key_that_many_messages_share_is_searched_for_in_steps() -> None:
    plane = with_a_hot_key()
    found: list[int] = []
    steps = plane.store.search_by_key("Topic", "all", 32, 0, START_MS + 2000, found)
    assert sum(1 for _ in steps) >= 5
    assert found == [0]


def test_an_index_that_is_cut_during_a_search() -> None:
    plane = with_a_hot_key()
    found: list[int] = []
    steps = plane.store.search_by_key("Topic", "all", 32, 0, START_MS + 2000, found)
    next(steps)
    cut(plane.store, plane.consume()[1].physical_offset)
    assert list(steps) == []
    assert found == []


def test_units_of_a_queue_are_shown() -> None:
    plane = BrokerInMemory()
    plane.add_topic("T", read_queue_nums=4, write_queue_nums=4)
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
