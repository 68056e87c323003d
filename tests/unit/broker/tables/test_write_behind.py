"""Saves of a table that is written at intervals."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred, succeed

from rocketmq_tw.broker.tables.write_behind import WriteBehindTable
from tests.support.broker import Threads


class Number(WriteBehindTable):
    """A table with one number."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        super().__init__(self.written.append)
        self.value = 0

    def set(self, value: int) -> None:
        self.value = value
        self._dirty = True

    def _encoder(self) -> Callable[[], bytes]:
        data = str(self.value).encode()
        return lambda: data


def run_all(threads: Threads) -> None:
    while threads.waiting:
        threads.run()


def test_a_slow_save_never_writes_behind_a_later_one() -> None:
    """Before a cut of the log offsets go back; a save that was under way made the former ones
    durable again."""
    table, threads = Number(), Threads(eager=False)
    flushed: Deferred[bool] = Deferred()
    table.set(3)
    slow = table.save(threads, lambda: flushed)
    run_all(threads)
    table.set(1)
    later = table.save(threads, lambda: succeed(True))
    run_all(threads)
    assert not later.called and table.written == []
    flushed.callback(True)
    run_all(threads)
    assert slow.called and later.called
    assert table.written == [b"3", b"1"]


def test_a_save_waits_for_the_one_under_way_though_nothing_changed() -> None:
    table, threads = Number(), Threads(eager=False)
    table.set(3)
    slow = table.save(threads)
    later = table.save(threads)
    assert not later.called
    run_all(threads)
    assert slow.called and later.called and table.written == [b"3"]
