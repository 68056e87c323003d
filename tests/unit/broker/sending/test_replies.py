"""Replies to requesters: who gets them, what the replier is told, what is stored."""

from __future__ import annotations

from typing import Any

import pytest

from rocketmq_tw.config.change import change
from rocketmq_tw.message.properties import parse_properties
from rocketmq_tw.net.errors import ConnectionLost
from rocketmq_tw.wire.bodies.clients import HeartbeatData, ProducerData
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.send import ReplyMessageRequestHeader, SendMessageRequestHeader
from tests.support.broker import BrokerInMemory, ok
from tests.support.network import FakePeer

TOPIC = "DefaultCluster_REPLY_TOPIC"


def requester(
    broker: BrokerInMemory, client_id: str = "asker", *groups: str, peer: FakePeer | None = None
) -> FakePeer:
    peer = peer or FakePeer("127.0.0.1:40001")
    produces = [ProducerData(group_name=group) for group in groups or ("P",)]
    data = HeartbeatData(client_id=client_id, producer_data_set=produces)
    broker.ask(RequestCode.HEART_BEAT, body=data, peer=peer)
    return peer


def reply_request(client_id: str | None = "asker", **fields: Any) -> RemotingCommand:
    broker = BrokerInMemory(started=False)
    properties = {"MSG_TYPE": "reply", "CORRELATION_ID": "c", "TTL": "3000"}
    if client_id is not None:
        properties["REPLY_TO_CLIENT"] = client_id
    return broker.send_request(
        b"answer",
        code=RequestCode.SEND_REPLY_MESSAGE_V2,
        properties=properties,
        **{"topic": TOPIC, "flag": 7} | fields,
    )


def answered(broker: BrokerInMemory, request: RemotingCommand) -> RemotingCommand:
    broker.clock.advance(0)
    (answer,) = (each for each in broker.peer.replies if each.opaque == request.opaque)
    return answer


def say(peer: FakePeer, code: int = ResponseCode.SUCCESS, remark: str | None = None) -> None:
    """The requester's word on the reply that it got last."""
    command, waiting = peer.requests[-1]
    waiting.callback(command.response(code, remark))


def test_the_requester_gets_it_and_the_replier_its_word() -> None:
    broker = BrokerInMemory()
    peer = requester(broker)
    request = reply_request()
    assert broker.request(request) is None
    (pushed, _) = peer.requests[0]
    assert (pushed.code, pushed.body) == (RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, b"answer")
    header = pushed.header(ReplyMessageRequestHeader)
    assert (header.topic, header.producer_group, header.flag) == (TOPIC, "P", 7)
    assert (header.born_host, header.store_host) == ("127.0.0.1:50000", "127.0.0.1:10911")
    assert header.born_timestamp == 5
    assert header.store_timestamp == broker.now_ms()
    properties = parse_properties(header.properties or "")
    assert properties == {
        "MSG_TYPE": "reply",
        "CORRELATION_ID": "c",
        "TTL": "3000",
        "REPLY_TO_CLIENT": "asker",
        "PUSH_REPLY_TIME": str(broker.now_ms()),
    }
    assert not broker.consume(TOPIC), "it is stored once the requester has it"
    say(peer)
    fields = ok(answered(broker, request))
    (stored,) = broker.consume(TOPIC)
    assert stored.body == b"answer"
    assert stored.properties == {
        name: value for name, value in properties.items() if name != "PUSH_REPLY_TIME"
    }
    assert fields == {
        "msgId": f"7F00000100002A9F{stored.physical_offset:016X}",
        "queueId": "0",
        "queueOffset": "0",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }


def test_code_324_has_long_names() -> None:
    broker = BrokerInMemory()
    peer = requester(broker)
    header = SendMessageRequestHeader(
        producer_group="P",
        topic=TOPIC,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=-1,
        sys_flag=0,
        born_timestamp=0,
        flag=0,
        properties="REPLY_TO_CLIENT\x01asker\x02",
    )
    request = RemotingCommand.request(RequestCode.SEND_REPLY_MESSAGE, header, b"x")
    assert broker.request(request) is None
    say(peer)
    assert ok(answered(broker, request))["queueId"] == "0"


def test_nothing_is_stored_where_that_is_switched_off() -> None:
    broker = BrokerInMemory(broker={"store_reply_message_enable": False})
    peer = requester(broker)
    request = reply_request()
    broker.request(request)
    say(peer)
    fields = ok(answered(broker, request))
    assert (fields["msgId"], fields["queueId"], fields["queueOffset"]) == ("0", "0", "0")
    assert not broker.consume(TOPIC)
    change(broker.config, {"storeReplyMessageEnable": "true"})
    request = reply_request()
    broker.request(request)
    say(peer)
    assert ok(answered(broker, request))["msgId"] != "0"
    assert len(broker.consume(TOPIC)) == 1


def test_who_is_not_there_is_said() -> None:
    broker = BrokerInMemory()
    for client_id, remark in (("asker", "asker is not connected"), (None, "REPLY_TO_CLIENT")):
        request = reply_request(client_id)
        broker.request(request)
        answer = answered(broker, request)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert remark in (answer.remark or "")
    # Stored all the same, as stock does.
    assert len(broker.consume(TOPIC)) == 2


def test_who_goes_or_refuses_meanwhile_is_said() -> None:
    broker = BrokerInMemory()
    peer = requester(broker)
    gone = reply_request()
    broker.request(gone)
    peer.requests[-1][1].errback(ConnectionLost(peer.address, "reset"))
    refused = reply_request()
    broker.request(refused)
    say(peer, ResponseCode.SYSTEM_ERROR, "no room")
    broker.clock.advance(0)
    for request, remark in ((gone, "did not reach"), (refused, "no room")):
        answer = answered(broker, request)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert remark in (answer.remark or "")
    assert broker.send_checks.in_flight == 0


def test_what_may_not_be_sent_may_be_no_reply() -> None:
    broker = BrokerInMemory()
    requester(broker)
    for fields, code in (
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, ResponseCode.NO_PERMISSION),
        ({"queue_id": 99}, ResponseCode.INVALID_PARAMETER),
    ):
        answer = broker.request(reply_request(**fields))
        assert answer is not None and answer.code == code


def test_replies_that_wait_have_a_bound() -> None:
    broker = BrokerInMemory(in_flight_limit=10)
    peer = requester(broker)
    assert broker.request(reply_request()) is None
    answer = broker.request(reply_request())
    assert answer is not None and answer.code == ResponseCode.SYSTEM_BUSY
    say(peer)
    broker.clock.advance(0)
    assert broker.request(reply_request()) is None


def test_a_reply_that_cannot_be_stored_reached_its_requester() -> None:
    broker = BrokerInMemory()
    peer = requester(broker)
    request = reply_request()
    broker.request(request)
    broker.commit.stop()
    say(peer)
    assert ok(answered(broker, request))["msgId"] == "0"


def test_a_slave_takes_none() -> None:
    broker = BrokerInMemory(broker_role="SLAVE")
    answer = broker.request(reply_request())
    assert answer is not None and answer.code == ResponseCode.SYSTEM_BUSY


class TestWhoTheRequesterIs:
    def test_the_newest_connection(self) -> None:
        broker = BrokerInMemory()
        old = requester(broker)
        new = requester(broker, peer=FakePeer("127.0.0.1:40002"))
        assert broker.clients.producer_peer("asker") is new
        new.lose()
        assert broker.clients.producer_peer("asker") is old
        old.lose()
        assert broker.clients.producer_peer("asker") is None

    def test_one_that_still_produces_for_another_group(self) -> None:
        broker = BrokerInMemory()
        peer = requester(broker, "asker", "P", "Q")
        broker.clients.unregister_producer("P", peer)
        assert broker.clients.producer_peer("asker") is peer
        broker.clients.unregister_producer("Q", peer)
        assert broker.clients.producer_peer("asker") is None

    @pytest.mark.parametrize("times", [1, 3])
    def test_heartbeats_that_come_again_count_once(self, times: int) -> None:
        broker = BrokerInMemory()
        peer = FakePeer()
        for _ in range(times):
            requester(broker, peer=peer)
        broker.clients.unregister_producer("P", peer)
        assert broker.clients.producer_peer("asker") is None
