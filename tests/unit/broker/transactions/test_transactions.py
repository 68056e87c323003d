"""Transactional messages: what is decided, asked back, given up, and what a restart leaves."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rocketmq_tw.broker.role.state import Role, RoleState
from rocketmq_tw.broker.transactions.part import Transactions
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.message.ids import offset_message_id
from rocketmq_tw.message.model import TRANSACTION_COMMIT, transaction_value
from rocketmq_tw.message.record import decode_record
from rocketmq_tw.message.room import MOST_SENT_PROPERTIES
from rocketmq_tw.metrics.instruments import Distribution
from rocketmq_tw.wire.codes import RequestCode, ResponseCode
from rocketmq_tw.wire.command import RemotingCommand
from rocketmq_tw.wire.errors import RequestError
from rocketmq_tw.wire.headers.send import ResumeCheckHalfMessageRequestHeader
from rocketmq_tw.wire.headers.topics import DeleteTopicRequestHeader
from tests.support.broker import BrokerInMemory, ok
from tests.support.stores import START_MS
from tests.support.transactions import (
    COMMIT,
    GIVEN_UP,
    HALF,
    OP,
    ROLLBACK,
    SYSTEM_GROUP,
    UNKNOWN,
    answer,
    begin,
    bodies,
    connect,
    end,
    end_request,
    let,
    ops,
    questions,
    times,
)


def restarted(broker: BrokerInMemory, **settings: object) -> BrokerInMemory:
    broker.stop()
    again = BrokerInMemory(broker.files, clock=broker.clock, broker=dict(settings))
    let(again, 0.2)
    return again


def progress(broker: BrokerInMemory) -> tuple[int, int]:
    """Consumer offsets of stock's group: of half and of op messages."""
    return (
        broker.offsets.query(SYSTEM_GROUP, HALF, 0),
        broker.offsets.query(SYSTEM_GROUP, OP, 0),
    )


class TestDecisions:
    def test_nobody_sees_a_half_message(self) -> None:
        broker = BrokerInMemory()
        sent = begin(broker, queue_id="ignored")
        assert (sent["queueId"], sent["queueOffset"], sent["transactionId"]) == ("0", "0", "ID-x")
        assert not broker.consume()
        (half,) = broker.consume(HALF)
        assert half.properties["REAL_TOPIC"] == "Topic"
        assert half.properties["REAL_QID"] == "0"
        assert half.properties["__transactionId__"] == "ID-x"
        assert transaction_value(half.sys_flag) == 0

    def test_commit(self) -> None:
        broker = BrokerInMemory()
        sent = begin(broker)
        ok(end(broker, sent))
        (message,) = broker.consume()
        assert (message.body, message.tags, message.message_id) == (b"x", "a", "ID-x")
        assert transaction_value(message.sys_flag) == TRANSACTION_COMMIT
        assert message.properties["TRAN_MSG"] == "true", "as stock's consumers want it"
        record = broker.store.record_at(message.physical_offset)
        assert record is not None
        prepared = decode_record(record).prepared_transaction_offset
        assert prepared == int(sent["msgId"][-16:], 16)
        assert ops(broker) == ["0"]

    def test_rollback(self) -> None:
        broker = BrokerInMemory()
        sent = begin(broker)
        ok(end(broker, sent, ROLLBACK))
        let(broker, 100)
        assert not broker.consume()
        assert ops(broker) == ["0"]

    def test_a_half_message_with_a_delay_waits_once_it_is_committed(self) -> None:
        broker = BrokerInMemory()
        ok(end(broker, begin(broker, DELAY="2")))
        let(broker, 4)
        assert not broker.consume()
        let(broker, 2)
        assert bodies(broker) == {b"x": 1}

    def test_the_ops_of_one_turn_are_one_message(self) -> None:
        broker = BrokerInMemory()
        sent = [begin(broker, b"%d" % n) for n in range(5)]
        for each in sent:
            broker.handlers[RequestCode.END_TRANSACTION](end_request(each), broker.peer)
        broker.clock.advance(0)
        assert ops(broker) == ["0,1,2,3,4,"]
        assert sum(bodies(broker).values()) == 5

    def test_an_op_message_is_no_larger_than_configured(self) -> None:
        broker = BrokerInMemory(broker={"transaction_op_msg_max_size": 4})
        sent = [begin(broker, b"%d" % n) for n in range(5)]
        for each in sent:
            broker.handlers[RequestCode.END_TRANSACTION](end_request(each), broker.peer)
        broker.clock.advance(0)
        assert ops(broker) == ["0,1,", "2,3,", "4"]

    def test_a_decision_counts_once(self) -> None:
        broker = BrokerInMemory()
        sent, other = begin(broker), begin(broker, b"y")
        ok(end(broker, sent))
        ok(end(broker, sent))
        assert end(broker, sent, ROLLBACK).code == ResponseCode.ILLEGAL_OPERATION
        ok(end(broker, other, ROLLBACK))
        assert end(broker, other).code == ResponseCode.ILLEGAL_OPERATION
        assert bodies(broker) == {b"x": 1}
        assert len(ops(broker)) == 2

    def test_a_decision_counts_once_after_a_restart(self) -> None:
        broker = BrokerInMemory()
        sent, other = begin(broker), begin(broker, b"y")
        ok(end(broker, sent))
        ok(end(broker, other, ROLLBACK))
        broker = restarted(broker)
        ok(end(broker, sent))
        assert end(broker, other).code == ResponseCode.ILLEGAL_OPERATION
        assert bodies(broker) == {b"x": 1}

    @pytest.mark.parametrize(
        ("fields", "code", "remark"),
        [
            ({"commit_log_offset": 7}, ResponseCode.SYSTEM_ERROR, "Find prepared"),
            ({"producer_group": "Q"}, ResponseCode.SYSTEM_ERROR, "producer group wrong"),
            ({"tran_state_table_offset": 9}, ResponseCode.SYSTEM_ERROR, "table offset wrong"),
            ({"commit_or_rollback": 4}, ResponseCode.INVALID_PARAMETER, "commitOrRollback=4"),
        ],
    )
    def test_what_is_wrong_is_refused(
        self, fields: dict[str, object], code: ResponseCode, remark: str
    ) -> None:
        broker = BrokerInMemory()
        refused = end(broker, begin(broker), **fields)  # type: ignore[arg-type]
        assert refused.code == code
        assert remark in (refused.remark or "")
        assert not broker.consume()

    def test_a_message_that_is_no_half_message_cannot_be_committed(self) -> None:
        broker = BrokerInMemory()
        sent = ok(broker.send(properties={"PGROUP": "P"}))
        assert end(broker, sent).code == ResponseCode.SYSTEM_ERROR

    def test_a_late_decision_about_an_immune_message_is_refused(self) -> None:
        broker = BrokerInMemory()
        peer = connect(broker)
        sent = begin(broker, CHECK_IMMUNITY_TIME_IN_SECONDS="10")
        let(broker, 10.5)
        assert end(broker, sent).code == ResponseCode.ILLEGAL_OPERATION
        (asked,) = questions(peer)
        ok(answer(broker, asked, COMMIT))
        assert bodies(broker) == {b"x": 1}

    def test_a_refused_half_message_does_not_take_the_place_of_the_first(self) -> None:
        broker = BrokerInMemory()
        properties = {"TRAN_MSG": "true", "PGROUP": "P"}
        send = broker.handlers[RequestCode.SEND_MESSAGE_V2]
        send(broker.send_request(b"x", properties=properties), broker.peer)
        too_long = properties | {"z": "x" * MOST_SENT_PROPERTIES}
        with pytest.raises(RequestError):
            send(broker.send_request(b"y", properties=too_long), broker.peer)
        broker.clock.advance(0)
        (sent,) = broker.peer.replies
        ok(end(broker, sent.ext_fields))
        assert bodies(broker) == {b"x": 1}

    def test_rejected_by_configuration(self) -> None:
        broker = BrokerInMemory(broker={"reject_transaction_message": True})
        refused = broker.send(properties={"TRAN_MSG": "true", "PGROUP": "P"})
        assert refused is not None
        assert refused.code == ResponseCode.NO_PERMISSION

    def test_a_slave_decides_nothing(self) -> None:
        broker = BrokerInMemory()
        sent = begin(broker)
        broker.become(RoleState(Role.SLAVE, 1))
        assert end(broker, sent).code == ResponseCode.SLAVE_NOT_AVAILABLE
        assert broker.broker[Transactions].work is None
        peer = connect(broker)
        let(broker, 100)
        assert not questions(peer)


class TestAskingBack:
    def test_when(self) -> None:
        broker = BrokerInMemory()
        peer = connect(broker)
        began = broker.now_ms()
        begin(broker)
        let(broker, 100, 0.01)
        asked_at = [at for at, asked in zip(times(broker)[1:], questions(peer), strict=True)]
        first = began - (broker.now_ms() - round(broker.clock.seconds() * 1000))
        expected = [first + 6_000 + n * 30_000 for n in range(4)]
        for at, due in zip(asked_at, expected, strict=True):
            assert due <= at <= due + 100

    def test_a_producer_with_a_slow_clock_is_asked_no_sooner(self) -> None:
        broker = BrokerInMemory()
        peer = connect(broker)
        broker.shift_ms = 60_000
        ok(broker.send(properties={"TRAN_MSG": "true", "PGROUP": "P"}, born_timestamp=START_MS))
        let(broker, 5)
        assert not questions(peer)
        let(broker, 2)
        assert len(questions(peer)) == 1

    def test_what(self) -> None:
        broker = BrokerInMemory()
        peer = connect(broker)
        begin(broker, b"body")
        let(broker, 7)
        (asked,) = questions(peer)
        _, copy = broker.consume(HALF)
        assert asked.topic == HALF
        assert (asked.msg_id, asked.transaction_id) == ("ID-body", "ID-body")
        assert asked.tran_state_table_offset == copy.queue_offset == 1
        assert asked.commit_log_offset == copy.physical_offset
        assert asked.bname == "broker-a"
        shown = decode_record(peer.oneways[-1].body)
        assert (shown.topic, shown.queue_id, shown.body) == ("Topic", 0, b"body")
        assert copy.properties["TRANSACTION_CHECK_TIMES"] == "1"

    @pytest.mark.parametrize("decision", [COMMIT, ROLLBACK])
    def test_the_answer_ends_it(self, decision: int) -> None:
        broker = BrokerInMemory()
        peer = connect(broker)
        begin(broker)
        let(broker, 7)
        ok(answer(broker, questions(peer)[0], decision))
        let(broker, 100)
        assert len(questions(peer)) == 1
        assert bodies(broker) == ({b"x": 1} if decision == COMMIT else {})

    def test_not_decided_yet_is_asked_again(self) -> None:
        broker = BrokerInMemory()
        peer = connect(broker)
        begin(broker)
        let(broker, 7)
        ok(answer(broker, questions(peer)[0], UNKNOWN))
        let(broker, 31)
        ok(answer(broker, questions(peer)[1], COMMIT))
        assert bodies(broker) == {b"x": 1}

    def test_the_first_decision_comes_after_the_question(self) -> None:
        """The producer's own decision and its answer say the same: it counts once."""
        broker = BrokerInMemory()
        peer = connect(broker)
        sent = begin(broker)
        let(broker, 40)
        first, second = questions(peer)
        ok(end(broker, sent))
        ok(answer(broker, second, COMMIT))
        ok(answer(broker, first, COMMIT))
        let(broker, 100)
        assert bodies(broker) == {b"x": 1}
        assert len(questions(peer)) == 2

    def test_a_time_of_its_own(self) -> None:
        broker = BrokerInMemory()
        peer = connect(broker)
        begin(broker, b"long", CHECK_IMMUNITY_TIME_IN_SECONDS="60")
        begin(broker, b"short", CHECK_IMMUNITY_TIME_IN_SECONDS="1")
        begin(broker, b"usual")
        let(broker, 2)
        assert [asked.msg_id for asked in questions(peer)] == ["ID-short"]
        let(broker, 5)
        assert [asked.msg_id for asked in questions(peer)] == ["ID-short", "ID-usual"]
        let(broker, 52)
        assert "ID-long" not in [asked.msg_id for asked in questions(peer)]
        let(broker, 2)
        assert questions(peer)[-1].msg_id == "ID-long"

    def test_a_clock_that_is_set_ahead_is_heard_of_soon(self) -> None:
        broker = BrokerInMemory()
        peer = connect(broker)
        begin(broker, CHECK_IMMUNITY_TIME_IN_SECONDS=str(4 * 3600))
        let(broker, 60)
        broker.shift_ms += 5 * 3600 * 1000
        let(broker, 12)
        assert len(questions(peer)) == 1

    def test_another_of_the_group_is_asked(self) -> None:
        broker = BrokerInMemory()
        first, second, stranger = (
            connect(broker, "a"),
            connect(broker, "bb"),
            connect(broker, "ccc", "Q"),
        )
        begin(broker)
        let(broker, 7)
        gone, left = (first, second) if questions(first) else (second, first)
        assert not questions(left)
        gone.lose()
        let(broker, 31)
        (asked,) = questions(left)
        ok(answer(broker, asked, COMMIT))
        assert bodies(broker) == {b"x": 1}
        assert not questions(stranger)

    def test_nobody_there_to_be_asked(self) -> None:
        broker = BrokerInMemory()
        begin(broker)
        let(broker, 20)
        peer = connect(broker)
        let(broker, 20)
        (asked,) = questions(peer)
        ok(answer(broker, asked, COMMIT))
        assert bodies(broker) == {b"x": 1}

    def test_many_at_once_and_a_producer_that_does_not_keep_up(self) -> None:
        broker = BrokerInMemory()
        peer = connect(broker)
        for n in range(600):
            begin(broker, b"%d" % n)
        peer.ready = False
        broker.clock.advance(6)
        for _ in range(5):
            broker.clock.advance(0)
        assert 0 < len(questions(peer)) < 600
        peer.go_on()
        let(broker, 1)
        assert sorted(asked.msg_id or "" for asked in questions(peer)) == sorted(
            f"ID-{n}" for n in range(600)
        )

    def test_a_write_that_fails_strands_nothing(self) -> None:
        broker = BrokerInMemory()
        peer = connect(broker)
        begin(broker)
        append = broker.store.append
        failures = 3

        def failing(*args: object, **kwargs: object) -> object:
            nonlocal failures
            if failures:
                failures -= 1
                raise OSError(28, "No space left on device")
            return append(*args, **kwargs)  # type: ignore[arg-type]

        broker.store.append = failing  # type: ignore[method-assign, assignment]
        let(broker, 15)
        assert len(questions(peer)) == 1


class TestGivingUp:
    def exhausted(self) -> BrokerInMemory:
        broker = BrokerInMemory(broker={"transaction_check_max": 2})
        self.peer = connect(broker)
        self.sent = begin(broker)
        let(broker, 6 + 3 * 30)
        return broker

    def test_after_so_many_questions(self) -> None:
        broker = self.exhausted()
        assert len(questions(self.peer)) == 2
        (message,) = broker.consume(GIVEN_UP)
        assert message.body == b"x"
        assert message.properties["TRANSACTION_CHECK_TIMES"] == "2"
        assert broker.topics.get(GIVEN_UP) is not None
        let(broker, 200)
        assert len(broker.consume(GIVEN_UP)) == 1

    def test_older_than_the_log_is_kept(self) -> None:
        broker = BrokerInMemory(file_reserved_time=1)
        peer = connect(broker)
        begin(broker, CHECK_IMMUNITY_TIME_IN_SECONDS="3700")
        let(broker, 3800, 5)
        assert not questions(peer)
        assert len(broker.consume(GIVEN_UP)) == 1

    def test_one_that_is_never_to_be_asked_about_keeps_the_log_no_longer(self) -> None:
        """Retention stopped in front of it for as long as its producer said."""
        broker = BrokerInMemory(file_reserved_time=1)
        connect(broker)
        begin(broker, CHECK_IMMUNITY_TIME_IN_SECONDS="9" * 18)
        let(broker, 3500, 5)
        assert not broker.consume(GIVEN_UP)
        let(broker, 150, 5)
        assert len(broker.consume(GIVEN_UP)) == 1

    def test_a_late_decision_is_taken_once(self) -> None:
        broker = self.exhausted()
        ok(end(broker, self.sent))
        ok(end(broker, self.sent))
        assert bodies(broker) == {b"x": 1}
        broker = restarted(broker)
        ok(end(broker, self.sent))
        assert bodies(broker) == {b"x": 1}

    def resume(self, broker: BrokerInMemory, message_id: str) -> RemotingCommand:
        header = ResumeCheckHalfMessageRequestHeader(topic="Topic", msg_id=message_id)
        answered = broker.request(
            RemotingCommand.request(RequestCode.RESUME_CHECK_HALF_MESSAGE, header)
        )
        assert answered is not None
        return answered

    def test_asked_about_again(self) -> None:
        broker = self.exhausted()
        (message,) = broker.consume(GIVEN_UP)
        message_id = offset_message_id("127.0.0.1", 10911, message.physical_offset)
        ok(self.resume(broker, message_id))
        assert self.resume(broker, message_id).remark == "it waits already"
        let(broker, 0.2)
        assert len(questions(self.peer)) == 3
        ok(answer(broker, questions(self.peer)[2], COMMIT))
        let(broker, 100)
        assert bodies(broker) == {b"x": 1}
        assert len(questions(self.peer)) == 3

    @pytest.mark.parametrize("message_id", ["", "no id", "7F000001" + "00002A9F" + "0" * 15 + "7"])
    def test_an_id_of_nothing(self, message_id: str) -> None:
        refused = self.resume(BrokerInMemory(), message_id)
        assert refused.code == ResponseCode.SYSTEM_ERROR
        assert refused.remark


class TestWhatIsKept:
    def test_progress_is_stocks(self) -> None:
        broker = BrokerInMemory()
        first, second, third = (begin(broker, body) for body in (b"1", b"2", b"3"))
        ok(end(broker, second))
        let(broker, 1.1)
        assert progress(broker) == (0, 0)
        ok(end(broker, first))
        let(broker, 1.1)
        assert progress(broker) == (2, 2)
        ok(end(broker, third, ROLLBACK))
        let(broker, 1.1)
        assert progress(broker) == (3, 3)

    def test_counts(self) -> None:
        files = MemoryFiles()
        broker = BrokerInMemory(files)
        sent = begin(broker)
        begin(broker, b"y")
        let(broker, 4)
        path = "/store/config/transactionMetrics"
        kept = json.loads(files.read(path))
        assert kept["transactionCount"]["Topic"]["count"] == 2
        ok(end(broker, sent))
        broker = restarted(broker)
        (figure,) = [m for m in broker.broker.metrics() if m.name == "rocketmq_half_messages"]
        assert (figure.value, figure.labels["topic"]) == (1, "Topic")

    def test_a_broker_that_is_a_slave_now_counts_none(self) -> None:
        """Its master counts them: what this one had as a master would stay for ever."""
        broker = BrokerInMemory()
        begin(broker)
        let(broker, 4)
        broker.stop()
        slave = BrokerInMemory(broker.files, clock=broker.clock, broker_role="SLAVE")
        let(slave, 4)
        assert not [m for m in slave.broker.metrics() if m.name == "rocketmq_half_messages"]
        kept = json.loads(broker.files.read("/store/config/transactionMetrics"))
        assert kept["transactionCount"] == {}

    def test_the_time_until_a_commit_is_told_in_seconds(self) -> None:
        broker = BrokerInMemory()
        committed, rolled_back = begin(broker), begin(broker, b"y")
        let(broker, 7)
        ok(end(broker, committed))
        ok(end(broker, rolled_back, ROLLBACK))
        name = "rocketmq_finish_message_latency"
        (figure,) = [each for each in broker.broker.metrics() if each.name == name]
        assert isinstance(figure.value, Distribution) and figure.labels["topic"] == "Topic"
        assert figure.value.counts == (0, 1, 0, 0, 0, 0, 0)

    def test_the_time_until_a_commit_is_none_where_the_clock_was_set_back(self) -> None:
        broker = BrokerInMemory()
        half = begin(broker)
        broker.shift_ms -= 3_600_000
        ok(end(broker, half))
        name = "rocketmq_finish_message_latency"
        (figure,) = [each for each in broker.broker.metrics() if each.name == name]
        assert isinstance(figure.value, Distribution)
        assert (sum(figure.value.counts), figure.value.total) == (1, 0)

    def test_decisions_are_told_by_topic(self) -> None:
        broker = BrokerInMemory()
        begin(broker)
        for body, decision in ((b"a", COMMIT), (b"b", COMMIT), (b"c", ROLLBACK)):
            ok(end(broker, begin(broker, body), decision))

        def told() -> dict[str, Any]:
            return {
                each.name.split("_")[1]: (each.labels["topic"], each.value)
                for each in broker.broker[Transactions].metrics()
                if not isinstance(each.value, Distribution)
            }

        topic = "Topic"
        assert told() == {"half": (topic, 1), "commit": (topic, 2), "rollback": (topic, 1)}
        broker.ask(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic=topic))
        assert told() == {"half": (topic, 1)}

    @pytest.mark.parametrize("seconds", [0, 8, 40])
    def test_a_restart_asks_again(self, seconds: float) -> None:
        broker = BrokerInMemory()
        connect(broker)
        begin(broker)
        ok(end(broker, begin(broker, b"committed")))
        let(broker, seconds)
        broker = restarted(broker)
        peer = connect(broker)
        let(broker, 40)
        asked = questions(peer)
        assert {each.msg_id for each in asked} == {"ID-x"}
        ok(answer(broker, asked[-1], COMMIT))
        let(broker, 100)
        assert bodies(broker) == {b"x": 1, b"committed": 1}

    def test_a_decision_waits_until_it_is_known_what_waits(self) -> None:
        broker = BrokerInMemory()
        sent = begin(broker)
        broker.stop()
        broker = BrokerInMemory(broker.files, clock=broker.clock)
        work = broker.broker[Transactions].work
        assert work is not None and work.book is None
        ok(end(broker, sent))
        assert bodies(broker) == {b"x": 1}

    def test_a_master_that_is_one_again(self) -> None:
        broker = BrokerInMemory()
        sent, other = begin(broker), begin(broker, b"y")
        ok(end(broker, other))
        broker.become(RoleState(Role.ISOLATED, 0))
        broker.become(RoleState(Role.MASTER, 0))
        ok(end(broker, sent))
        assert bodies(broker) == {b"x": 1, b"y": 1}
