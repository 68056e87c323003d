"""When queues are filled, by which slices, and who is told of it."""

from __future__ import annotations

import pytest
from twisted.internet.task import Clock

from rocketmq_tw.broker.writing.dispatcher import Dispatcher
from rocketmq_tw.files.memory import MemoryFiles
from rocketmq_tw.store import dispatching
from tests.support.stores import make_message, open_store


class Filling:
    """A `Dispatcher` on a store that dispatches two of its messages at once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(dispatching, "_WORK", 100)
        self.clock = Clock()
        self.store = open_store(MemoryFiles())
        self.dispatcher = Dispatcher(self.store, self.clock)

    def write(self, count: int) -> None:
        for _ in range(count):
            self.store.append(make_message(keys=" ".join(map(str, range(60)))))
        self.store.write_pending()

    def others_between(self) -> list[int]:
        """Gets, from a call of the reactor's after each dispatch, how many of them there were."""
        dispatches: list[int] = []
        seen: list[int] = []

        def dispatched() -> None:
            dispatches.append(self.store.dispatched_offset)
            self.clock.callLater(0, lambda: seen.append(len(dispatches)))

        self.dispatcher.on_dispatched(dispatched)
        return seen


@pytest.fixture
def filling(monkeypatch: pytest.MonkeyPatch) -> Filling:
    return Filling(monkeypatch)


def test_many_keys_let_others_in_between(filling: Filling) -> None:
    seen = filling.others_between()
    filling.write(6)
    filling.dispatcher.dispatch()
    filling.clock.advance(0)
    assert seen == [1, 2, 3] and filling.store.is_dispatched
    assert not filling.clock.getDelayedCalls()


def test_dispatch_all_lets_others_in_between(filling: Filling) -> None:
    seen = filling.others_between()
    filling.write(6)
    done = filling.dispatcher.dispatch_all()
    assert not done.called
    filling.clock.advance(0)
    assert done.called and seen == [1, 2, 3] and filling.store.is_dispatched


def test_what_waits_for_its_time_can_be_had_before(filling: Filling) -> None:
    filling.write(2)
    filling.dispatcher.dispatch_waiting()
    assert not filling.store.is_dispatched, "nothing waits yet"
    filling.dispatcher.dispatch_later()
    filling.dispatcher.dispatch_later()
    assert not filling.store.is_dispatched
    filling.dispatcher.dispatch_waiting()
    assert filling.store.is_dispatched
    assert not filling.clock.getDelayedCalls()


class TestWaitingForAllThatTheLogHas:
    def test_it_is_so_already(self, filling: Filling) -> None:
        filling.write(2)
        filling.dispatcher.dispatch()
        told: list[bool] = []
        stop = filling.dispatcher.when_dispatched(lambda: told.append(True))
        assert told == [True]
        stop()

    def test_what_comes_later_is_not_waited_for(self, filling: Filling) -> None:
        filling.write(4)
        told: list[bool] = []
        filling.dispatcher.when_dispatched(lambda: told.append(filling.store.is_dispatched))
        filling.write(2)
        filling.dispatcher.dispatch()
        assert told == []
        filling.clock.advance(0)
        assert told == [False]
        filling.clock.advance(0)
        assert told == [False] and filling.store.is_dispatched

    def test_nobody_is_told_who_does_not_wait_any_more(self, filling: Filling) -> None:
        filling.write(2)
        told: list[bool] = []
        stop = filling.dispatcher.when_dispatched(lambda: told.append(True))
        stop()
        stop()
        filling.dispatcher.dispatch()
        assert told == []

    def test_the_first_of_two_ends_the_waiting_of_the_second(self, filling: Filling) -> None:
        filling.write(2)
        told: list[str] = []

        def first() -> None:
            told.append("first")
            stop_second()

        filling.dispatcher.when_dispatched(first)
        stop_second = filling.dispatcher.when_dispatched(lambda: told.append("second"))
        filling.dispatcher.dispatch()
        assert told == ["first"]
