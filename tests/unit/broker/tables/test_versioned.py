"""All requests that wait for a table's file are answered, however many there are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from rocketmq_tw.broker.tables.versioned import TableWriter
from rocketmq_tw.files.faulty import Fault, FaultyFiles
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.wire.bodies.topics import TopicConfig
from rocketmq_tw.wire.errors import RequestError
from tests.support.broker import BrokerInMemory, Threads, fired
from tests.support.state import MemoryStateFile

MANY = 4_000


class Kept:
    """A table of one number, and the steps that are to be gone through."""

    def __init__(self) -> None:
        self.value = 0
        self.file = MemoryStateFile()
        self.threads = Threads(eager=False)
        self.slices: list[tuple[Iterator[None], Deferred[Any]]] = []
        self.told: list[Any] = []
        self.writer = TableWriter(
            self.file,
            self.threads,
            lambda: self.value,
            lambda value: b"%d" % value,
            self._restore,
            self._in_slices,
        )

    def _restore(self, value: int) -> None:
        self.value = value

    def _in_slices(self, steps: Iterator[None]) -> Deferred[Any]:
        done: Deferred[Any] = Deferred()
        self.slices.append((steps, done))
        return done

    def change(self, times: int = 1) -> None:
        for _ in range(times):
            self.value += 1
            self.writer.write().addBoth(self.told.append)

    def step(self) -> bool:
        """Makes one step of the slices; False where that was the last one."""
        steps, done = self.slices[0]
        if next(steps, self) is self:
            del self.slices[0]
            done.callback(None)
            return False
        return True


def test_very_many_are_told_in_steps_and_the_next_write_follows() -> None:
    kept = Kept()
    kept.change()
    kept.change(MANY)
    kept.threads.run()
    assert kept.file.content == b"1"
    while kept.step():
        pass
    assert kept.told == [None]
    kept.threads.run()
    assert kept.file.content == b"%d" % (MANY + 1)
    kept.change()
    idle = kept.writer.save()
    told = [len(kept.told)]
    while kept.step():
        told.append(len(kept.told))
    assert max(after - before for before, after in pairwise(told)) <= 100
    assert len(kept.told) == 1 + MANY and not idle.called
    kept.threads.run()
    kept.step()
    assert kept.file.content == b"%d" % (MANY + 2) and idle.called


@pytest.mark.parametrize("also", [0, MANY])
def test_all_who_wait_are_told_of_a_failure(also: int) -> None:
    kept = Kept()
    kept.change()
    kept.change(also)
    kept.file.full = True
    kept.threads.run()
    assert kept.value == 0
    while kept.step():
        pass
    assert len(kept.told) == 1 + also
    assert all(isinstance(each.value, RequestError) for each in kept.told)


def test_what_a_failed_write_left_in_the_file_is_replaced() -> None:
    """The file was replaced, and only the sync of its directory failed."""
    kept = Kept()
    kept.writer.loaded()
    kept.file.fails_late = True
    kept.change()
    kept.threads.run()
    while kept.step():
        pass
    assert kept.value == 0 and kept.file.content == b"1"
    kept.file.full, kept.file.fails_late = True, False
    saved = kept.writer.save()
    kept.threads.run()
    while kept.step():
        pass
    assert kept.file.content == b"1", "it cannot be written yet"
    fired(saved)
    kept.file.full = False
    for again in (kept.writer.save, kept.writer.make_certain):
        saved = again()
        kept.threads.run()
        while kept.slices and kept.step():
            pass
        fired(saved)
        assert (kept.file.content, kept.file.writes) == (b"0", 2)


def test_a_deletion_that_changes_nothing_is_not_told_before_the_file_is_certain() -> None:
    """A topic was made, which was refused; its deletion is a success once the file lacks it."""
    broker = BrokerInMemory(FaultyFiles(MemoryFiles()))
    files = broker.files
    changes: list[tuple[Callable[[], Deferred[None]], str]] = [
        (lambda: broker.topics.update(TopicConfig(topic_name="T")), "sync_dir"),
        (delete(broker), "rename"),
    ]
    for change, call in changes:
        files.faults = [Fault(call, "config")]
        with pytest.raises(RequestError, match="cannot be kept"):
            fired(change())
    assert b'"T"' in files.read("/store/config/topics.json")
    files.faults.clear()
    fired(delete(broker)())
    assert b'"T"' not in files.read("/store/config/topics.json")


def delete(broker: BrokerInMemory) -> Callable[[], Deferred[None]]:
    return lambda: broker.topics.delete("T")
