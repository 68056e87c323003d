"""While files of the log go, whatever set that going, the reactor waits for no disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from rocketmq_tw.files.faulty import Fault, FaultyFiles
from rocketmq_tw.files.interface import DiskUsage
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.wire.codes import RequestCode
from tests.support.broker import BrokerInMemory, Threads, ok
from tests.support.timers import let, timed

FILE = 8192
HOUR = 3600


class Disk(FaultyFiles):
    """Notes the syncs and measurements that no thread makes."""

    def __init__(self) -> None:
        super().__init__(MemoryFiles())
        self.in_thread = False
        self.on_reactor: list[str] = []
        self.is_watched = False

    def sync_dir(self, path: str) -> None:
        self._note(f"sync_dir {path}")
        super().sync_dir(path)

    def usage(self, path: str) -> DiskUsage:
        self._note(f"usage {path}")
        return super().usage(path)

    def _note(self, what: str) -> None:
        if self.is_watched and not self.in_thread:
            self.on_reactor.append(what)


class DiskThreads(Threads):
    """Tells the disk which calls are theirs."""

    def __init__(self, disk: Disk) -> None:
        super().__init__()
        self._disk = disk

    def __call__(self, job: Callable[[], Any]) -> Deferred[Any]:
        def run() -> Any:
            self._disk.in_thread = True
            try:
                return job()
            finally:
                self._disk.in_thread = False

        return super().__call__(run)


def make_broker(disk: Disk) -> BrokerInMemory:
    """Twelve files of the log, of which ten may go in one pass."""
    broker = BrokerInMemory(
        disk,
        threads=DiskThreads(disk),
        mapped_file_size_commit_log=FILE,
        clean_resource_interval=10_000,
        delete_file_batch_max=10,
        delete_when=";".join(map(str, range(24))),
        file_reserved_time=1,
    )
    broker.add_topic("Topic", read_queue_nums=1, write_queue_nums=1)
    while broker.store.end_offset < 11.5 * FILE:
        ok(broker.send(bytes(1000), topic="Topic"))
    broker.clock.advance(1)
    broker.store.checkpoint()
    broker.shift_ms += 2 * HOUR * 1000
    return broker


def test_files_of_the_timer_log_go_in_the_same_way() -> None:
    disk = Disk()
    broker = BrokerInMemory(
        disk,
        threads=DiskThreads(disk),
        mapped_file_size_commit_log=FILE,
        mapped_file_size_timer_log=1024,
        delete_file_batch_max=100,
        file_reserved_time=1,
    )
    for _ in range(100):
        timed(broker, bytes(500), TIMER_DELAY_MS=1000)
    let(broker, 60)
    before = len(disk.list("/store/timerlog"))
    broker.store.checkpoint()
    broker.shift_ms += 2 * HOUR * 1000
    ask(broker)
    disk.is_watched = True
    let(broker, 60, 1)
    assert len(disk.list("/store/timerlog")) == 1 < before - 2
    assert disk.on_reactor == []
    disk.is_watched = False
    broker.stop()


def look(broker: BrokerInMemory) -> None:
    broker.clock.advance(10)


def ask(broker: BrokerInMemory) -> None:
    assert broker.ask(RequestCode.DELETE_EXPIRED_COMMITLOG).code == 0


@pytest.mark.parametrize("clean", [look, ask])
def test_a_pass_removes_ten_files_in_one_go(clean: Callable[[BrokerInMemory], None]) -> None:
    disk = Disk()
    broker = make_broker(disk)
    disk.is_watched = True
    clean(broker)
    assert broker.store.min_physical_offset == 10 * FILE
    assert not broker.store.has_unsynced_removals
    assert disk.on_reactor == []
    disk.is_watched = False
    broker.stop()


def test_others_are_served_while_the_disk_syncs() -> None:
    disk = Disk()
    broker = make_broker(disk)
    broker.threads.eager = False
    answer = broker.ask(RequestCode.DELETE_EXPIRED_COMMITLOG)
    removed = []
    for _ in range(40):
        removed.append(broker.store.min_physical_offset // FILE)
        broker.threads.run()
    # Nothing goes while what went before may come back.
    assert [n for n in removed if n == 1] == [1] and max(removed) == 10
    assert answer.result.code == 0
    broker.threads.eager = True
    broker.stop()


def test_a_removal_that_cannot_be_made_durable_is_the_last() -> None:
    disk = Disk()
    broker = make_broker(disk)
    disk.faults.append(Fault("sync_dir", "commitlog", times=1))
    look(broker)
    assert broker.store.min_physical_offset == FILE
    look(broker)
    assert broker.store.min_physical_offset > FILE
    broker.stop()
