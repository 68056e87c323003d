"""Where the broker's own messages go, and what their makers hear of it."""

from __future__ import annotations

import errno
from typing import Any

import pytest
from twisted.internet.defer import Deferred, fail, succeed
from twisted.logger import capturedLogs
from zope.interface import implementer
from zope.interface.verify import verifyObject

from rocketmq_tw.broker.role.state import Role, RoleState
from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.broker.writing.sink import (
    Attempt,
    IMessageSink,
    LocalLog,
    PutResult,
    SinkOfRole,
    attempt,
)
from rocketmq_tw.files.faulty import Fault, FaultyFiles
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.message.model import StoredMessage
from rocketmq_tw.store import appending
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError
from tests.support.broker import BrokerInMemory, Threads
from tests.support.roles import a_slave
from tests.support.stores import make_message

SYNC = {"flush_disk_type": "SYNC_FLUSH"}


def sink_of(broker: BrokerInMemory) -> IMessageSink:
    return broker.broker[Writing].sink


def results_of(put: Deferred[Any]) -> list[Any]:
    """What `put` fired with, or failed with, by now or later."""
    results: list[Any] = []
    put.addCallbacks(results.append, lambda failure: results.append(failure.value))
    return results


def test_both_are_sinks() -> None:
    broker = BrokerInMemory()
    assert verifyObject(IMessageSink, sink_of(broker))
    assert verifyObject(IMessageSink, LocalLog(broker.commit))


def test_a_master_puts_into_its_own_log() -> None:
    broker = BrokerInMemory()
    results = results_of(sink_of(broker).put(make_message(b"a")))
    assert not results, "nothing is written before the turn ends"
    broker.clock.advance(0)
    (result,) = results
    assert result.code is ResponseCode.SUCCESS and result.is_stored and result.is_safe
    (message,) = broker.consume()
    assert message.body == b"a"
    assert result.appended.physical_offset == message.physical_offset


def test_only_a_put_that_waits_is_told_that_the_disk_is_slow() -> None:
    threads = Threads(eager=False)
    broker = BrokerInMemory(threads=threads, **SYNC)
    quick = results_of(sink_of(broker).put(make_message(b"a")))
    patient = results_of(sink_of(broker).put(make_message(b"b"), wait=True))
    broker.clock.advance(0)
    assert [result.code for result in quick] == [ResponseCode.SUCCESS] and not patient
    broker.clock.advance(5.1)
    (late,) = patient
    assert late.code is ResponseCode.FLUSH_DISK_TIMEOUT
    assert late.is_stored and not late.is_safe


def test_a_write_that_fails_is_a_result_and_no_refusal() -> None:
    files = FaultyFiles(MemoryFiles())
    broker = BrokerInMemory(files)
    results = results_of(sink_of(broker).put(make_message()))
    files.faults.append(Fault("pwrite", "commitlog", errno.ENOSPC, times=1))
    broker.clock.advance(0)
    (result,) = results
    assert result.code is ResponseCode.SYSTEM_ERROR and not result.is_stored


def test_what_the_store_refuses_fails_at_once() -> None:
    broker = BrokerInMemory()
    (error,) = results_of(sink_of(broker).put(make_message(b"x" * 5_000_000)))
    assert isinstance(error, RequestError) and error.code == ResponseCode.MESSAGE_ILLEGAL


@pytest.mark.parametrize("form", ["put", "at_turn_end"])
def test_a_role_without_a_sink_refuses(form: str) -> None:
    broker = BrokerInMemory()
    broker.become(RoleState(Role.SLAVE, 1))
    argument = make_message() if form == "put" else make_message
    (error,) = results_of(getattr(sink_of(broker), form)(argument))
    assert error.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "a broker that is slave stores nothing" in error.remark


def test_each_role_has_its_sink() -> None:
    @implementer(IMessageSink)
    class Remote:
        def put(self, message: StoredMessage, *, wait: bool = False) -> Deferred[Any]:
            return succeed((message.body, wait))

        def at_turn_end(self, compose: Any) -> Deferred[Any]:
            return succeed(compose().body)

    role = a_slave()
    sink = SinkOfRole(role, {})
    sink.sinks[Role.ACTING_MASTER] = Remote()
    (error,) = results_of(sink.put(make_message()))
    assert isinstance(error, RequestError)
    role.change(RoleState(Role.ACTING_MASTER, 1))
    assert results_of(sink.put(make_message(b"a"), wait=True)) == [(b"a", True)]
    assert results_of(sink.at_turn_end(lambda: make_message(b"b"))) == [b"b"]


class TestTurnEnd:
    def test_it_stands_behind_all_else_of_the_turn_and_is_written_with_that(self) -> None:
        broker = BrokerInMemory()
        sink = sink_of(broker)
        last = results_of(sink.at_turn_end(lambda: make_message(b"last")))
        first = results_of(sink.put(make_message(b"first")))
        broker.clock.advance(0)
        assert [message.body for message in broker.consume()] == [b"first", b"last"]
        assert isinstance(last[0], PutResult) and last[0].is_safe
        assert last[0].appended.physical_offset > first[0].appended.physical_offset

    def test_what_is_put_by_then_is_written_with_all_else_too(self) -> None:
        broker = BrokerInMemory()
        sink = sink_of(broker)
        writes: list[int] = []
        commit = broker.broker[Writing].commit
        commit.on_written(lambda: writes.append(len(writes)))

        def put_more() -> StoredMessage:
            sink.put(make_message(b"more"), wait=True)
            return make_message(b"last")

        sink.at_turn_end(put_more)
        sink.put(make_message(b"first"))
        broker.clock.advance(0)
        assert [message.body for message in broker.consume()] == [b"first", b"more", b"last"]
        assert writes == [0]

    def test_nothing_may_be_left_to_say_by_then(self) -> None:
        broker = BrokerInMemory()
        results = results_of(sink_of(broker).at_turn_end(lambda: None))
        broker.clock.advance(0)
        assert results == [None] and broker.consume() == []

    def test_a_role_that_ends_in_the_turn_still_writes_it(self) -> None:
        """What the turn has appended is written, so what belongs behind it must be as well."""
        broker = BrokerInMemory()
        results = results_of(sink_of(broker).at_turn_end(make_message))
        broker.broker.role.change(RoleState(Role.ISOLATED, 0))
        broker.clock.advance(0)
        assert results[0].code is ResponseCode.SUCCESS

    def test_it_fails_with_what_cannot_be_composed_or_stored(self) -> None:
        broker = BrokerInMemory()
        sink = sink_of(broker)

        def broken() -> StoredMessage:
            raise LookupError("nothing there")

        failed = results_of(sink.at_turn_end(broken))
        refused = results_of(sink.at_turn_end(lambda: make_message(b"x" * 5_000_000)))
        stored = results_of(sink.at_turn_end(make_message))
        broker.clock.advance(0)
        assert isinstance(failed[0], LookupError)
        assert refused[0].code == ResponseCode.MESSAGE_ILLEGAL
        assert stored[0].is_stored


class TestAttempt:
    def test_a_message_that_is_stored(self) -> None:
        broker = BrokerInMemory()
        results = results_of(attempt(sink_of(broker).put(make_message())))
        assert not results
        broker.clock.advance(0)
        assert results == [Attempt(True)]

    def test_a_message_that_no_sink_will_take(self) -> None:
        broker = BrokerInMemory()
        (result,) = results_of(attempt(sink_of(broker).put(make_message(b"x" * 5_000_000))))
        assert not result.is_stored and result.is_hopeless and "5000" in result.why

    def test_a_message_that_may_be_stored_another_time(self) -> None:
        files = FaultyFiles(MemoryFiles())
        broker = BrokerInMemory(files)
        unwritten = results_of(attempt(sink_of(broker).put(make_message())))
        files.faults.append(Fault("pwrite", "commitlog", errno.ENOSPC, times=1))
        broker.clock.advance(0)
        assert unwritten == [Attempt(False, "SYSTEM_ERROR")]
        broker.become(RoleState(Role.SLAVE, 1))
        (refused,) = results_of(attempt(sink_of(broker).put(make_message())))
        assert "slave" in refused.why and not refused.is_stored and not refused.is_hopeless

    def test_what_is_no_refusal_is_logged(self) -> None:
        with capturedLogs() as events:
            (result,) = results_of(attempt(fail(LookupError("no such place"))))
        assert result == Attempt(False, "LookupError('no such place')") and len(events) == 1


def test_a_put_that_goes_wrong_fails_and_is_not_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """A delay level that lost count of its puts was silent for ever, and the role never ended."""
    broker = BrokerInMemory()
    broker.send(b"later", properties={"DELAY": "1"})
    broker.clock.pump([0.1] * 5)
    encode, failures = appending.encode_record, [MemoryError("no room for the record")]

    def failing_once(message: StoredMessage, **options: Any) -> Any:
        if message.topic == "Topic" and failures:
            raise failures.pop()
        return encode(message, **options)

    monkeypatch.setattr(appending, "encode_record", failing_once)
    broker.clock.pump([0.1] * 30)
    assert not failures
    assert [message.body for message in broker.consume()] == [b"later"]
    left = results_of(broker.broker.change_role(RoleState(Role.ISOLATED, 0)))
    broker.clock.pump([0.1] * 10)
    assert left == [None]
