"""The periodic flush and the checkpoint."""

from collections.abc import Callable, Iterator

import pytest
from twisted.internet.defer import Deferred
from twisted.logger import capturedLogs

from rocketmq_tw.broker.writing import flush
from rocketmq_tw.broker.writing.health_checks import HealthChecks
from rocketmq_tw.files.faulty import Fault, FaultyFiles
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.store.checkpoint import read_checkpoint
from rocketmq_tw.store.errors import StoreError
from tests.support.broker import BrokerInMemory, Threads
from tests.support.stores import make_message


@pytest.fixture(autouse=True)
def flusher_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else gives jobs to threads."""
    monkeypatch.setattr(HealthChecks, "check", lambda _: None)


def append(plane: BrokerInMemory) -> None:
    plane.commit.append(make_message(), lambda code, appended: None)
    plane.clock.advance(0)


def test_async_flush_syncs_in_the_background() -> None:
    plane = BrokerInMemory()
    append(plane)
    assert plane.store.flushed_offset == 0
    plane.clock.advance(0.4)
    assert plane.store.flushed_offset == 0
    plane.clock.advance(0.2)
    assert plane.store.flushed_offset == plane.store.end_offset


def test_an_idle_log_is_not_synced() -> None:
    threads = Threads(eager=False)
    plane = BrokerInMemory(threads=threads)
    plane.clock.pump([0.5] * 10)
    # A broker that begins writes its groups' offsets once.
    assert plane.store.fsync not in [job for job, _ in threads.waiting]


def test_a_slow_sync_is_not_overtaken_by_the_next() -> None:
    threads = Threads(eager=False)
    plane = BrokerInMemory(threads=threads)
    append(plane)
    plane.clock.pump([0.5] * 5)
    assert len(threads.waiting) == 1


def test_a_caller_that_fails_keeps_no_other_one_waiting() -> None:
    threads, told = Threads(eager=False), []
    plane = BrokerInMemory(threads=threads)

    def fails(durable: bool) -> None:
        raise ValueError("a fault of the caller")

    append(plane)
    with capturedLogs() as logs:
        plane.flusher.when_flushed(plane.store.end_offset, fails)
        plane.flusher.when_flushed(plane.store.end_offset, told.append)
        threads.run()
    assert told == [True]
    assert any("log_failure" in log for log in logs)


def test_a_checkpoint_comes_with_its_interval() -> None:
    plane = BrokerInMemory()
    append(plane)
    plane.clock.pump([0.5] * 100)
    assert read_checkpoint(plane.files, plane.store.paths.checkpoint).safe_offset <= 0
    plane.clock.pump([0.5] * 30)
    checkpoint = read_checkpoint(plane.files, plane.store.paths.checkpoint)
    assert checkpoint.safe_offset == plane.store.end_offset


def fail(**_: object) -> None:
    raise OSError(28, "No space left on device")


def test_a_checkpoint_that_fails_ends_no_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    plane = BrokerInMemory(flush_consume_queue_thorough_interval=1000)
    monkeypatch.setattr(plane.store, "prepare_checkpoint", fail)
    with capturedLogs() as logs:
        plane.clock.pump([0.5] * 4)
    assert logs
    append(plane)
    plane.clock.pump([0.5] * 2)
    assert plane.store.flushed_offset == plane.store.end_offset > 0
    with capturedLogs():
        plane.clock.pump([0.5] * 4)
        monkeypatch.undo()
        plane.clock.pump([0.5] * 4)
    checkpoint = read_checkpoint(plane.files, plane.store.paths.checkpoint)
    assert checkpoint.safe_offset == plane.store.end_offset


def test_a_checkpoint_that_fails_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = Threads(eager=False)
    plane = BrokerInMemory(threads=threads, flush_consume_queue_thorough_interval=1000)
    monkeypatch.setattr(plane.store, "prepare_checkpoint", lambda **_: fail)
    plane.clock.pump([0.5] * 4)
    assert len(threads.waiting) == 1
    append(plane)
    told: list[bool] = []
    plane.flusher.when_flushed(plane.store.end_offset, told.append)
    (checkpoint, flushed) = threads.waiting
    threads.waiting = [flushed]
    threads.run()
    assert told == [True]
    threads.waiting = [checkpoint]
    with capturedLogs() as logs:
        threads.run()
    assert logs


def test_a_log_that_grows_fast_gets_checkpoints_before_their_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(flush, "CHECKPOINT_BYTES", 2000)
    monkeypatch.setattr(flush, "FILE_BYTES", 0)
    plane = BrokerInMemory()

    def safe_offset() -> int:
        return read_checkpoint(plane.files, plane.store.paths.checkpoint).safe_offset

    for _ in range(3):
        append(plane)
    plane.clock.pump([0.5] * 4)
    assert safe_offset() <= 0
    while plane.store.end_offset < 2000:
        append(plane)
    plane.clock.advance(0.5)
    reached = plane.store.end_offset
    assert safe_offset() == reached
    append(plane)
    plane.clock.pump([0.5] * 4)
    assert safe_offset() == reached


def test_many_files_to_sync_put_off_a_checkpoint_before_its_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(flush, "CHECKPOINT_BYTES", 0)
    monkeypatch.setattr(flush, "FILE_BYTES", 1000)
    plane = BrokerInMemory()
    append(plane)
    assert plane.store.unsynced_files == 1
    plane.clock.pump([0.5] * 2)
    assert read_checkpoint(plane.files, plane.store.paths.checkpoint).safe_offset <= 0
    while plane.store.end_offset < 1000 * plane.store.unsynced_files:
        append(plane)
    plane.clock.advance(0.5)
    checkpoint = read_checkpoint(plane.files, plane.store.paths.checkpoint)
    assert checkpoint.safe_offset == plane.store.end_offset
    assert plane.store.unsynced_files == 0


def test_a_log_that_is_never_flushed_to_its_end_gets_its_checkpoints() -> None:
    """Under load there is always something that came while the last round ran."""
    threads = Threads(eager=False)
    plane = BrokerInMemory(threads=threads, flush_consume_queue_thorough_interval=1000)
    append(plane)
    for _ in range(6):
        plane.clock.advance(0.5)
        jobs, threads.waiting = threads.waiting, []
        for job in jobs:
            append(plane)
            threads.waiting = [job]
            threads.run()
    assert read_checkpoint(plane.files, plane.store.paths.checkpoint).safe_offset > 0


def test_a_checkpoint_waits_for_the_log_in_front_of_it() -> None:
    threads = Threads(eager=False)
    plane = BrokerInMemory(threads=threads, flush_consume_queue_thorough_interval=1000)
    append(plane)
    write = plane.store.prepare_checkpoint()
    assert write is not None
    with pytest.raises(StoreError, match="not durable"):
        write()
    append(plane)
    plane.clock.advance(1)
    for _ in ("the log", "the checkpoint"):
        assert read_checkpoint(plane.files, plane.store.paths.checkpoint).safe_offset <= 0
        assert threads.run() == 1
    checkpoint = read_checkpoint(plane.files, plane.store.paths.checkpoint)
    assert checkpoint.safe_offset == plane.store.flushed_offset == plane.store.end_offset


def test_stop_waits_for_the_round_that_runs() -> None:
    threads = Threads(eager=False)
    plane = BrokerInMemory(threads=threads)
    append(plane)
    plane.clock.advance(0.5)
    stopped: list[None] = []
    plane.flusher.stop().addCallback(stopped.append)
    assert not stopped
    threads.run()
    assert stopped
    plane.clock.advance(1)
    assert threads.waiting == []


def test_stop_waits_for_the_checkpoint_that_is_in_a_thread() -> None:
    threads = Threads(eager=False)
    plane = BrokerInMemory(threads=threads, flush_consume_queue_thorough_interval=500)
    append(plane)
    plane.clock.advance(0.5)
    threads.run()
    stopped: list[None] = []
    plane.flusher.stop().addCallback(stopped.append)
    assert not stopped
    threads.run()
    assert stopped
    threads.eager = True
    plane.stop()
    checkpoint = read_checkpoint(plane.files, plane.store.paths.checkpoint)
    assert checkpoint.safe_offset == plane.store.end_offset


def test_a_log_that_cannot_be_synced_is_logged_once_and_then_counted() -> None:
    files = FaultyFiles(MemoryFiles())
    plane = BrokerInMemory(files)
    append(plane)
    files.faults.append(Fault("fsync", "commitlog"))
    with capturedLogs() as events:
        plane.clock.pump([0.5] * 100)
    errors = [
        event
        for event in events
        if event["log_level"].name in ("error", "critical")
        and event["log_namespace"].endswith(".flush")
    ]
    assert len(errors) == 3
    assert sum("log_failure" in event for event in errors) == 1
    assert [event["count"] for event in errors[1:]] == [10, 100]


QUEUES = 20


class FilesOfQueues(FaultyFiles):
    """Counts the syncs of consume queues' files; `at_sync` is called with each number."""

    def __init__(self) -> None:
        super().__init__(MemoryFiles())
        self.count = 0
        self.at_sync: Callable[[int], None] = lambda count: None

    def check(self, operation: str, path: str) -> Fault | None:
        if operation == "fsync" and "/consumequeue/" in path:
            self.count += 1
            self.at_sync(self.count)
        return super().check(operation, path)


def many_queues() -> tuple[BrokerInMemory, FilesOfQueues]:
    """A broker whose next checkpoint, a second from now, has as many files to sync."""
    files = FilesOfQueues()
    broker = BrokerInMemory(files, flush_consume_queue_thorough_interval=1000)
    for number in range(QUEUES):
        message = make_message(b"%d" % number, queue_id=number)
        broker.commit.append(message, lambda code, appended: None)
    broker.clock.advance(0)
    broker.clock.advance(0.6)
    assert broker.store.flushed_offset == broker.store.end_offset
    assert files.count == 0
    return broker, files


def test_a_pause_waits_for_one_file_of_a_checkpoint() -> None:
    broker, files = many_queues()
    paused: list[None] = []

    def pause(count: int) -> None:
        if count == 3:
            broker.flusher.pause().addCallback(paused.append)
            assert not paused

    files.at_sync = pause
    broker.clock.pump([0.5] * 3)
    assert paused == [None]
    assert files.count == 3
    broker.clock.pump([0.5] * 10)
    assert files.count == 3
    with capturedLogs() as logs:
        broker.flusher.resume()
        broker.clock.advance(0.5)
    assert not logs
    assert files.count == QUEUES
    checkpoint = read_checkpoint(files, broker.store.paths.checkpoint)
    assert checkpoint.safe_offset == broker.store.end_offset


def test_a_stop_waits_for_one_file_of_a_checkpoint_and_syncs_the_rest() -> None:
    broker, files = many_queues()
    stopped: list[Deferred[None]] = []
    at_once: list[int] = []

    def stop(count: int) -> None:
        if count == 3:
            stopped.append(broker.flusher.stop())
            stopped[0].addCallback(lambda _: at_once.append(files.count))

    files.at_sync = stop
    broker.clock.pump([0.5] * 3)
    assert at_once == [3]
    broker.stop()
    assert files.count == QUEUES


def test_a_checkpoint_that_waits_for_the_log_is_not_begun_once_a_cut_waits() -> None:
    threads = Threads(eager=False)
    files = FilesOfQueues()
    broker = BrokerInMemory(files, threads=threads, flush_consume_queue_thorough_interval=500)
    append(broker)
    broker.clock.advance(0.5)
    paused: list[None] = []
    broker.flusher.pause().addCallback(paused.append)
    while threads.run():
        pass
    assert paused and files.count == 0


Sliced = tuple[Iterator[None], Deferred[None]]


def queues_being_written(monkeypatch: pytest.MonkeyPatch) -> tuple[BrokerInMemory, list[Sliced]]:
    """A broker that has begun to write its queues for a checkpoint, and the steps of that."""
    plane = BrokerInMemory(flush_consume_queue_thorough_interval=1000)
    slices: list[Sliced] = []

    def in_slices(steps: Iterator[None]) -> Deferred[None]:
        slices.append((steps, Deferred()))
        return slices[-1][1]

    monkeypatch.setattr(plane.flusher, "_in_slices", in_slices)
    for number in (*range(300), *range(300)):
        plane.commit.append(make_message(queue_id=number), lambda code, appended: None)
        plane.clock.advance(0)
    plane.clock.pump([0.5] * 6)
    ((steps, _),) = slices
    next(steps)
    return plane, slices


@pytest.mark.parametrize("is_paused", [False, True])
def test_queues_are_written_in_slices_in_front_of_a_checkpoint(
    monkeypatch: pytest.MonkeyPatch, is_paused: bool
) -> None:
    plane, slices = queues_being_written(monkeypatch)
    ((steps, written),) = slices
    if is_paused:
        plane.flusher.pause()
    assert len(list(steps)) == (0 if is_paused else 5)
    written.callback(None)
    checkpoint = read_checkpoint(plane.files, plane.store.paths.checkpoint)
    assert (checkpoint.safe_offset == plane.store.end_offset) is not is_paused
    if is_paused:
        plane.flusher.resume()
        plane.clock.pump([0.5] * 2)
        assert len(slices) == 2


@pytest.mark.parametrize("end", ["stop", "pause"])
def test_what_ends_waits_for_queues_that_are_being_written(
    monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """A thread closes the store then, or removes what was deleted."""
    plane, ((steps, written),) = queues_being_written(monkeypatch)
    ended: list[None] = []
    getattr(plane.flusher, end)().addCallback(ended.append)
    assert not ended
    assert not list(steps)
    written.callback(None)
    assert ended == [None]
