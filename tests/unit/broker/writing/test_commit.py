"""What a sender is told, and when, in each flush mode and with replicas."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import LogLevel, capturedLogs, formatEvent
from zope.interface import implementer

from rocketmq_tw.broker.writing.commit import Commit
from rocketmq_tw.broker.writing.dispatcher import Dispatcher
from rocketmq_tw.broker.writing.flush import Flusher
from rocketmq_tw.files.faulty import Fault, FaultyFiles
from rocketmq_tw.files.interface import IFiles
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.message.batch import Batch, BatchedMessage
from rocketmq_tw.replication.interfaces import IReplicator
from rocketmq_tw.runtime.turns import IReactorTurns
from rocketmq_tw.store import dispatching
from rocketmq_tw.store.errors import NotWritableError
from rocketmq_tw.store.interface import Appended
from rocketmq_tw.wire.codes import ResponseCode
from rocketmq_tw.wire.errors import RequestError
from tests.support.broker import BrokerInMemory, Threads
from tests.support.roles import a_master
from tests.support.stores import make_message, open_store, read_all

SYNC = {"flush_disk_type": "SYNC_FLUSH"}


class Answers(list[tuple[str, ResponseCode]]):
    """Who was answered with what, in order."""

    def to(self, name: str) -> Any:
        return lambda code, appended: self.append((name, code))


@implementer(IReplicator)
class Replicas:
    def __init__(self) -> None:
        self.waits: list[tuple[int, Deferred[int]]] = []
        self.why = ""

    def refusal(self) -> str:
        return self.why

    def wait(self, end_offset: int) -> Deferred[int]:
        answer: Deferred[int] = Deferred()
        self.waits.append((end_offset, answer))
        return answer


@implementer(IReactorTurns)
class TurnsClock(Clock):
    """A clock that knows when its turn ends: when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[Callable[[], None]] = []

    def at_turn_end(self, call: Callable[[], None]) -> object:
        return self.ends.append(call)

    def waited(self) -> float:
        return 0.0

    def serve_late(self, seconds: float, call: Callable[[], None]) -> None:
        call()


class Alone:
    """A `Commit` and its `Flusher` on a store, with no broker around: nothing else ticks."""

    def __init__(
        self,
        files: IFiles | None = None,
        threads: Threads | None = None,
        clock: Clock | None = None,
        **given: Any,
    ) -> None:
        store = {name: given.pop(name) for name in tuple(given) if name in SYNC}
        self.clock = clock or Clock()
        self.store = open_store(files or MemoryFiles(), **store)
        config = self.store.config
        self.flusher = Flusher(self.store, config, self.clock, threads or Threads())
        self.dispatcher = Dispatcher(self.store, self.clock)
        self.commit = Commit(
            self.store, config, self.clock, self.flusher, self.dispatcher, a_master(), **given
        )


def test_one_turn_is_one_write_and_its_answers_come_together() -> None:
    plane, answers = BrokerInMemory(), Answers()
    for name in "abc":
        plane.commit.append(make_message(name.encode()), answers.to(name))
    assert answers == []
    assert plane.consume() == [], "nothing is readable before it is written"
    plane.clock.advance(0)
    assert answers == [(name, ResponseCode.SUCCESS) for name in "abc"]
    assert [message.body for message in plane.consume()] == [b"a", b"b", b"c"]


def test_the_turn_ends_where_the_reactor_says_so() -> None:
    clock = TurnsClock()
    ends, (alone, answers) = clock.ends, (Alone(clock=clock), Answers())
    commit = alone.commit
    for name in "ab":
        commit.append(make_message(), answers.to(name))
    assert len(ends) == 1 and not answers
    commit.flushed()
    assert [name for name, _ in answers] == ["a", "b"]
    commit.append(make_message(), answers.to("c"))
    for end in ends:
        end()
    assert [name for name, _ in answers] == ["a", "b", "c"]
    assert not alone.clock.getDelayedCalls()


def test_who_listens_to_dispatches_is_told_once_for_a_turn() -> None:
    plane, told = BrokerInMemory(), []
    plane.dispatcher.on_dispatched(lambda: told.append(len(plane.consume())))
    for _ in range(3):
        plane.commit.append(make_message(), lambda code, appended: None)
    plane.clock.advance(0)
    assert told == [3]


def test_replicas_get_the_bytes_before_the_work_of_the_queues() -> None:
    plane, order = BrokerInMemory(), Answers()
    plane.commit.replicator = Replicas()
    plane.commit.on_written(lambda: order.to("written")(ResponseCode.SUCCESS, None))
    plane.dispatcher.on_dispatched(lambda: order.to("dispatched")(ResponseCode.SUCCESS, None))
    plane.commit.append(make_message(), order.to("answered"))
    plane.clock.advance(0)
    assert [name for name, _ in order] == ["written", "dispatched"]
    plane.commit.replicator.waits[0][1].callback(int(ResponseCode.SUCCESS))
    assert [name for name, _ in order] == ["written", "dispatched", "answered"]


def test_senders_are_answered_before_the_work_of_the_queues() -> None:
    plane, order = BrokerInMemory(), Answers()
    plane.dispatcher.on_dispatched(lambda: order.to("dispatched")(ResponseCode.SUCCESS, None))
    plane.commit.append(make_message(b"a"), order.to("a"))
    plane.commit.append(make_message(b"b"), order.to("b"))
    plane.clock.advance(0)
    assert [name for name, _ in order] == ["a", "b", "dispatched"]


def test_a_batch_is_one_append() -> None:
    plane, done = BrokerInMemory(), []
    batch = Batch.of(BatchedMessage(0, b"%d" % n, b"") for n in range(3))
    plane.commit.append(make_message(), lambda code, a: done.append(a), batch=batch)
    plane.clock.advance(0)
    appended: Appended = done[0]
    assert appended.message_ids.count(",") == 2 and appended.queue_offset == 0
    assert [message.queue_offset for message in plane.consume()] == [0, 1, 2]


def test_what_the_store_refuses_is_refused_at_once() -> None:
    plane, answers = BrokerInMemory(), Answers()
    with pytest.raises(RequestError) as too_large:
        plane.commit.append(make_message(bytes(5000)), answers.to("a"))
    assert too_large.value.code == ResponseCode.MESSAGE_ILLEGAL
    plane.store.close()
    with pytest.raises(RequestError) as closed:
        plane.commit.append(make_message(), answers.to("b"))
    assert closed.value.code == ResponseCode.SERVICE_NOT_AVAILABLE
    plane.clock.advance(1)
    assert answers == []


def test_an_answer_that_fails_does_not_take_the_others_along() -> None:
    plane, answers = BrokerInMemory(), Answers()

    def broken(code: ResponseCode, appended: Appended) -> None:
        raise ZeroDivisionError

    plane.commit.append(make_message(), broken)
    plane.commit.append(make_message(), answers.to("b"))
    plane.clock.advance(0)
    assert answers == [("b", ResponseCode.SUCCESS)]


class TestSyncFlush:
    def test_answers_wait_for_the_disk_and_so_do_readers(self) -> None:
        threads = Threads(eager=False)
        plane, answers = BrokerInMemory(threads=threads, **SYNC), Answers()
        plane.commit.append(make_message(), answers.to("a"))
        plane.clock.advance(0)
        assert answers == [] and plane.consume() == []
        threads.run()
        assert answers == [("a", ResponseCode.SUCCESS)]
        assert len(plane.consume()) == 1
        assert plane.store.flushed_offset == plane.store.end_offset

    def test_one_sync_serves_all_that_wait_and_the_next_whoever_came_meanwhile(self) -> None:
        threads = Threads(eager=False)
        plane, answers = BrokerInMemory(threads=threads, **SYNC), Answers()
        plane.commit.append(make_message(), answers.to("first"))
        plane.clock.advance(0)
        for name in ("second", "third"):
            plane.commit.append(make_message(), answers.to(name))
            plane.clock.advance(0)
        assert len(threads.waiting) == 1, "one at a time"
        # The sync that runs now began before the others were written.
        (job, result) = threads.waiting.pop()
        reached = plane.store.flushed_offset
        job()
        assert plane.store.flushed_offset > reached
        result.callback(None)
        threads.run()
        assert [name for name, _ in answers] == ["first", "second", "third"]

    def test_who_does_not_wait_is_answered_after_the_write(self) -> None:
        threads = Threads(eager=False)
        plane, answers = BrokerInMemory(threads=threads, **SYNC), Answers()
        plane.commit.append(make_message(), answers.to("waits"))
        plane.commit.append(make_message(), answers.to("not"), wait=False)
        plane.clock.advance(0)
        assert answers == [("not", ResponseCode.SUCCESS)]
        threads.run()
        assert answers[1:] == [("waits", ResponseCode.SUCCESS)]

    def test_a_slow_disk_times_out_once(self) -> None:
        threads = Threads(eager=False)
        plane, answers = BrokerInMemory(threads=threads, **SYNC), Answers()
        plane.commit.append(make_message(), answers.to("a"))
        plane.clock.advance(0)
        plane.clock.advance(4.9)
        assert answers == []
        plane.clock.advance(0.2)
        assert answers == [("a", ResponseCode.FLUSH_DISK_TIMEOUT)]
        threads.run()
        plane.clock.advance(10)
        assert len(answers) == 1

    def test_a_failed_sync_is_told_to_all_that_wait_and_nothing_is_promised_after(self) -> None:
        files = FaultyFiles(MemoryFiles())
        threads = Threads(eager=False)
        plane, answers = BrokerInMemory(files, threads=threads, **SYNC), Answers()
        plane.commit.append(make_message(), answers.to("a"))
        plane.clock.advance(0)
        plane.commit.append(make_message(), answers.to("b"))
        plane.clock.advance(0)
        files.faults.append(Fault("fsync", "commitlog", times=1))
        threads.run()
        assert answers == [
            ("a", ResponseCode.SYSTEM_ERROR),
            ("b", ResponseCode.SYSTEM_ERROR),
        ]
        with pytest.raises(RequestError) as refused:
            plane.commit.append(make_message(), answers.to("c"))
        assert refused.value.code == ResponseCode.SERVICE_NOT_AVAILABLE


class TestWriteFails:
    def test_everyone_of_the_turn_is_told(self) -> None:
        files = FaultyFiles(MemoryFiles())
        plane, answers = BrokerInMemory(files), Answers()
        plane.commit.append(make_message(), answers.to("a"))
        plane.commit.append(make_message(), answers.to("b"))
        files.faults.append(Fault("pwrite", "commitlog", errno.ENOSPC, times=1))
        plane.clock.advance(0)
        assert answers == [
            ("a", ResponseCode.SYSTEM_ERROR),
            ("b", ResponseCode.SYSTEM_ERROR),
        ]
        assert plane.consume() == []
        plane.commit.append(make_message(b"later"), answers.to("c"))
        plane.clock.advance(0)
        assert answers[2:] == [("c", ResponseCode.SUCCESS)], "room was made"
        assert [message.body for message in plane.consume()] == [b"later"]

    def test_a_queue_that_cannot_be_written_takes_no_more_and_holds_up_no_other(self) -> None:
        files = FaultyFiles(MemoryFiles())
        alone, answers = Alone(files), Answers()
        files.faults.append(Fault("create", "consumequeue", errno.ENOSPC))
        alone.commit.append(make_message(), answers.to("a"))
        alone.clock.advance(0)
        assert answers == [("a", ResponseCode.SUCCESS)], "it is in the log"
        assert len(read_all(alone.store)) == 1
        with pytest.raises(RequestError, match="No space left") as refused:
            alone.commit.append(make_message(), answers.to("b"))
        assert refused.value.code == ResponseCode.SERVICE_NOT_AVAILABLE
        files.faults.clear()
        alone.commit.append(make_message(), answers.to("c"))
        alone.clock.advance(0)
        assert len(read_all(alone.store)) == 2

    def test_queues_that_cannot_be_filled_are_filled_later(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        alone, answers = Alone(), Answers()
        tries: list[int] = []

        def full() -> int:
            tries.append(1)
            raise NotWritableError("queues or index cannot be written")

        with monkeypatch.context() as patch:
            patch.setattr(alone.store, "dispatch", full)
            alone.commit.append(make_message(), answers.to("a"))
            alone.clock.advance(0)
            assert answers == [("a", ResponseCode.SUCCESS)], "it is in the log"
            alone.clock.advance(1)
            assert len(tries) == 2 and read_all(alone.store) == []
        alone.clock.advance(1)
        assert len(read_all(alone.store)) == 1

    def test_stop_does_not_leave_a_retry_behind(self) -> None:
        alone, answers = Alone(), Answers()
        alone.store.dispatch = None  # type: ignore[assignment]
        alone.commit.append(make_message(), answers.to("a"))
        alone.clock.advance(0)
        alone.commit.stop()
        assert not alone.clock.getDelayedCalls()


class TestReplicas:
    def make(self, **store: Any) -> tuple[BrokerInMemory, Replicas, Answers]:
        broker, replicas = BrokerInMemory(**store), Replicas()
        broker.commit.replicator = replicas
        return broker, replicas, Answers()

    def test_one_wait_for_a_turn(self) -> None:
        plane, replicas, answers = self.make()
        plane.commit.append(make_message(), answers.to("a"))
        plane.commit.append(make_message(), answers.to("b"))
        plane.clock.advance(0)
        ((end_offset, answer),) = replicas.waits
        assert end_offset == plane.store.end_offset
        assert answers == []
        answer.callback(ResponseCode.SUCCESS)
        assert answers == [("a", ResponseCode.SUCCESS), ("b", ResponseCode.SUCCESS)]

    @pytest.mark.parametrize("flushed_first", [True, False])
    @pytest.mark.parametrize("code", [ResponseCode.SUCCESS, ResponseCode.FLUSH_SLAVE_TIMEOUT])
    def test_disk_and_replicas_are_both_waited_for(
        self, flushed_first: bool, code: ResponseCode
    ) -> None:
        threads = Threads(eager=False)
        plane, replicas, answers = self.make(threads=threads, broker_role="SYNC_MASTER", **SYNC)
        plane.commit.append(make_message(), answers.to("a"))
        plane.clock.advance(0)
        _, answer = replicas.waits[0]
        steps = [threads.run, lambda: answer.callback(code)]
        for step in steps if flushed_first else reversed(steps):
            assert answers == []
            step()
        assert answers == [("a", code)]

    def test_a_disk_time_out_shows_where_the_replicas_are_well(self) -> None:
        plane, replicas, answers = self.make(threads=Threads(eager=False), **SYNC)
        plane.commit.append(make_message(), answers.to("a"))
        plane.clock.advance(0)
        plane.clock.advance(6)
        replicas.waits[0][1].callback(ResponseCode.SUCCESS)
        assert answers == [("a", ResponseCode.FLUSH_DISK_TIMEOUT)]

    def test_a_replicator_that_fails_is_a_system_error(self) -> None:
        plane, replicas, answers = self.make()
        plane.commit.append(make_message(), answers.to("a"))
        plane.clock.advance(0)
        replicas.waits[0][1].errback(ZeroDivisionError())
        assert answers == [("a", ResponseCode.SYSTEM_ERROR)]

    def test_who_does_not_wait_does_not_ask(self) -> None:
        plane, replicas, answers = self.make()
        plane.commit.append(make_message(), answers.to("a"), wait=False)
        plane.clock.advance(0)
        assert replicas.waits == [] and len(answers) == 1


def test_flushed_writes_and_syncs_what_is_appended() -> None:
    plane, answers = BrokerInMemory(), Answers()
    plane.commit.append(make_message(), answers.to("a"))
    durable: list[bool] = []
    plane.commit.flushed().addCallback(durable.append)
    assert durable == [True] and len(answers) == 1
    assert plane.store.flushed_offset == plane.store.end_offset > 0


def test_stop_answers_all_and_accepts_no_more() -> None:
    threads = Threads(eager=False)
    alone, answers = Alone(threads=threads, **SYNC), Answers()
    alone.flusher.start()
    alone.commit.append(make_message(), answers.to("a"))
    stopped: list[None] = []
    alone.commit.stop().addCallback(stopped.append)
    with pytest.raises(RequestError):
        alone.commit.append(make_message(), answers.to("b"))
    assert not stopped
    threads.run()
    assert stopped and answers == [("a", ResponseCode.SUCCESS)]
    alone.clock.advance(0)
    assert not alone.clock.getDelayedCalls(), "nothing ticks any more"


def test_senders_of_many_keys_wait_for_no_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatching, "_WORK", 100)
    alone, waiting = Alone(), []

    def done(code: ResponseCode, _: Appended) -> None:
        assert code is ResponseCode.SUCCESS
        waiting.append(not alone.store.is_dispatched)

    for _ in range(6):
        alone.commit.append(make_message(keys=" ".join(map(str, range(60)))), done)
    alone.clock.advance(0)
    assert waiting == [True] * 6 and alone.store.is_dispatched


def test_a_full_disk_has_a_few_lines_in_the_log() -> None:
    """Each turn that cannot be written would be one; the log may be on that disk."""
    files = FaultyFiles(MemoryFiles())
    broker = BrokerInMemory(files)
    broker.add_topic("Topic")
    files.room = 0
    answers = Answers()
    with capturedLogs() as logs:
        for number in range(50):
            broker.commit.append(make_message(b"x", topic="Topic"), answers.to(str(number)))
            broker.clock.advance(0)
    assert {code for _, code in answers} == {ResponseCode.SYSTEM_ERROR} and len(answers) == 50
    lines = [formatEvent(event) for event in logs if event["log_level"] >= LogLevel.warn]
    assert len(lines) <= 4
    assert "50" in lines[-1] or "10 times" in lines[-1]
