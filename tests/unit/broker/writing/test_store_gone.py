"""Brokers whose store is removed, moved or replaced while they run."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import maybeDeferred
from twisted.logger import LogLevel, capturedLogs, formatEvent

from rocketmq_tw.broker.writing.part import Writing
from rocketmq_tw.files.memory import MemoryFile, MemoryFiles
from rocketmq_tw.files.posix import PosixFiles
from rocketmq_tw.wire.codes import ResponseCode
from tests.support.broker import BrokerInMemory, Threads


def _removed(store: Path) -> None:
    shutil.rmtree(store)


def _moved(store: Path) -> None:
    store.rename(store.with_name("away"))


def _replaced(store: Path) -> None:
    _moved(store)
    shutil.copytree(store.with_name("away"), store)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def plane(store: Path) -> BrokerInMemory:
    return BrokerInMemory(PosixFiles(), store_path_root_dir=str(store))


def _run(plane: BrokerInMemory, seconds: float) -> None:
    for _ in range(int(seconds)):
        plane.clock.advance(1.0)


def _failures(plane: BrokerInMemory) -> str:
    return plane.broker[Writing].runtime_info()["storageFailure"]


@pytest.mark.parametrize("change", [_removed, _moved, _replaced])
def test_a_broker_whose_store_is_gone_takes_no_messages(
    plane: BrokerInMemory, store: Path, change: Callable[[Path], None]
) -> None:
    sent = plane.send(b"kept")
    assert sent is not None and sent.code == ResponseCode.SUCCESS
    _run(plane, 2)
    with capturedLogs() as events:
        change(store)
        _run(plane, 30)
        refused = plane.send(b"lost")
    assert refused is not None and refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
    why = f"{store} was removed, moved or replaced while it was in use"
    assert why in (refused.remark or "")
    assert _failures(plane).startswith(why)
    assert plane.broker.not_ready().startswith(why)
    said = [formatEvent(event) for event in events if event["log_level"] >= LogLevel.warn]
    assert len(said) == 1 and said[0].startswith(f"this broker cannot store messages: {why}")
    plane.stop()


def test_a_lock_that_is_removed_is_named(plane: BrokerInMemory, store: Path) -> None:
    plane.send(b"kept")
    (store / "lock").unlink()
    _run(plane, 2)
    assert _failures(plane) == (
        f"{store}/lock was removed while it was in use, so that another process may open {store}"
        " too: restart"
    )
    plane.stop()
    again = BrokerInMemory(PosixFiles(), store_path_root_dir=str(store))
    assert [message.body for message in again.consume()] == [b"kept"]
    again.stop()


class _NotedThreads(Threads):
    """Knows whether a job runs."""

    is_inside = False

    def run(self) -> int:
        self.is_inside = True
        try:
            return super().run()
        finally:
            self.is_inside = False


def test_a_disk_that_hangs_holds_up_a_thread_only(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = _NotedThreads()
    outside, inside = list[str](), list[str]()

    def noted(method: Any) -> Any:
        def call(*args: Any) -> Any:
            (inside if threads.is_inside else outside).append(method.__name__)
            return method(*args)

        return call

    monkeypatch.setattr(MemoryFile, "is_at", noted(MemoryFile.is_at))
    monkeypatch.setattr(MemoryFiles, "usage", noted(MemoryFiles.usage))
    plane = BrokerInMemory(threads=threads)
    plane.send(b"kept")
    _run(plane, 30)
    assert _failures(plane) == ""
    assert inside.count("is_at") >= 30 and inside.count("usage") >= 4
    threads.eager = False
    _run(plane, 30)
    inside.clear()
    # What began while the disk hangs is not begun again: the look, and those of the trial of the
    # disk and of the retention.
    threads.run()
    assert inside.count("is_at") == 6 and inside.count("usage") == 2
    assert outside == []
    threads.eager = True
    plane.stop()


class _LateAnswers(Threads):
    """All jobs are done before the reactor hears of the first one."""

    def run(self) -> int:
        jobs, self.waiting = self.waiting, []
        for outcome, result in [(maybeDeferred(job), result) for job, result in jobs]:
            outcome.addCallbacks(result.callback, result.errback)
        return len(jobs)


def test_a_trial_of_the_disk_makes_no_directory_of_a_moved_store_anew(store: Path) -> None:
    threads = _LateAnswers()
    plane = BrokerInMemory(PosixFiles(), threads=threads, store_path_root_dir=str(store))
    plane.send(b"kept")
    threads.eager = False
    for moved_after in range(1, 21):
        plane.clock.advance(1.0)
        threads.run()
        away = store.with_name("away")
        store.rename(away)
        plane.clock.advance(1.0)
        threads.run()
        assert not store.exists(), moved_after
        away.rename(store)
    threads.eager = True
    threads.run()
    plane.stop()


@pytest.mark.parametrize("phase", range(5))
def test_retention_removes_nothing_of_what_took_the_place_of_the_store(
    phase: int, store: Path
) -> None:
    settings = {
        "mapped_file_size_commit_log": 4096,
        "delete_when": ";".join(f"{hour:02}" for hour in range(24)),
        "clean_resource_interval": 5_000,
    }
    plane = BrokerInMemory(PosixFiles(), store_path_root_dir=str(store), **settings)
    plane.clock.advance(80 * 3_600)
    for _ in range(20):
        plane.send(bytes(1500))
    _run(plane, 70 + phase)
    log, away = store / "commitlog", store.with_name("away")
    for path in log.iterdir():
        os.utime(path, (0, 0))
    _replaced(store)
    plane.clock.advance(75 * 3_600)
    # With the next one, which is empty.
    assert len(list(log.iterdir())) == 11
    shutil.rmtree(store)
    away.rename(store)
    _run(plane, 10)
    assert len(list(log.iterdir())) == 2
    plane.stop()


def test_a_file_that_was_removed_during_the_look_tells_nothing() -> None:
    threads = Threads()
    plane = BrokerInMemory(threads=threads, mapped_file_size_commit_log=4096)
    start = plane.store.end_offset
    for _ in range(3):
        plane.send(bytes(1500))
    threads.eager = False
    _run(plane, 1)
    for _ in plane.store.truncate_to(start):
        pass
    threads.run()
    assert plane.store.gone == ""
    threads.eager = True
    plane.stop()


def test_a_store_that_is_put_back_takes_messages_again(plane: BrokerInMemory, store: Path) -> None:
    plane.send(b"first")
    _moved(store)
    _run(plane, 30)
    # Tables that changed meanwhile were written anew.
    shutil.rmtree(store)
    store.with_name("away").rename(store)
    with capturedLogs() as events:
        _run(plane, 5)
    assert [formatEvent(event) for event in events if event["log_level"] >= LogLevel.info] == [
        "this broker can store messages again"
    ]
    sent = plane.send(b"second")
    assert sent is not None and sent.code == ResponseCode.SUCCESS
    assert [message.body for message in plane.consume()] == [b"first", b"second"]
    plane.stop()


@pytest.mark.parametrize("change", [_removed, _moved, _replaced])
def test_a_log_on_another_disk_may_be_gone_too(
    store: Path, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    elsewhere = tmp_path / "log"
    plane = BrokerInMemory(
        PosixFiles(), store_path_root_dir=str(store), store_path_commit_log=str(elsewhere)
    )
    plane.send(b"kept")
    _run(plane, 2)
    change(elsewhere)
    _run(plane, 30)
    assert _failures(plane).startswith(f"{elsewhere} was removed, moved or replaced")
    plane.stop()
