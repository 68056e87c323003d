"""200050, 200051, 200151 and 200053, and what comes back of what nobody acknowledged."""

from __future__ import annotations

import errno
from itertools import pairwise
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from rocketmq_tw.broker.pop.check_points import new_check_point
from rocketmq_tw.broker.pop.revive_part import Reviving
from rocketmq_tw.broker.role.state import Role, RoleState
from rocketmq_tw.broker.sending import send
from rocketmq_tw.files.faulty import Fault, FaultyFiles
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.message.properties import (
    MAX_PROPERTIES_LENGTH,
    join_properties,
    parse_properties,
)
from rocketmq_tw.metrics.instruments import MetricType
from rocketmq_tw.wire.bodies.base import decode_body, encode_body
from rocketmq_tw.wire.bodies.groups import SubscriptionGroupConfig
from rocketmq_tw.wire.bodies.pop import (
    AckMsg,
    BatchAck,
    BatchAckMessageRequestBody,
    BatchAckMsg,
    PopCheckPoint,
)
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.send import ConsumerSendMsgBackRequestHeader
from rocketmq_tw.wire.headers.topics import DeleteTopicRequestHeader
from tests.support.broker import BrokerInMemory, ok
from tests.support.pops import REVIVE, Popper, pass_time

LARGEST = (1 << 63) - 1


def with_messages(count: int = 3, queues: int = 1, **settings: Any) -> BrokerInMemory:
    """A broker with `count` messages in each queue of `Topic`."""
    store = {name: settings.pop(name) for name in list(settings) if name.startswith("timer_")}
    is_monitored = settings.pop("is_monitored", False)
    files = settings.pop("files", None)
    broker = BrokerInMemory(files, broker=settings, is_monitored=is_monitored, **store)
    broker.add_topic("Topic", read_queue_nums=queues, write_queue_nums=queues)
    for queue_id in range(queues):
        for n in range(count):
            ok(broker.send(b"%d.%d" % (queue_id, n), queue_id=queue_id))
    return broker


def test_a_pop_that_fails_at_one_queue_keeps_nothing_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = with_messages(3, queues=2)
    asked, read_queue = [], broker.store.read_queue

    def read(topic: str, queue_id: int, *limits: Any, **more: Any) -> Any:
        asked.append(queue_id)
        if len(asked) == 2:
            raise OSError(errno.EIO, "the disk cannot be read")
        return read_queue(topic, queue_id, *limits, **more)

    with monkeypatch.context() as patched:
        patched.setattr(broker.store, "read_queue", read)
        with pytest.raises(OSError):
            Popper(broker).ask()
    assert sorted(asked) == [0, 1]
    popped = Popper(broker).pop()
    assert sorted(message.body for message in popped) == sorted(
        b"%d.%d" % (queue_id, n) for queue_id in range(2) for n in range(3)
    )
    popper = Popper(broker)
    for message in popped:
        ok(broker.request(popper.ack_request(message), popper.peer) or popper.peer.replies[-1])
    assert [broker.offsets.query("G", "Topic", queue_id) for queue_id in range(2)] == [3, 3]


def stored(broker: BrokerInMemory) -> list[tuple[str, Any]]:
    """What the revive topic has: tag and body."""
    kinds = {"ck": PopCheckPoint, "ack": AckMsg, "bAck": BatchAckMsg}
    found = []
    for queue_id in range(8):
        for message in broker.consume(REVIVE, queue_id):
            tag = message.properties["TAGS"]
            found.append((tag, decode_body(kinds[tag], message.body)))
    return found


def refused(answer: RemotingCommand | None) -> tuple[int, str]:
    assert answer is not None
    return answer.code, answer.remark or ""


class TestPop:
    def test_members_share_a_queue(self) -> None:
        broker = with_messages(5)
        one, other = Popper(broker), Popper(broker)
        assert one.bodies(max_msg_nums=2) == [b"0.0", b"0.1"]
        assert other.bodies(max_msg_nums=2) == [b"0.2", b"0.3"]
        assert one.bodies() == [b"0.4"]
        assert other.bodies() == []

    def test_another_group_has_all_of_them(self) -> None:
        broker = with_messages(2)
        assert Popper(broker).bodies() == Popper(broker, group="H").bodies() == [b"0.0", b"0.1"]

    def test_a_check_point_is_stored_before_the_answer(self) -> None:
        broker = with_messages(3)
        answer = Popper(broker).ask(max_msg_nums=2)
        assert answer is not None
        fields = ok(answer)
        now = broker.now_ms()
        assert fields["startOffsetInfo"] == "0 0 0"
        assert fields["msgOffsetInfo"] == "0 0 0,1"
        assert fields["popTime"] == str(now) and fields["invisibleTime"] == "60000"
        assert fields["restNum"] == "1" and answer.remark == "FOUND"
        queue_id = int(fields["reviveQid"])
        (message,) = broker.consume(REVIVE, queue_id)
        assert message.body == (
            b'{"bm":0,"bn":"broker-a","c":"G","d":[0,1],"it":60000,"n":2,"pt":%d,"q":0,'
            b'"reviveTime":%d,"ro":0,"so":0,"t":"Topic"}' % (now, now + 60_000)
        )
        assert message.properties["TAGS"] == "ck"
        assert message.properties["UNIQ_KEY"] == f"Topic@0@0@G@{now}@broker-a@ck"
        assert broker.offsets.query("G", "Topic", 0) == 2

    def test_all_queues_of_a_topic(self) -> None:
        broker = with_messages(2, queues=4)
        popper = Popper(broker)
        found = popper.pop()
        assert sorted(message.body for message in found) == sorted(
            b"%d.%d" % (queue, n) for queue in range(4) for n in range(2)
        )
        popper.ack(*found)
        pass_time(broker, 70)
        assert popper.bodies() == []

    def test_one_queue(self) -> None:
        broker = with_messages(1, queues=4)
        popper = Popper(broker)
        assert popper.bodies(queue_id=2) == [b"2.0"]
        assert popper.bodies(queue_id=2) == []

    def test_a_group_may_begin_at_the_end(self) -> None:
        broker = with_messages(3, init_pop_offset_by_check_msg_in_mem=False)
        assert Popper(broker).bodies(init_mode=1) == [b"0.2"]
        assert Popper(broker, group="H").bodies(init_mode=0) == [b"0.0", b"0.1", b"0.2"]

    def test_a_young_queue_is_popped_from_its_beginning(self) -> None:
        broker = with_messages(3)
        assert Popper(broker).bodies(init_mode=1) == [b"0.0", b"0.1", b"0.2"]

    def test_tags(self) -> None:
        broker = with_messages(0)
        for tag in ("a", "b", "a", "c"):
            ok(broker.send(tag.encode(), properties={"TAGS": tag}))
        popper = Popper(broker, exp="a || c", exp_type="TAG")
        found = popper.pop()
        assert [message.body for message in found] == [b"a", b"a", b"c"]
        ((_, point),) = stored(broker)
        assert point.offset_diffs == [0, 2, 3] and point.count == 3
        popper.ack(*found)
        pass_time(broker, 70)
        assert popper.pop() == []

    def test_properties(self) -> None:
        broker = with_messages(0, enable_property_filter=True)
        for n in range(4):
            ok(broker.send(b"%d" % n, properties={"n": str(n)}))
        popper = Popper(broker, exp="n > 1", exp_type="SQL92", invisible_time=5_000)
        assert popper.bodies() == [b"2", b"3"]
        pass_time(broker, 9)
        assert popper.bodies() == [b"2", b"3"]

    def test_what_no_tag_matches_is_passed_over(self) -> None:
        broker = with_messages(3)
        popper = Popper(broker, exp="none")
        assert popper.pop() == []
        assert broker.offsets.query("G", "Topic", 0) == 3

    @pytest.mark.parametrize(
        ("fields", "code", "says"),
        [
            ({"topic": "Nowhere"}, ResponseCode.TOPIC_NOT_EXIST, "Nowhere"),
            ({"queue_id": 1}, ResponseCode.INVALID_PARAMETER, "no queue 1"),
            ({"max_msg_nums": 33}, ResponseCode.INVALID_PARAMETER, "ask for 32"),
            ({"max_msg_nums": 0}, ResponseCode.INVALID_PARAMETER, "0 messages: ask for 1 to 32"),
            ({"max_msg_nums": -1, "poll_time": 9}, ResponseCode.INVALID_PARAMETER, "1 to 32"),
            ({"exp": "||"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED, "names no tag"),
            ({"exp": "a >", "exp_type": "SQL92"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED, ""),
            ({"exp": "a > 1", "exp_type": "SQL92"}, ResponseCode.SYSTEM_ERROR, "use tags"),
            ({"born_time": 1}, ResponseCode.POLLING_TIMEOUT, "late"),
            ({"consumer_group": "g" * 244}, ResponseCode.INVALID_PARAMETER, "too long"),
        ],
    )
    def test_refusals(self, fields: dict[str, Any], code: int, says: str) -> None:
        broker = with_messages(1)
        got, remark = refused(Popper(broker).ask(**fields))
        assert got == code and says in remark

    def test_a_group_that_may_not_consume(self) -> None:
        broker = with_messages(1)
        popper = Popper(broker)
        broker.groups.update(SubscriptionGroupConfig(group_name="G", consume_enable=False))
        assert refused(popper.ask())[0] == ResponseCode.NO_PERMISSION

    def test_a_slave_refuses(self) -> None:
        broker = with_messages(1)
        popper = Popper(broker)
        broker.become(RoleState(Role.ISOLATED, 0))
        code, remark = refused(popper.ask())
        assert code == ResponseCode.SERVICE_NOT_AVAILABLE and "pop from the master" in remark

    def test_no_more_than_the_threshold_is_in_flight(self) -> None:
        broker = with_messages(
            15, enable_pop_message_threshold=True, pop_inflight_message_threshold=9
        )
        popper = Popper(broker)
        first = popper.pop(max_msg_nums=10)
        pass_time(broker, 2)
        assert popper.pop() == []
        popper.ack(*first)
        pass_time(broker, 2)
        assert len(popper.pop()) == 5

    @pytest.mark.parametrize("begins", ["a reset", "the topic made again"])
    def test_what_was_in_flight_counts_no_more(self, begins: str) -> None:
        broker = with_messages(
            15, enable_pop_message_threshold=True, pop_inflight_message_threshold=9
        )
        popper = Popper(broker)
        former = popper.pop(max_msg_nums=10)
        pass_time(broker, 2)
        assert popper.pop() == []
        if begins == "a reset":
            broker.offsets.reset("G", "Topic", 0, 0)
        else:
            header = DeleteTopicRequestHeader(topic="Topic")
            ok(broker.request(RemotingCommand.request(RequestCode.DELETE_TOPIC_IN_BROKER, header)))
            broker.add_topic("Topic", read_queue_nums=1, write_queue_nums=1)
            for n in range(15):
                ok(broker.send(b"0.%d" % n))
        assert len(popper.pop(max_msg_nums=10)) == 10
        pass_time(broker, 2)
        # Acknowledgements of what was popped before do not make room.
        popper.ack(*former)
        pass_time(broker, 2)
        assert popper.pop() == []
        pass_time(broker, 70)
        assert popper.pop()

    def test_a_check_point_that_cannot_be_stored_hides_nothing(self) -> None:
        files = FaultyFiles(MemoryFiles())
        broker = with_messages(3, files=files)
        popper = Popper(broker)
        popper.pop(max_msg_nums=1)
        files.faults = [Fault("pwrite", "commitlog", errno.ENOSPC)]
        assert refused(popper.ask())[0] == ResponseCode.SYSTEM_ERROR
        files.faults = []
        assert broker.offsets.query("G", "Topic", 0) == 1
        assert b"0.1" in popper.bodies()

    def test_where_one_of_two_is_refused_the_other_one_is_hidden(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        broker = with_messages(2, queues=3)
        popper = Popper(broker)
        append, calls = broker.commit.append, 0

        def refusing(*arguments: Any, **named: Any) -> None:
            nonlocal calls
            calls += 1
            if calls == 2:
                raise RequestError(ResponseCode.SERVICE_NOT_AVAILABLE, "full")
            append(*arguments, **named)

        monkeypatch.setattr(broker.commit, "append", refusing)
        code, remark = refused(popper.ask(max_msg_nums=6))
        assert code == ResponseCode.SYSTEM_ERROR and remark.endswith("hidden from others: full")
        assert calls == 2, "none is tried behind one that is refused"
        assert len(popper.bodies()) == 4

    @pytest.mark.parametrize("left", [0, 20, 40, 60, 80, 100, 150])
    def test_properties_with_hardly_room_for_what_a_pop_and_a_revival_add(
        self, left: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # As stock stores them.
        monkeypatch.setattr(send, "check_room", lambda message, batch: None)
        broker = BrokerInMemory()
        ok(broker.send(b"first"))
        (first,) = broker.consume()
        usual = len(join_properties(first.properties | {"z": ""}))
        properties = {"UNIQ_KEY": "U" * 32, "z": "x" * (MAX_PROPERTIES_LENGTH - left - usual)}
        ok(broker.send(b"long", properties=properties))
        popper = Popper(broker, invisible_time=5_000)
        assert sorted(popper.bodies()) == [b"first", b"long"]
        for _ in range(2):
            pass_time(broker, 10)
            found = popper.pop()
            assert sorted(message.body for message in found) == [b"first", b"long"]
        popper.ack(*found)
        pass_time(broker, 10)
        assert popper.bodies() == []


class TestAck:
    def test_one_that_cannot_be_stored_is_refused_and_comes_again(self) -> None:
        files = FaultyFiles(MemoryFiles())
        broker = with_messages(1, files=files)
        popper = Popper(broker)
        (message,) = popper.pop()
        files.faults = [Fault("pwrite", "commitlog", errno.ENOSPC)]
        code, remark = refused(broker.request(popper.ack_request(message)))
        assert code == ResponseCode.SYSTEM_ERROR and "could not be stored" in remark
        files.faults = []
        pass_time(broker, 70)
        assert popper.bodies() == [b"0.0"]

    def test_what_is_acknowledged_does_not_come_again(self) -> None:
        broker = with_messages(3)
        popper = Popper(broker)
        popper.ack(*popper.pop())
        pass_time(broker, 70)
        assert popper.pop() == []
        assert [tag for tag, _ in stored(broker)] == ["ck", "ack", "ack", "ack"]

    def test_what_is_not_comes_again(self) -> None:
        broker = with_messages(3)
        popper = Popper(broker)
        first = popper.pop()
        popper.ack(first[1])
        pass_time(broker, 55)
        assert popper.pop() == []
        pass_time(broker, 10)
        again = popper.pop()
        assert [message.body for message in again] == [b"0.0", b"0.2"]
        assert {message.topic for message in again} == {"Topic"}
        assert {message.reconsume_times for message in again} == {1}
        first_time = first[0].extra_info.split(" ")[1]
        assert {message.properties["1ST_POP_TIME"] for message in again} == {first_time}
        for message in again:
            assert message.extra_info.split(" ")[4:7] == ["1", "broker-a", "0"]
        popper.ack(*again)
        pass_time(broker, 70)
        assert popper.pop() == []

    def test_again_and_again(self) -> None:
        broker = with_messages(1)
        popper = Popper(broker, invisible_time=5_000)
        first_time = popper.pop()[0].extra_info.split(" ")[1]
        for times in range(1, 5):
            pass_time(broker, 9)
            (message,) = popper.pop()
            assert message.reconsume_times == times
            assert message.properties["1ST_POP_TIME"] == first_time
        topic = broker.topics.get("%RETRY%G_Topic")
        assert topic is not None and topic.read_queue_nums == 1

    def test_the_second_kind_of_retry_topic(self) -> None:
        broker = with_messages(1, enable_retry_topic_v2=True)
        popper = Popper(broker, invisible_time=5_000)
        popper.pop()
        pass_time(broker, 9)
        assert broker.topics.get("%RETRY%G+Topic") is not None
        (message,) = popper.pop()
        assert message.extra_info.split(" ")[4] == "2"
        popper.ack(message)
        pass_time(broker, 10)
        assert popper.pop() == []

    def test_what_waits_in_the_first_kind_is_popped_with_the_second(self) -> None:
        broker = with_messages(1)
        popper = Popper(broker, invisible_time=5_000)
        popper.pop()
        pass_time(broker, 9)
        broker.stop()
        again = BrokerInMemory(
            broker.files, clock=broker.clock, broker={"enable_retry_topic_v2": True}
        )
        assert [m.extra_info.split(" ")[4] for m in Popper(again).pop()] == ["1"]

    def test_the_kind_of_retry_topic_changes_while_it_runs(self) -> None:
        broker = with_messages(4, pop_from_retry_probability=0)
        popper = Popper(broker, invisible_time=5_000, max_msg_nums=1)
        for v2 in ("true", "false"):
            popper.pop()
            text = f"enableRetryTopicV2={v2}".encode()
            assert broker.ask(RequestCode.UPDATE_BROKER_CONFIG, body=text).code == 0
            pass_time(broker, 9)
        found = []
        while messages := popper.pop():
            popper.ack(*messages)
            found += messages
        # What waits in one kind of topic comes whichever is made now.
        kinds = {message.body: message.extra_info.split(" ")[4] for message in found}
        assert kinds == {b"0.0": "2", b"0.1": "1", b"0.2": "0", b"0.3": "0"}
        pass_time(broker, 10)
        assert popper.pop() == []

    def test_a_topic_that_is_gone_is_not_revived(self) -> None:
        broker = with_messages(1)
        popper = Popper(broker, invisible_time=5_000)
        popper.pop()
        broker.topics.delete("Topic")
        pass_time(broker, 9)
        assert broker.topics.get("%RETRY%G_Topic") is None
        assert broker.offsets.of("CID_RMQ_SYS_REVIVE_GROUP", REVIVE)

    def test_a_batch(self) -> None:
        broker = with_messages(4, queues=2)
        popper = Popper(broker, invisible_time=5_000)
        found = popper.pop()
        acks = []
        for queue_id in (0, 1):
            parts = next(m for m in found if m.queue_id == queue_id).extra_info.split(" ")
            acks.append(
                BatchAck(
                    group="G",
                    topic="Topic",
                    retry="0",
                    queue_id=queue_id,
                    start_offset=int(parts[0]),
                    pop_time=int(parts[1]),
                    invisible_time=int(parts[2]),
                    revive_queue_id=int(parts[3]),
                    bits=bytes([0b1101]),
                )
            )
        body = BatchAckMessageRequestBody(broker_name="broker-a", acks=acks)
        data = encode_body(body)
        ok(broker.request(RemotingCommand.request(RequestCode.BATCH_ACK_MESSAGE, None, data)))
        pass_time(broker, 9)
        assert sorted(popper.bodies()) == [b"0.1", b"1.1"]

    @pytest.mark.parametrize("seconds", [0, 1.5])
    def test_of_what_another_group_popped(self, seconds: float) -> None:
        broker = with_messages(2)
        popper, other = Popper(broker), Popper(broker, group="H")
        pass_time(broker, 1.5)
        first, second = popper.pop()
        pass_time(broker, seconds)
        for request in (other.ack_request(first), other.hide_request(first, 1_000)):
            code, remark = refused(broker.request(request))
            assert code == ResponseCode.NO_MESSAGE
            assert "H did not pop the message" in remark and "G popped it from Topic" in remark
        for _ in range(2):
            # Once more by a client that did not get the answer.
            popper.ack(first), popper.ack(second)
        pass_time(broker, 20)
        assert popper.pop() == []

    def test_of_what_another_group_popped_at_the_same_time(self) -> None:
        broker = with_messages(1)
        poppers = [Popper(broker, group=group) for group in ("G", "H")]
        pass_time(broker, 1.5)
        popped = [popper.pop()[0] for popper in poppers]
        for popper, message in zip(poppers, popped, strict=True):
            popper.ack(message)
        pass_time(broker, 20)
        assert [popper.pop() for popper in poppers] == [[], []]

    def test_of_several_that_another_group_popped(self) -> None:
        broker = with_messages(2)
        popper, other = Popper(broker), Popper(broker, group="H")
        pass_time(broker, 1.5)
        popped = popper.pop()

        def ack(group: str) -> RemotingCommand:
            start, pop_time, invisible, revive_queue, *_ = popped[0].extra_info.split(" ")
            batch = BatchAck(
                group=group,
                topic="Topic",
                queue_id=0,
                start_offset=int(start),
                pop_time=int(pop_time),
                invisible_time=int(invisible),
                revive_queue_id=int(revive_queue),
                bits=bytes([0b11]),
            )
            body = encode_body(BatchAckMessageRequestBody(broker_name="broker-a", acks=[batch]))
            return RemotingCommand.request(RequestCode.BATCH_ACK_MESSAGE, None, body)

        assert refused(broker.request(ack(other.group)))[0] == ResponseCode.NO_MESSAGE
        ok(broker.request(ack("G")))
        pass_time(broker, 20)
        assert popper.pop() == []

    def test_bad_batches(self) -> None:
        broker = with_messages(1)

        def ask(data: bytes) -> tuple[int, str]:
            return refused(
                broker.request(RemotingCommand.request(RequestCode.BATCH_ACK_MESSAGE, None, data))
            )

        assert ask(b"{}")[0] == ResponseCode.NO_MESSAGE
        many = BatchAckMessageRequestBody(acks=[BatchAck(bits=b"\1" * 100)] * 1000)
        assert ask(encode_body(many))[0] == ResponseCode.INVALID_PARAMETER
        kind = BatchAckMessageRequestBody(acks=[BatchAck(bits=b"\1", retry="x")])
        code, remark = ask(encode_body(kind))
        assert code == ResponseCode.SYSTEM_ERROR and "'x'" in remark

    def test_more_messages_of_one_check_point_than_a_pop_gives(self) -> None:
        broker = with_messages(1)
        body = BatchAckMessageRequestBody(acks=[BatchAck(bits=b"\xff" * 1000, topic="Topic")])
        request = RemotingCommand.request(RequestCode.BATCH_ACK_MESSAGE, None, encode_body(body))
        code, remark = refused(broker.request(request))
        assert code == ResponseCode.INVALID_PARAMETER and "8000 messages" in remark
        assert stored(broker) == []

    def test_a_batch_of_many_check_points_is_taken_in_steps(self) -> None:
        broker = with_messages(4)
        acks = [
            BatchAck(bits=bytes([0b1011]), group="G", topic="Topic", pop_time=number)
            for number in range(350)
        ]
        body = encode_body(BatchAckMessageRequestBody(broker_name="broker-a", acks=acks))
        request = RemotingCommand.request(RequestCode.BATCH_ACK_MESSAGE, None, body)
        answer = broker.handlers[request.code](request, broker.peer)
        assert isinstance(answer, Deferred)
        answers: list[RemotingCommand] = []
        answer.addCallback(answers.append)
        counts = [broker.store.max_queue_offset(REVIVE, 0)]
        while not answers:
            # One call of the reactor after the other.
            call = min(broker.clock.getDelayedCalls(), key=lambda call: call.getTime())
            func, args, kw = call.func, call.args, call.kw
            call.cancel()
            func(*args, **kw)
            counts.append(broker.store.max_queue_offset(REVIVE, 0))
        assert max(after - before for before, after in pairwise(counts)) == 100
        found = stored(broker)
        assert {ack.pop_time for _, ack in found} == set(range(350)) and len(found) == 350
        assert all(ack.ack_offsets == [0, 1, 3] for _, ack in found)

    @pytest.mark.parametrize(
        ("change", "code", "says"),
        [
            ({"queue_id": 7}, ResponseCode.MESSAGE_ILLEGAL, "no queue 7"),
            ({"queue_offset": 9}, ResponseCode.NO_MESSAGE, "no message 9"),
            ({"extra_info": "1 2 3 4 0"}, ResponseCode.SYSTEM_ERROR, "5 of 8 parts"),
            ({"extra_info": "x 1 1 0 0 b 0 0"}, ResponseCode.SYSTEM_ERROR, "hand it back"),
            ({"extra_info": "0 1 1 77 0 b 0 0"}, ResponseCode.MESSAGE_ILLEGAL, "revive queue 77"),
            ({"extra_info": f"0 {1 << 63} 1 0 0 b 0 0"}, ResponseCode.SYSTEM_ERROR, "no number"),
            ({"extra_info": "0 \uff11 1 0 0 b 0 0"}, ResponseCode.SYSTEM_ERROR, "no number"),
            ({"extra_info": "1_0 1 1 0 0 b 0 0"}, ResponseCode.SYSTEM_ERROR, "no number"),
            ({"extra_info": "9" * 9999 + " 1 1 0 0 b"}, ResponseCode.SYSTEM_ERROR, "no number"),
        ],
    )
    def test_refusals(self, change: dict[str, Any], code: int, says: str) -> None:
        broker = with_messages(1)
        popper = Popper(broker)
        (message,) = popper.pop()
        request = popper.ack_request(message._replace(**change))
        got, remark = refused(broker.request(request))
        assert got == code and says in remark and len(remark) < 500

    @pytest.mark.parametrize(
        ("field", "value"), [("pt", 1 << 63), ("so", -(1 << 63) - 1), ("q", 1 << 31), ("it", 1e99)]
    )
    def test_a_batch_with_a_number_that_java_has_not(self, field: str, value: float) -> None:
        broker = with_messages(1)
        body = b'{"acks":[{"b":"AQ==","c":"G","t":"Topic","%b":%d}]}' % (field.encode(), value)
        request = RemotingCommand.request(RequestCode.BATCH_ACK_MESSAGE, None, body)
        code, remark = refused(broker.request(request))
        assert code == ResponseCode.SYSTEM_ERROR and field in remark
        assert stored(broker) == []


class TestInvisibleTime:
    def test_longer_than_any_timer(self) -> None:
        broker = with_messages(1, timer_max_delay_sec=100, max_invisible_time_mills=LARGEST)
        popper = Popper(broker, invisible_time=5_000)
        (message,) = popper.pop()
        for invisible_ms in (101_001, LARGEST):
            code, remark = refused(broker.request(popper.hide_request(message, invisible_ms)))
            assert code == ResponseCode.SYSTEM_ERROR
            assert "101000 ms" in remark and "timerMaxDelaySec" in remark
        pass_time(broker, 10)
        (again,) = popper.pop()
        popper.ack(popper.hide(again, 101_000))

    @pytest.mark.parametrize("order", [False, True])
    @pytest.mark.parametrize("years", [20, 290_000_000])
    def test_longer_than_the_broker_allows(self, years: int, order: bool) -> None:
        too_long = min(years * 365 * 24 * 3_600_000, LARGEST)
        broker = with_messages(1, timer_max_delay_sec=(1 << 31) - 1)
        popper = Popper(broker, order=order)
        answer = popper.ask(invisible_time=too_long)
        code, remark = refused(answer)
        assert code == ResponseCode.INVALID_PARAMETER
        assert "maxInvisibleTimeMills" in remark and "604800000 ms" in remark
        (message,) = popper.pop(invisible_time=7 * 24 * 3_600_000)
        code, remark = refused(broker.request(popper.hide_request(message, too_long)))
        assert code == ResponseCode.INVALID_PARAMETER and "maxInvisibleTimeMills" in remark
        popper.hide(message, 5_000)
        pass_time(broker, 10)
        assert popper.bodies() == [b"0.0"]

    def test_popped_for_ever(self) -> None:
        """Stock gives the message too; its check point then stops its revival."""
        broker = with_messages(1, max_invisible_time_mills=LARGEST)
        popper = Popper(broker, invisible_time=LARGEST)
        popper.pop()
        ((_, point),) = stored(broker)
        assert point.revive_time == point.pop_time + point.invisible_time == LARGEST
        pass_time(broker, 100)
        assert popper.pop() == []

    @pytest.mark.parametrize("popped_ms", ["9223372036854775807", "1999999999999", "-1"])
    def test_it_begins_now_whenever_the_message_was_popped(self, popped_ms: str) -> None:
        broker = with_messages(1)
        popper = Popper(broker)
        (message,) = popper.pop()
        parts = message.extra_info.split(" ")
        parts[1] = popped_ms
        point = new_check_point("Topic", "G", 0, [0], 0, int(popped_ms), 60_000, parts[5])
        broker.broker[Reviving].log.put_check_point(point, int(parts[3]))
        broker.clock.advance(0)
        later = popper.hide(message._replace(extra_info=" ".join(parts)), 5_000)
        assert later.extra_info.split(" ")[1] == str(broker.now_ms())
        pass_time(broker, 10)
        assert popper.bodies() == [b"0.0"]

    def test_twice_in_a_millisecond(self) -> None:
        broker = with_messages(1)
        popper = Popper(broker)
        later = popper.hide(popper.hide(popper.pop()[0], 5_000), 5_000)
        pass_time(broker, 10)
        assert popper.bodies() == [b"0.0"]
        popper.ack(later)
        pass_time(broker, 2)
        assert broker.broker[Reviving].pending() == 1

    def test_longer(self) -> None:
        broker = with_messages(1)
        popper = Popper(broker, invisible_time=5_000)
        (message,) = popper.pop()
        later = popper.hide(message, 30_000)
        pass_time(broker, 25)
        assert popper.pop() == []
        pass_time(broker, 10)
        assert popper.bodies() == [b"0.0"]
        assert later.extra_info != message.extra_info

    def test_shorter(self) -> None:
        broker = with_messages(1)
        popper = Popper(broker)
        popper.hide(popper.pop()[0], 1_000)
        pass_time(broker, 6)
        assert popper.bodies() == [b"0.0"]

    def test_then_acknowledged(self) -> None:
        broker = with_messages(1)
        popper = Popper(broker, invisible_time=5_000)
        popper.ack(popper.hide(popper.pop()[0], 10_000))
        pass_time(broker, 20)
        assert popper.pop() == []

    def test_of_a_retried_message(self) -> None:
        broker = with_messages(1)
        popper = Popper(broker, invisible_time=5_000)
        popper.pop()
        pass_time(broker, 9)
        (message,) = popper.pop()
        popper.ack(popper.hide(message, 20_000))
        pass_time(broker, 40)
        assert popper.pop() == []

    @pytest.mark.parametrize("revivals", [0, 1])
    @pytest.mark.parametrize("others", [0, 1])
    def test_of_what_was_acknowledged(self, revivals: int, others: int) -> None:
        """Another proxy may keep a message hidden whose client acknowledges it here."""
        broker = with_messages(1 + others)
        popper = Popper(broker)
        message = popper.pop()[0]
        pass_time(broker, 1.5)
        popper.ack(message)
        pass_time(broker, 1.5 * revivals)
        answer = refused(broker.request(popper.hide_request(message, 1_000)))
        assert answer == (
            ResponseCode.NO_MESSAGE,
            "G has no message 0 of Topic 0 to hide: it was acknowledged, or is delivered again",
        )
        pass_time(broker, 20)
        assert popper.pop() == []

    def test_of_what_is_delivered_again(self) -> None:
        broker = with_messages(1)
        popper = Popper(broker, invisible_time=5_000)
        (message,) = popper.pop()
        pass_time(broker, 9)
        (again,) = popper.pop()
        assert refused(broker.request(popper.hide_request(message, 1_000)))[0] == (
            ResponseCode.NO_MESSAGE
        )
        popper.ack(again)
        pass_time(broker, 20)
        assert popper.pop() == []

    def test_of_what_is_late_and_not_delivered_yet(self) -> None:
        broker = with_messages(1)
        popper = Popper(broker, invisible_time=5_000)
        (message,) = popper.pop()
        pass_time(broker, 5.5)
        popper.ack(popper.hide(message, 5_000))
        pass_time(broker, 20)
        assert popper.pop() == []

    def test_where_there_is_no_such_message(self) -> None:
        broker = with_messages(1)
        popper = Popper(broker)
        (message,) = popper.pop()
        request = popper.ack_request(message._replace(queue_offset=1))
        request.code = RequestCode.CHANGE_MESSAGE_INVISIBLETIME
        request.ext_fields["invisibleTime"] = "5"
        assert refused(broker.request(request))[0] == ResponseCode.NO_MESSAGE


class TestRestart:
    def test_a_clean_stop(self) -> None:
        broker = with_messages(4)
        popper = Popper(broker)
        first = popper.pop(max_msg_nums=2)
        popper.ack(first[0])
        broker.stop()
        again = BrokerInMemory(broker.files, clock=broker.clock)
        popper = Popper(again)
        assert popper.bodies() == [b"0.2", b"0.3"]
        pass_time(again, 70)
        assert sorted(popper.bodies()) == [b"0.1", b"0.2", b"0.3"]

    def test_a_kill_loses_nothing(self) -> None:
        broker = with_messages(4)
        popper = Popper(broker)
        first = popper.pop(max_msg_nums=2)
        popper.ack(first[0])
        pass_time(broker, 6)
        assert isinstance(broker.files, MemoryFiles)
        again = BrokerInMemory(broker.files.crash(), clock=broker.clock)
        popper = Popper(again)
        assert popper.bodies() == [b"0.2", b"0.3"]
        pass_time(again, 70)
        assert sorted(popper.bodies()) == [b"0.1", b"0.2", b"0.3"]

    def test_what_is_dealt_with_is_not_read_again(self) -> None:
        broker = with_messages(3)
        popper = Popper(broker)
        popper.ack(*popper.pop())
        pass_time(broker, 2)
        offsets = broker.offsets.of("CID_RMQ_SYS_REVIVE_GROUP", REVIVE)
        assert list(offsets.values()) == [3]

    def test_a_role_that_ends_and_begins_again(self) -> None:
        broker = with_messages(2)
        popper = Popper(broker, invisible_time=5_000)
        popper.ack(popper.pop()[0])
        broker.become(RoleState(Role.ISOLATED, 0))
        pass_time(broker, 10)
        broker.become(RoleState(Role.MASTER, 0))
        pass_time(broker, 3)
        assert popper.bodies() == [b"0.1"]
        pass_time(broker, 10)
        assert popper.bodies() == [b"0.1"]

    def test_a_pop_right_behind_a_kill_hides_its_own(self) -> None:
        """A clock that was set back may make it the same millisecond."""
        broker = with_messages(4)
        Popper(broker).pop(max_msg_nums=2)
        popped_ms = broker.now_ms()
        pass_time(broker, 1)
        assert isinstance(broker.files, MemoryFiles)
        again = BrokerInMemory(broker.files.crash(), clock=broker.clock)
        again.shift_ms = popped_ms - again.now_ms()
        popper = Popper(again)
        assert len(popper.pop()) == 4
        pass_time(again, 70)
        assert set(popper.bodies()) == {b"0.0", b"0.1", b"0.2", b"0.3"}


class TestResets:
    def test_a_pop_right_behind_it_hides_its_own(self) -> None:
        broker = with_messages(4, revive_queue_num=1)
        popper = Popper(broker)
        popper.pop(max_msg_nums=2)
        broker.offsets.reset("G", "Topic", 0, 0)
        found = popper.pop()
        assert len(found) == 4
        popper.ack(found[0], found[3])
        pass_time(broker, 70)
        assert set(popper.bodies()) == {b"0.1", b"0.2"}
        pass_time(broker, 2)
        assert broker.broker[Reviving].pending() == 1

    def test_a_group_goes_back(self) -> None:
        broker = with_messages(3)
        popper = Popper(broker)
        popper.ack(*popper.pop())
        broker.offsets.reset("G", "Topic", 0, 1)
        assert popper.bodies() == [b"0.1", b"0.2"]
        assert popper.pop() == []
        assert broker.offsets.query("G", "Topic", 0) == 3


def test_a_message_given_back_by_hand() -> None:
    """What a consumer does that gives up: 36 with a negative level, then an acknowledgement."""
    broker = with_messages(1)
    popper = Popper(broker, invisible_time=5_000)
    popper.pop()
    pass_time(broker, 9)
    (message,) = popper.pop()
    at = broker.consume("%RETRY%G_Topic")[0].physical_offset
    header = ConsumerSendMsgBackRequestHeader(offset=at, group="G", delay_level=-1)
    ok(broker.request(RemotingCommand.request(RequestCode.CONSUMER_SEND_MSG_BACK, header)))
    popper.ack(message)
    pass_time(broker, 10)
    assert popper.pop() == []
    (dead,) = broker.consume("%DLQ%G")
    assert dead.body == b"0.0" and parse_properties(dead.raw_properties)["1ST_POP_TIME"]


def test_monitoring_is_told_how_far_revive_queues_are_behind() -> None:
    broker = with_messages(2)
    popper = Popper(broker)

    def behind(figure: str = "rocketmq_pop_revive_lag") -> float:
        told = [each for each in broker.broker.metrics() if each.name == figure]
        assert len({each.labels["queue_id"] for each in told}) == len(told)
        return sum(each.value for each in told if isinstance(each.value, int))

    found = popper.pop()
    pass_time(broker, 2)
    assert behind() > 0
    assert 1_900 <= behind("rocketmq_pop_revive_latency") <= 2_100
    popper.ack(*found)
    pass_time(broker, 5)
    assert behind() == behind("rocketmq_pop_revive_latency") == 0


def counted(broker: BrokerInMemory, name: str) -> dict[tuple[str, ...], float]:
    """What a counter of the revival has, by its labels but the server's own, without queues."""
    found: dict[tuple[str, ...], float] = {}
    for each in broker.broker.metrics():
        if each.name == f"rocketmq_pop_revive_{name}_total":
            assert each.type is MetricType.COUNTER and isinstance(each.value, int)
            labels = ("consumer_group", "topic", "revive_message_type", "put_status")
            key = tuple(each.labels[label] for label in labels if label in each.labels)
            found[key] = found.get(key, 0) + each.value
            assert ("queue_id" in each.labels) == (name == "out_message")
    return found


def test_monitoring_is_told_what_goes_through_the_revive_topic() -> None:
    broker = with_messages(2, is_monitored=True)
    popper = Popper(broker)
    first, _second = popper.pop(invisible_time=10_000)
    popper.ack(first)
    pass_time(broker, 2)
    assert counted(broker, "in_message") == {
        ("G", "Topic", "CK", "PUT_OK"): 1,
        ("G", "Topic", "ACK", "PUT_OK"): 1,
    }
    assert counted(broker, "out_message") == {("G", "Topic", "CK"): 1, ("G", "Topic", "ACK"): 1}
    assert counted(broker, "retry_messages") == {}
    pass_time(broker, 15)
    assert counted(broker, "retry_messages") == {("G", "Topic", "PUT_OK"): 1}


def test_counts_of_the_revive_topic_end_with_their_topic() -> None:
    broker = with_messages(1, is_monitored=True)
    popper = Popper(broker)
    popper.ack(*popper.pop())
    pass_time(broker, 2)
    header = DeleteTopicRequestHeader(topic="Topic")
    ok(broker.request(RemotingCommand.request(RequestCode.DELETE_TOPIC_IN_BROKER, header)))
    pass_time(broker, 2)
    assert counted(broker, "in_message") == counted(broker, "out_message") == {}
