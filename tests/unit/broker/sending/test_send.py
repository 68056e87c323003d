"""Sending: what is stored, what is answered, what is refused and with which code."""

from __future__ import annotations

from typing import Any

import pytest

from rocketmq_tw.config.change import change
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.message.batch import BatchedMessage, encode_batch
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand, SerializeType
from rocketmq_tw.wire.headers.base import header_to_fields, read_header
from rocketmq_tw.wire.headers.send import SendMessageRequestHeader, SendMessageResponseHeader
from tests.support.broker import BrokerInMemory, Threads, ok
from tests.support.network import FakePeer


def code_of(response: RemotingCommand | None) -> int:
    assert response is not None
    assert response.remark, "a refusal says what to change"
    return response.code


def test_a_message_is_stored_and_answered_as_by_stock() -> None:
    plane = BrokerInMemory()
    plane.send()
    fields = ok(plane.send(b"hello", properties={"UNIQ_KEY": "U", "TAGS": "a"}, flag=3))
    assert fields == {
        "msgId": f"7F00000100002A9F{plane.consume()[1].physical_offset:016X}",
        "queueId": "0",
        "queueOffset": "1",
        "transactionId": "U",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }
    message = plane.consume()[1]
    assert (message.body, message.flag, message.born_timestamp) == (b"hello", 3, 5)
    assert message.born_host == ("127.0.0.1", 50000)
    assert message.store_host == ("127.0.0.1", 10911)
    assert message.properties == {
        "UNIQ_KEY": "U",
        "TAGS": "a",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
        "CLUSTER": "DefaultCluster",
    }


def test_the_answers_short_way_gives_what_its_header_does() -> None:
    plane = BrokerInMemory()
    for properties in ({"UNIQ_KEY": "U"}, {}):
        fields = ok(plane.send(b"hello", properties=properties))
        header = read_header(SendMessageResponseHeader, fields)
        fields = {name: fields[name] for name in fields if name not in ("MSG_REGION", "TRACE_ON")}
        assert header_to_fields(header) == fields


def test_the_answer_has_the_requests_opaque_and_form() -> None:
    plane = BrokerInMemory()
    request = plane.send_request()
    request.serialization = SerializeType.ROCKETMQ
    response = plane.request(request)
    assert response is not None and response.is_response
    assert (response.opaque, response.serialization) == (request.opaque, SerializeType.ROCKETMQ)


def test_code_10_has_long_names() -> None:
    plane = BrokerInMemory()
    header = SendMessageRequestHeader(
        producer_group="P",
        topic="Topic",
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=3,
        sys_flag=0,
        born_timestamp=0,
        flag=0,
    )
    assert ok(plane.request(RemotingCommand.request(10, header, b"x")))["queueId"] == "3"
    assert len(plane.consume(queue_id=3)) == 1


def test_a_message_without_a_unique_id_gets_one() -> None:
    plane = BrokerInMemory()
    fields = ok(plane.send())
    assert plane.consume()[0].properties["UNIQ_KEY"] == fields["transactionId"]


def test_oneway_is_stored_and_not_answered() -> None:
    plane = BrokerInMemory()
    assert plane.send(oneway=True) is None
    assert len(plane.peer.ended) == 1, "its server knows that it is over"
    assert len(plane.consume()) == 1
    assert plane.send_checks.in_flight == 0


def test_a_pop_checkpoint_of_the_client_is_not_believed() -> None:
    plane = BrokerInMemory()
    plane.send(properties={"POP_CK": "x", "POP_CK_OFFSET": "1"})
    assert "POP_CK" not in plane.consume()[0].properties
    assert plane.consume()[0].properties["POP_CK_OFFSET"] == "1"


def test_a_negative_queue_is_any_of_the_topics() -> None:
    plane = BrokerInMemory()
    used = {ok(plane.send(queue_id=-1))["queueId"] for _ in range(200)}
    assert used == {"0", "1", "2", "3"}


def test_the_topic_is_made_with_the_queues_asked_for() -> None:
    plane = BrokerInMemory()
    ok(plane.send(default_topic_queue_nums=3))
    topic = plane.topics.get("Topic")
    assert topic is not None and topic.write_queue_nums == 3


class TestRefusals:
    @pytest.mark.parametrize(
        ("code", "given"),
        [
            (ResponseCode.INVALID_PARAMETER, {"topic": ""}),
            (ResponseCode.INVALID_PARAMETER, {"topic": "../../etc"}),
            (ResponseCode.INVALID_PARAMETER, {"topic": "a" * 128}),
            (ResponseCode.NO_PERMISSION, {"topic": "SCHEDULE_TOPIC_XXXX"}),
            (ResponseCode.NO_PERMISSION, {"topic": "RMQ_SYS_TRANS_HALF_TOPIC"}),
            (ResponseCode.TOPIC_NOT_EXIST, {"default_topic": "Nowhere"}),
            (ResponseCode.INVALID_PARAMETER, {"queue_id": 4}),
            (ResponseCode.MESSAGE_ILLEGAL, {"body": b""}),
            (ResponseCode.MESSAGE_ILLEGAL, {"body": bytes(2049)}),
            (ResponseCode.MESSAGE_ILLEGAL, {"properties": {"k": "x" * 32767}}),
            (ResponseCode.MESSAGE_ILLEGAL, {"properties": {"k": "ü" * 16384}}),
            (ResponseCode.MESSAGE_ILLEGAL, {"properties": {"DELAY": "soon"}}),
            (ResponseCode.MESSAGE_ILLEGAL, {"properties": {"TIMER_DELAY_SEC": "soon"}}),
            (ResponseCode.MESSAGE_ILLEGAL, {"properties": {"TIMER_DELAY_SEC": "9999999"}}),
        ],
        ids=str,
    )
    def test_refused(self, code: ResponseCode, given: dict[str, Any]) -> None:
        plane = BrokerInMemory()
        assert code_of(plane.send(**given)) == code
        assert plane.send_checks.in_flight == 0
        assert plane.store.end_offset == 0

    def test_a_missing_field_is_named(self) -> None:
        plane = BrokerInMemory()
        request = plane.send_request()
        del request.ext_fields["b"]
        response = plane.request(request)
        assert code_of(response) == ResponseCode.SYSTEM_ERROR
        assert response is not None and "`b`" in str(response.remark)

    def test_no_topic_is_made_where_that_is_off(self) -> None:
        plane = BrokerInMemory(broker={"auto_create_topic_enable": False})
        assert code_of(plane.send()) == ResponseCode.TOPIC_NOT_EXIST

    def test_an_ordered_topic_of_a_broker_that_may_not_be_written_to(self) -> None:
        plane = BrokerInMemory(broker={"broker_permission": 4})
        plane.add_topic("Topic", order=True)
        assert code_of(plane.send()) == ResponseCode.NO_PERMISSION

    def test_before_its_time(self) -> None:
        plane = BrokerInMemory(broker={"start_accept_send_request_time_stamp": 1 << 60})
        assert code_of(plane.send()) == ResponseCode.SYSTEM_ERROR

    def test_a_closed_store(self) -> None:
        plane = BrokerInMemory()
        plane.store.close()
        assert code_of(plane.send()) == ResponseCode.SERVICE_NOT_AVAILABLE
        assert plane.send_checks.in_flight == 0


def test_a_nearly_full_disk_takes_no_message_until_there_is_room() -> None:
    files = MemoryFiles()
    plane = BrokerInMemory(files)
    ok(plane.send())
    files.capacity = files.usage("/").used
    plane.clock.advance(10)
    refused = plane.send()
    assert refused is not None and refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert refused.remark is not None and "disk is nearly full" in refused.remark
    assert len(plane.consume()) == 1
    files.capacity *= 100
    plane.clock.advance(10)
    ok(plane.send())


def test_too_much_in_flight_is_refused_until_some_is_answered() -> None:
    threads = Threads(eager=False)
    plane = BrokerInMemory(threads=threads, in_flight_limit=1000, flush_disk_type="SYNC_FLUSH")
    assert plane.send(bytes(900)) is None
    assert code_of(plane.send(bytes(200))) == ResponseCode.SYSTEM_BUSY
    threads.run()
    assert plane.send_checks.in_flight == 0
    assert plane.send(bytes(200)) is None
    threads.run()
    assert len(plane.peer.replies) == 2


def broker_with_a_hung_disk() -> BrokerInMemory:
    """The topic is there; what is sent to it is never synced."""
    threads = Threads(eager=False)
    broker = BrokerInMemory(threads=threads, flush_disk_type="SYNC_FLUSH")
    broker.add_topic("Topic", read_queue_nums=4, write_queue_nums=4)
    threads.run()
    return broker


def test_a_disk_time_out_says_where_the_message_is() -> None:
    broker = broker_with_a_hung_disk()
    assert broker.send() is None
    broker.clock.advance(5)
    (response,) = broker.peer.replies
    assert code_of(response) == ResponseCode.FLUSH_DISK_TIMEOUT
    assert response.ext_fields["queueOffset"] == "0"


def test_wait_false_does_not_wait() -> None:
    ok(broker_with_a_hung_disk().send(properties={"WAIT": "false"}))


def test_delayed_messages_wait_in_their_levels_queue() -> None:
    plane = BrokerInMemory()
    fields = ok(plane.send(queue_id=2, properties={"DELAY": "3"}))
    assert fields["queueId"] == "2"
    (message,) = plane.consume("SCHEDULE_TOPIC_XXXX", 2)
    assert message.properties["REAL_TOPIC"] == "Topic"
    assert message.properties["REAL_QID"] == "2"
    assert plane.consume(queue_id=2) == []


def test_a_level_too_high_is_the_highest() -> None:
    plane = BrokerInMemory()
    ok(plane.send(properties={"DELAY": "99", "TIMER_DELAY_SEC": "1"}))
    (message,) = plane.consume("SCHEDULE_TOPIC_XXXX", 17)
    assert message.properties["DELAY"] == "18"
    assert "TIMER_DELAY_SEC" not in message.properties


class TestBatch:
    def batch(self, *properties: bytes) -> bytes:
        return encode_batch(BatchedMessage(n, b"%d" % n, text) for n, text in enumerate(properties))

    def test_messages_are_stored_one_after_the_other(self) -> None:
        plane = BrokerInMemory()
        plane.send()
        fields = ok(
            plane.send(
                self.batch(b"UNIQ_KEY\x01u0\x02", b"TAGS\x01a\x02UNIQ_KEY\x01u1", b""),
                code=RequestCode.SEND_BATCH_MESSAGE,
                properties={"UNIQ_KEY": "whole", "WAIT": "true"},
                batch=True,
            )
        )
        messages = plane.consume()[1:]
        assert fields["queueOffset"] == "1"
        assert fields["msgId"] == ",".join(message.offset_message_id for message in messages)
        assert [message.body for message in messages] == [b"0", b"1", b"2"]
        assert [message.flag for message in messages] == [0, 1, 2]
        own = [m.properties for m in messages]
        assert own[0]["UNIQ_KEY"] == "u0" and own[1]["UNIQ_KEY"] == "u1"
        assert own[1]["TAGS"] == "a"
        assert all(p["CLUSTER"] == "DefaultCluster" and p["WAIT"] == "true" for p in own)

    def test_batch_by_the_flag_of_code_310(self) -> None:
        plane = BrokerInMemory()
        ok(plane.send(self.batch(b"", b""), batch=True))
        assert len(plane.consume()) == 2

    @pytest.mark.parametrize(
        "given",
        [
            {"body": b"no batch"},
            {"topic": "%RETRY%G"},
            {"properties": {"DELAY": "1"}},
            {"properties": {"TIMER_DELAY_SEC": "60"}},
            {"properties": {"TIMER_DELIVER_MS": "1"}},
            {"sys_flag": 4},
            {"body": encode_batch([BatchedMessage(0, bytes(2000), b"")] * 2)},
        ],
        ids=str,
    )
    def test_refused(self, given: dict[str, Any]) -> None:
        plane = BrokerInMemory()
        given = {"body": self.batch(b"")} | given
        response = plane.send(code=RequestCode.SEND_BATCH_MESSAGE, batch=True, **given)
        assert code_of(response) == ResponseCode.MESSAGE_ILLEGAL
        assert plane.store.end_offset == 0


class TestRetryTopics:
    def test_a_consumer_sends_back_by_itself(self) -> None:
        plane = BrokerInMemory()
        ok(plane.send(topic="%RETRY%G", reconsume_times=3, properties={"DELAY": "4"}))
        (message,) = plane.consume("SCHEDULE_TOPIC_XXXX", 3)
        assert message.reconsume_times == 3
        assert message.properties["REAL_TOPIC"] == "%RETRY%G"

    @pytest.mark.parametrize(
        "given", [{"reconsume_times": 17}, {"reconsume_times": 3, "max_reconsume_times": 2}]
    )
    def test_too_often_consumed_is_dead(self, given: dict[str, int]) -> None:
        plane = BrokerInMemory()
        ok(plane.send(topic="%RETRY%G", properties={"DELAY": "4"}, **given))
        (message,) = plane.consume("%DLQ%G")
        assert message.properties["DELAY"] == "-1"
        topic = plane.topics.get("%DLQ%G")
        assert topic is not None and (topic.perm, topic.write_queue_nums) == (6, 1)

    def test_what_an_orderly_group_gives_up_is_dead_at_once(self) -> None:
        broker = BrokerInMemory()
        broker.locks.lock("G", ["a queue"], "client")
        ok(broker.send(topic="%RETRY%G", reconsume_times=1))
        assert len(broker.consume("%DLQ%G")) == 1

    def test_a_group_that_is_not_there(self) -> None:
        plane = BrokerInMemory(broker={"auto_create_subscription_group": False})
        response = plane.send(topic="%RETRY%G")
        assert code_of(response) == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


def test_half_messages_go_through_their_redirect() -> None:
    broker = BrokerInMemory()
    ok(broker.send(properties={"TRAN_MSG": "true"}))
    assert len(broker.consume("RMQ_SYS_TRANS_HALF_TOPIC")) == 1
    change(broker.config, {"rejectTransactionMessage": "true"})
    assert code_of(broker.send(properties={"TRAN_MSG": "true"})) == ResponseCode.NO_PERMISSION
    assert len(broker.consume("RMQ_SYS_TRANS_HALF_TOPIC")) == 1
    ok(broker.send(properties={"TRAN_MSG": "false"}))
    assert len(broker.consume()) == 1


def test_an_ipv6_producer() -> None:
    plane = BrokerInMemory()
    ok(plane.request(plane.send_request(), FakePeer("[2001:db8::7]:4000")))
    assert plane.consume()[0].born_host == ("2001:db8::7", 4000)


def test_check_points_come_from_brokers_of_the_cluster() -> None:
    plane = BrokerInMemory(
        net={"cluster_addresses": "10.1.0.0/16", "admin_addresses": "10.8.0.0/16"}
    )

    def code_for(address: str, local_address: str = "10.1.0.1:10911", **changes: Any) -> int:
        request = plane.send_request(**{"topic": "rmq_sys_REVIVE_LOG_DefaultCluster"} | changes)
        answer = plane.request(request, FakePeer(address, local_address))
        assert answer is not None
        return answer.code

    assert code_for("10.2.0.1:50000") == ResponseCode.NO_PERMISSION
    assert code_for("10.2.0.1:50000", topic="Topic") == ResponseCode.SUCCESS
    for address in ("10.1.0.7:50000", "127.0.0.1:50000", "10.8.0.7:50000"):
        assert code_for(address) == ResponseCode.SUCCESS
    # A broker of this process.
    assert code_for("10.2.0.1:10911", "10.2.0.1:10911") == ResponseCode.SUCCESS


def test_without_cluster_addresses_any_peer_may_be_an_acting_master() -> None:
    plane = BrokerInMemory()
    request = plane.send_request(topic="rmq_sys_REVIVE_LOG_DefaultCluster")
    ok(plane.request(request, FakePeer("10.2.0.1:50000")))
