"""The log of a broker is cut, and the power goes away at every moment of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.testing import MemoryReactorClock

from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.files.faulty import FaultyFiles
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.store import cutting
from rocketmq_tw.store.checkpoint import read_checkpoint
from rocketmq_tw.wire.codes import ResponseCode
from tests.support.broker import BrokerInMemory, Threads, fired, ok
from tests.support.network import FakePeer
from tests.support.power import aftermaths

SENT, KEPT = 12, 5


def filled(files: Any) -> tuple[BrokerInMemory, int]:
    """A broker whose consumers and delays have reached the log's end; where its message `KEPT`
    starts."""
    broker = BrokerInMemory(files, flush_disk_type="SYNC_FLUSH", message_delay_level="1s 1d")
    for number in range(SENT):
        ok(broker.send(b"%d" % number))
        ok(broker.send(b"late %d" % number, properties={"DELAY": "1"}))
    broker.offsets.commit("G", "Topic", 0, SENT)
    broker.clock.advance(2)
    broker.clock.advance(10)
    assert broker.delay_offsets.get(1) == SENT
    (unit,) = broker.store.queue_units("Topic", 0, KEPT, 1)
    return broker, unit.position


def cut(broker: BrokerInMemory, end: int, look: Callable[[], object] = lambda: None) -> None:
    """Cuts the log; `look` is called once that is done, before anything goes on."""
    done = broker.broker[Writing].truncation.cut(end)
    done.addCallback(lambda _: look())
    for _ in range(1_000):
        if not done.called:
            broker.clock.advance(0)
    fired(done)


def unconfirmed(broker: BrokerInMemory, confirmed: int, **properties: str) -> list[int]:
    """Sends eight messages of which so many get into their queue; where they start."""
    for number in range(8):
        if number == confirmed:
            broker.clock.advance(1)
            broker.store.dispatch_limit = broker.store.dispatched_offset
        ok(broker.send(b"%d" % number, properties=properties))
    broker.clock.advance(1)
    assert broker.store.max_queue_offset("Topic", 0) == confirmed
    return [head.physical_offset for head in broker.store.records(0)]


def one_by_one(clock: Any, steps: Iterator[None]) -> Deferred[None]:
    done: Deferred[None] = Deferred()

    def step() -> None:
        try:
            next(steps)
        except StopIteration:
            done.callback(None)
        except Exception:
            done.errback()
        else:
            clock.callLater(0.001, step)

    step()
    return done


def check(files: MemoryFiles) -> None:
    """No offset is ahead of its queue, and what is sent now is what the consumer reads next."""
    broker = BrokerInMemory(files, flush_disk_type="SYNC_FLUSH", message_delay_level="1s 1d")
    assert broker.offsets.query("G", "Topic", 0) <= broker.store.max_queue_offset("Topic", 0)
    waiting = broker.store.max_queue_offset("SCHEDULE_TOPIC_XXXX", 0)
    assert broker.delay_offsets.get(1) <= waiting
    bodies = [message.body for message in broker.consume()]
    assert bodies[:KEPT] == [b"%d" % number for number in range(KEPT)]
    ok(broker.send(b"next"))
    assert broker.consume()[-1].body == b"next"


def test_all_that_stands_for_the_end_goes_back_with_it() -> None:
    broker, end = filled(MemoryFiles())
    peer = FakePeer()
    at_end = broker.store.max_queue_offset("Topic", 0)
    assert broker.request(broker.pull_request(at_end, suspend_ms=15_000), peer) is None
    seen: list[tuple[int, ...]] = []

    def look() -> None:
        queue, read = (
            broker.store.max_queue_offset("Topic", 0),
            broker.offsets.query("G", "Topic", 0),
        )
        seen.append((broker.store.end_offset, queue, read, broker.delay_offsets.get(1)))

    cut(broker, end, look)
    assert seen == [(end, KEPT, KEPT, 0)], "what became of delayed messages was behind the end"
    assert [reply.code for reply in peer.replies] == [ResponseCode.PULL_OFFSET_MOVED]
    ok(broker.send(b"next"))
    assert broker.consume()[-1].body == b"next"
    broker.stop()
    check(broker.files)  # type: ignore[arg-type]


def test_what_is_not_cut_keeps_its_offsets() -> None:
    """On a slave a consumer may be ahead of the queue, which is only behind its master's."""
    broker, _ = filled(MemoryFiles())
    broker.offsets.commit("G", "Topic", 1, 77)
    cut(broker, broker.store.end_offset)
    assert broker.offsets.query("G", "Topic", 0) == SENT
    assert broker.offsets.query("G", "Topic", 1) == 77


def test_offsets_of_what_is_in_no_queue_yet_go_back_with_it() -> None:
    """As after a kill: queues are made again up to what the checkpoint says is confirmed, and
    offsets in files are those of before."""
    broker = BrokerInMemory()
    starts = unconfirmed(broker, 3)
    broker.offsets.commit("ahead", "Topic", 0, 8)
    broker.offsets.commit("still there", "Topic", 0, 4)
    broker.offsets.commit("slave's", "Topic", 1, 77)
    broker.offsets.reset("reset", "Topic", 0, 7)
    cut(broker, starts[KEPT])
    groups = ("ahead", "still there", "reset")
    assert [broker.offsets.query(group, "Topic", 0) for group in groups] == [KEPT, 4, KEPT]
    assert broker.offsets.query("slave's", "Topic", 1) == 77
    assert broker.offsets.take_reset("reset", "Topic", 0) == KEPT


def test_further_queues_lose_what_was_not_in_them_yet() -> None:
    broker = BrokerInMemory(enable_multi_dispatch=True, enable_lmq=True)
    starts = unconfirmed(broker, 3, INNER_MULTI_DISPATCH="%LMQ%one,Other")
    for topic in ("%LMQ%one", "Other"):
        broker.offsets.commit("G", topic, 0, 8)
    cut(broker, starts[KEPT])
    assert broker.offsets.query("G", "%LMQ%one", 0) == KEPT
    assert broker.offsets.query("G", "Other", 0) == KEPT


def test_a_topic_that_was_made_again_behind_the_cut_begins_anew() -> None:
    """What was there before its deletion belongs to no queue, though its bytes are in the log."""
    broker = BrokerInMemory()
    starts = unconfirmed(broker, 3)
    broker.store.remove_topics(["Topic"])
    ok(broker.send(b"new"))
    broker.offsets.commit("G", "Topic", 0, 1)
    cut(broker, starts[KEPT])
    assert broker.offsets.query("G", "Topic", 0) == 0


@pytest.mark.parametrize("at_once", [1, cutting.STEP_WORK])
def test_the_power_goes_away_at_every_moment(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cutting, "STEP_WORK", at_once)
    disk = FaultyFiles(MemoryFiles())
    broker, end = filled(disk)
    left = list(aftermaths(disk, lambda: cut(broker, end), seeds=(1, 2)))
    for each in left:
        check(each.files)
    assert left[-1].moment > 10


def test_nothing_is_synced_while_the_log_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = Threads()
    broker = BrokerInMemory(clock=MemoryReactorClock(), threads=threads)
    for number in range(SENT):
        ok(broker.send(b"%d" % number))
    (unit,) = broker.store.queue_units("Topic", 0, KEPT, 1)
    threads.eager = False
    ok(broker.send(b"last"))
    broker.clock.advance(1)
    (under_way,) = [job for job in threads.waiting if job[0] == broker.store.fsync]
    threads.waiting.clear()
    writing, durable = broker.broker[Writing], []
    done = writing.truncation.cut(unit.position)
    cut_at: list[int] = []
    truncate = broker.store.truncate_to

    def watched(offset: int) -> Iterator[None]:
        cut_at.append(offset)
        # Senders that wait for the disk have to wait.
        writing.flusher.when_flushed(0, durable.append)
        for _ in truncate(offset):
            assert not threads.waiting
            yield
        assert not threads.waiting

    def go_on() -> None:
        for _ in range(10):
            broker.clock.advance(0.1)
            threads.run()

    monkeypatch.setattr(broker.store, "truncate_to", watched)
    go_on()
    assert not cut_at and not done.called, "a sync is under way"
    threads.waiting.append(under_way)
    go_on()
    fired(done)
    assert durable == [True]
    assert cut_at == [unit.position]


def test_deleted_queues_go_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    broker, end = filled(MemoryFiles())
    broker.store.remove_topics(["SCHEDULE_TOPIC_XXXX"])
    jobs: list[Any] = []
    removed: list[tuple[str, bool]] = []
    call, remove_tree = Threads.__call__, MemoryFiles.remove_tree

    def in_thread(threads: Threads, job: Any) -> Any:
        def run() -> Any:
            jobs.append(job)
            try:
                return job()
            finally:
                jobs.pop()

        return call(threads, run)

    def noted(files: MemoryFiles, path: str) -> None:
        removed.append((path, bool(jobs)))
        remove_tree(files, path)

    monkeypatch.setattr(Threads, "__call__", in_thread)
    monkeypatch.setattr(MemoryFiles, "remove_tree", noted)
    cut(broker, end)
    assert removed == [("/store/deletedqueues/0/SCHEDULE_TOPIC_XXXX", True)]


def test_others_go_on_while_the_log_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers meet no message that is not there, and what asks for another cut or for the end
    waits."""
    monkeypatch.setattr(cutting, "STEP_WORK", 1)
    broker, end = filled(MemoryFiles())
    for queue_id in range(1, 4):
        ok(broker.send(b"elsewhere", queue_id=queue_id))
    truncation = broker.broker[Writing].truncation
    # One slice for each turn.
    monkeypatch.setattr(truncation._log_end, "_in_slices", partial(one_by_one, broker.clock))
    done, turns, ends = truncation.cut(end), 0, set()
    behind, over = truncation.cut(0), truncation.over()
    while True:
        broker.clock.advance(0.001)
        if done.called:
            break
        turns += 1
        bodies = [message.body for message in broker.consume()]
        assert bodies[:KEPT] == [b"%d" % number for number in range(KEPT)]
        ends.add(len(bodies))
    fired(done)
    assert turns > 3 and ends == {KEPT}
    while not over.called:
        broker.clock.advance(0.001)
    fired(behind)
    assert broker.store.end_offset == 0


def test_what_may_be_seen_while_the_log_is_cut_is_seen_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cutting, "STEP_WORK", 1)
    broker = BrokerInMemory()
    ok(broker.send(b"0"))
    broker.clock.advance(1)
    store, writing = broker.store, broker.broker[Writing]
    store.dispatch_limit = store.dispatched_offset
    for number in range(1, SENT):
        ok(broker.send(b"%d" % number))
    broker.clock.advance(1)
    starts = [head.physical_offset for head in store.records(0)]
    log_end = writing.truncation._log_end
    monkeypatch.setattr(log_end, "_in_slices", partial(one_by_one, broker.clock))
    done = writing.truncation.cut(starts[KEPT])
    assert not done.called
    store.dispatch_limit = starts[KEPT]
    writing.commit.confirmed()
    assert [message.body for message in broker.consume()] == [b"0"]
    broker.clock.advance(0.001)
    fired(done)
    broker.clock.advance(1)
    assert [message.body for message in broker.consume()] == [b"%d" % n for n in range(KEPT)]


def test_a_checkpoint_follows_at_once() -> None:
    broker, end = filled(MemoryFiles())
    broker.store.checkpoint()
    cut(broker, end)
    path = broker.store.paths.checkpoint
    assert read_checkpoint(broker.files, path).safe_offset == -1
    broker.clock.advance(broker.store.config.flush_interval_commit_log / 1000)
    assert read_checkpoint(broker.files, path).safe_offset == end
