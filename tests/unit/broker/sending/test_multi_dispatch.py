"""Messages in further queues: light ones (%LMQ%) and queues of other topics."""

from __future__ import annotations

from typing import Any

import pytest

from rocketmq_tw.files.interface import IFiles
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.message.batch import BatchedMessage, encode_batch
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.message.properties import join_properties
from rocketmq_tw.message.record import decode_record
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.headers.offsets import (
    QueryConsumerOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from tests.support.broker import BrokerInMemory, ok
from tests.support.network import FakePeer
from tests.support.pops import Popper, pass_time
from tests.support.transactions import begin, end

A, B = "%LMQ%a", "%LMQ%b"


def light(files: IFiles | None = None, **store: Any) -> BrokerInMemory:
    return BrokerInMemory(files, enable_lmq=True, enable_multi_dispatch=True, **store)


def send(broker: BrokerInMemory, body: bytes, names: str, **fields: Any) -> RemotingCommand:
    answer = broker.send(body, properties={"INNER_MULTI_DISPATCH": names}, **fields)
    assert answer is not None
    return answer


def queue(broker: BrokerInMemory, topic: str, queue_id: int = 0) -> list[bytes]:
    """The bodies that the units of a queue point to."""
    units = broker.store.queue_units(topic, queue_id, 0, 100)
    records = [broker.store.record_at(unit.position) for unit in units]
    return [decode_record(record).body for record in records if record is not None]


def test_a_message_stands_in_each_queue_that_it_names() -> None:
    broker = light()
    ok(send(broker, b"both", f"{A},{B}", queue_id=2))
    ok(send(broker, b"one", B))
    ok(broker.send(b"plain"))
    assert queue(broker, A) == [b"both"]
    assert queue(broker, B) == [b"both", b"one"]
    assert queue(broker, "Topic") == [b"one", b"plain"]
    assert queue(broker, "Topic", 2) == [b"both"]
    (first,) = broker.consume("Topic", 2)
    assert first.properties["INNER_MULTI_QUEUE_OFFSET"] == "0,0"
    assert broker.consume("Topic")[0].properties["INNER_MULTI_QUEUE_OFFSET"] == "1"


def test_a_queue_named_twice_has_it_once() -> None:
    broker = light()
    ok(send(broker, b"x", f"{A},{A}"))
    ok(send(broker, b"y", A))
    assert queue(broker, A) == [b"x", b"y"]
    assert broker.consume()[0].properties["INNER_MULTI_QUEUE_OFFSET"] == "0,0"


def test_what_waits_need_not_be_stored() -> None:
    broker = light()
    properties = {"INNER_MULTI_DISPATCH": A, "WAIT": "true", "TAGS": "t"}
    ok(broker.send(b"x", properties=properties))
    assert "WAIT" not in broker.consume()[0].properties
    assert broker.consume()[0].properties["TAGS"] == "t"


def test_light_queues_are_pulled_without_a_topic() -> None:
    broker = light()
    ok(send(broker, b"x", A))
    answer = broker.pull(0, topic=A, consumer_group="%LMQ%g")
    assert ok(answer)["nextBeginOffset"] == "1"
    assert broker.topics.get(A) is not None
    assert A not in broker.topics.all()
    assert "%LMQ%g" not in broker.groups.all()
    refused = broker.pull(0, topic=A, queue_id=1)
    assert refused is not None and refused.code == ResponseCode.INVALID_PARAMETER


def test_a_held_pull_wakes() -> None:
    broker = light()
    ok(send(broker, b"x", A))
    peer = FakePeer()
    held = broker.request(broker.pull_request(1, topic=A, suspend_ms=60_000), peer)
    assert held is None
    ok(send(broker, b"y", A))
    broker.clock.advance(0)
    (answer,) = peer.replies
    assert decode_record(answer.body).body == b"y"


def test_queues_of_other_topics() -> None:
    broker = BrokerInMemory(enable_multi_dispatch=True)
    ok(send(broker, b"x", "Other,Third", queue_id=3))
    assert queue(broker, "Other", 3) == queue(broker, "Third", 3) == [b"x"]
    # Its own sends go on behind.
    ok(broker.send(b"y", topic="Other", queue_id=3))
    assert queue(broker, "Other", 3) == [b"x", b"y"]


def test_switched_off_it_is_a_property_like_any_other() -> None:
    broker = BrokerInMemory()
    ok(send(broker, b"x", A))
    assert not broker.store.queue_ids(A)
    assert "INNER_MULTI_QUEUE_OFFSET" not in broker.consume()[0].properties


@pytest.mark.parametrize(
    "names", ["a/b", "..", "%RETRY%g", "SCHEDULE_TOPIC_XXXX", "rmq_sys_x", f"{A},", "Topic"]
)
def test_what_is_no_topic_for_messages_is_refused(names: str) -> None:
    broker = light()
    answer = send(broker, b"x", names)
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert answer.remark
    assert not broker.store.queue_ids("Topic")


def test_light_queues_have_a_limit() -> None:
    broker = light(max_lmq_consume_queue_num=2)
    ok(send(broker, b"x", f"{A},{B}"))
    answer = send(broker, b"x", "%LMQ%c")
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "maxLmqConsumeQueueNum" in (answer.remark or "")
    ok(send(broker, b"x", A))
    many = ",".join(f"%LMQ%{number}" for number in range(1_001))
    assert send(broker, b"x", many).code == ResponseCode.MESSAGE_ILLEGAL


def test_a_batch_names_none() -> None:
    broker = light()
    named = f"INNER_MULTI_DISPATCH\x01{A}\x02".encode()
    body = encode_batch([BatchedMessage(0, b"x", named)])
    ok(broker.send(body, code=RequestCode.SEND_BATCH_MESSAGE, batch=True))
    assert not broker.store.queue_ids(A)
    forged = named + b"INNER_MULTI_QUEUE_OFFSET\x019\x02"
    body = encode_batch([BatchedMessage(0, b"x", forged)])
    answer = broker.send(body, code=RequestCode.SEND_BATCH_MESSAGE, batch=True)
    assert answer is not None and answer.code == ResponseCode.MESSAGE_ILLEGAL


def test_what_a_sender_says_of_offsets_counts_for_nothing() -> None:
    broker = light()
    ok(broker.send(b"x", properties={"INNER_MULTI_DISPATCH": A, "INNER_MULTI_QUEUE_OFFSET": "77"}))
    assert queue(broker, A) == [b"x"]


@pytest.mark.parametrize("killed", [True, False])
def test_a_restart_goes_on(killed: bool) -> None:
    files = MemoryFiles()
    broker = light(files)
    for body in (b"0", b"1", b"2"):
        ok(send(broker, body, f"{A},{B}"))
    if killed:
        files = files.kill()
    else:
        broker.stop()
    again = light(files)
    assert queue(again, A) == queue(again, B) == [b"0", b"1", b"2"]
    ok(send(again, b"3", A))
    assert queue(again, A) == [b"0", b"1", b"2", b"3"]


def test_queues_that_are_lost_are_built_again() -> None:
    broker = light()
    for body in (b"0", b"1"):
        ok(send(broker, body, f"{A},{B}"))
    broker.stop()
    broker.files.remove_tree("/store/consumequeue")
    again = light(broker.files)
    assert queue(again, A) == queue(again, B) == [b"0", b"1"]


class TestWhatWaits:
    """Delayed, timed and half messages stand in further queues once they are in their topic."""

    LATER = pytest.mark.parametrize("later", [{"DELAY": "1"}, {"TIMER_DELAY_SEC": "1"}])

    @LATER
    def test_it_is_there_at_its_time(self, later: dict[str, str]) -> None:
        broker = light()
        ok(broker.send(b"x", properties=later | {"INNER_MULTI_DISPATCH": A}))
        assert queue(broker, A) == []
        pass_time(broker, 3)
        assert queue(broker, A) == queue(broker, "Topic") == [b"x"]

    @LATER
    @pytest.mark.parametrize("names", ["a/b", f"{A},", "Topic", ",".join([A] * 1_001)])
    def test_names_are_looked_at_when_it_is_taken(self, later: dict[str, str], names: str) -> None:
        broker = light()
        answer = broker.send(b"x", properties=later | {"INNER_MULTI_DISPATCH": names})
        assert answer is not None and answer.code == ResponseCode.MESSAGE_ILLEGAL
        sent = broker.send(
            b"x", properties={"TRAN_MSG": "true", "PGROUP": "P", "INNER_MULTI_DISPATCH": names}
        )
        assert sent is not None and sent.code == ResponseCode.MESSAGE_ILLEGAL

    @LATER
    def test_an_offset_that_no_queue_can_have_holds_nothing_up(self, later: dict[str, str]) -> None:
        broker = light()
        odd = {"INNER_MULTI_DISPATCH": " ", "INNER_MULTI_QUEUE_OFFSET": "9" * 5_000}
        ok(broker.send(b"odd", properties=later | odd))
        ok(broker.send(b"good", properties=later))
        pass_time(broker, 3)
        assert queue(broker, "Topic") == [b"odd", b"good"]

    def test_offsets_must_find_room(self) -> None:
        broker = light()
        names = {"INNER_MULTI_DISPATCH": ",".join([A] * 1_000), "k": "x" * 16_000}
        answer = broker.send(b"x", properties=names | {"DELAY": "1"})
        assert answer is not None and answer.code == ResponseCode.MESSAGE_ILLEGAL

    @LATER
    def test_the_limit_holds_when_it_is_taken(self, later: dict[str, str]) -> None:
        broker = light(max_lmq_consume_queue_num=1)
        ok(send(broker, b"y", B))
        answer = broker.send(b"x", properties=later | {"INNER_MULTI_DISPATCH": A})
        assert answer is not None and answer.code == ResponseCode.SERVICE_NOT_AVAILABLE

    @LATER
    def test_the_limit_keeps_nothing_back_that_was_taken(self, later: dict[str, str]) -> None:
        broker = light(max_lmq_consume_queue_num=1)
        ok(broker.send(b"x", properties=later | {"INNER_MULTI_DISPATCH": A}))
        ok(broker.send(b"behind", properties=later))
        ok(send(broker, b"y", B))
        pass_time(broker, 5)
        assert queue(broker, A) == [b"x"]
        assert queue(broker, "Topic") == [b"y", b"x", b"behind"]

    @LATER
    def test_what_was_taken_with_wrong_names_is_not_lost(self, later: dict[str, str]) -> None:
        files = MemoryFiles()
        before = BrokerInMemory(files)
        wrong = {"INNER_MULTI_DISPATCH": f"a/b,{A}", "INNER_MULTI_QUEUE_OFFSET": "7,7"}
        ok(before.send(b"x", properties=later | wrong))
        before.stop()
        broker = light(files)
        pass_time(broker, 5)
        assert queue(broker, "Topic") == [b"x"]
        assert not broker.store.queue_ids(A)

    def test_a_half_message_stands_nowhere_before_it_is_committed(self) -> None:
        broker = light()
        sent = begin(broker, INNER_MULTI_DISPATCH=A, INNER_MULTI_QUEUE_OFFSET="7")
        begin(broker, b"other", INNER_MULTI_DISPATCH=A)
        assert not broker.store.queue_ids(A)
        assert end(broker, sent).code == ResponseCode.SUCCESS
        assert queue(broker, A) == [b"x"]

    @pytest.mark.parametrize("topic", ["%DLQ%G", "TRANS_CHECK_MAX_TIME_TOPIC"])
    def test_copies_of_what_was_given_up_stand_nowhere(self, topic: str) -> None:
        broker = light()
        properties = join_properties({"INNER_MULTI_DISPATCH": A}) + b"INNER_MULTI_QUEUE_OFFSET\x017"
        message = StoredMessage(topic=topic, queue_id=0, body=b"x", properties=properties)
        broker.store.append(message)
        broker.store.write_pending()
        broker.store.dispatch()
        assert queue(broker, topic) == [b"x"]
        assert not broker.store.queue_ids(A)


class TestPop:
    """A light queue is popped by its own offsets, not by its messages' topic's."""

    def with_messages(self) -> Popper:
        broker = light()
        for number in range(3):
            ok(broker.send(b"other%d" % number, queue_id=1))
        for number in range(3):
            ok(send(broker, b"%d" % number, f"{B},{A}", queue_id=1))
        return Popper(broker, A)

    def test_its_offsets_are_told(self) -> None:
        popper = self.with_messages()
        fields = ok(popper.ask(max_msg_nums=2))
        assert fields["startOffsetInfo"] == "0 0 0" and fields["msgOffsetInfo"] == "0 0 0,1"

    def test_what_is_acknowledged_is_gone_and_the_rest_comes_again(self) -> None:
        popper = self.with_messages()
        one, other = popper.pop(max_msg_nums=2, invisible_time=4_000)
        popper.ack(other)
        pass_time(popper.broker, 10)
        assert sorted(popper.bodies()) == [b"0", b"2"]
        assert (one.queue_id, one.queue_offset) == (0, 0)
        pass_time(popper.broker, 70)
        assert sorted(popper.bodies()) == [b"0", b"2"]

    def test_in_order(self) -> None:
        popper = self.with_messages()
        one, other = popper.pop(max_msg_nums=2, order=True, queue_id=0)
        assert popper.bodies(order=True, queue_id=0) == []
        popper.ack(one, other)
        assert popper.bodies(order=True, queue_id=0) == [b"2"]


class TestOffsets:
    def commit(self, broker: BrokerInMemory, group: str, offset: int) -> None:
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=group, topic=A, queue_id=0, commit_offset=offset
        )
        ok(broker.request(RemotingCommand.request(RequestCode.UPDATE_CONSUMER_OFFSET, header)))

    def query(self, broker: BrokerInMemory, group: str) -> str:
        header = QueryConsumerOffsetRequestHeader(consumer_group=group, topic=A, queue_id=0)
        request = RemotingCommand.request(RequestCode.QUERY_CONSUMER_OFFSET, header)
        return ok(broker.request(request))["offset"]

    def test_they_are_kept_as_stock_keeps_them(self) -> None:
        broker = light()
        ok(send(broker, b"x", A))
        broker.pull(0, topic=A)
        self.commit(broker, "%LMQ%g", 1)
        self.commit(broker, "G", 1)
        broker.stop()
        file = broker.files.read("/store/config/lmqConsumerOffset.json")
        assert b'"lmqOffsetTable":{"%LMQ%a@%LMQ%g":1}' in file
        assert b'"offsetTable":{"%LMQ%a@G":{0:1}}' in file
        again = light(broker.files)
        assert self.query(again, "%LMQ%g") == self.query(again, "G") == "1"

    def test_what_was_there_before_is_taken_over(self) -> None:
        broker = BrokerInMemory()
        ok(broker.send(b"x"))
        broker.offsets.commit("G", "Topic", 0, 1)
        broker.stop()
        assert light(broker.files).offsets.query("G", "Topic", 0) == 1
