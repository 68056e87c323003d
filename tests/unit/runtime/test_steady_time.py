"""Reactors that count by a clock that nobody sets."""

import time

import pytest
from twisted.internet.selectreactor import SelectReactor
from twisted.internet.task import Clock

from rocketmq_tw.runtime.steady_time import go_on_steadily, use_monotonic_time
from tests.support.machine_clock import MachineClock


def test_timers_of_a_reactor_by_the_wall_clock_survive_when_that_is_set() -> None:
    reactor = SelectReactor()
    assert reactor.seconds is time.time, "Twisted's own choice; with another there is nothing to do"
    use_monotonic_time(reactor)
    before = time.monotonic()
    call = reactor.callLater(10, lambda: None)
    assert before + 10 <= call.getTime() <= time.monotonic() + 10


def test_calls_that_wait_already_keep_their_clock() -> None:
    reactor = SelectReactor()
    reactor.callLater(10, lambda: None)
    use_monotonic_time(reactor)
    assert reactor.seconds is time.time


def test_a_clock_of_its_own_is_left_alone() -> None:
    clock = Clock()
    own = clock.seconds
    use_monotonic_time(clock)
    assert clock.seconds == own


class TestAReactorOfOthers:
    @pytest.fixture
    def machine(self, monkeypatch):
        return MachineClock(monkeypatch)

    @pytest.fixture
    def reactor(self, machine):
        """One of Twisted's, which counts by the wall clock."""
        reactor = SelectReactor()
        reactor.seconds = time.time
        return reactor

    @pytest.mark.parametrize("hours", [-1, 1])
    def test_what_waits_is_called_in_time_where_the_clock_is_set(
        self, machine, reactor, hours
    ) -> None:
        called = []
        reactor.callLater(10, called.append, "before")
        go_on_steadily(reactor)
        reactor.callLater(10, called.append, "behind")
        machine.set_by(hours * 3600)
        machine.pass_by(9.9)
        reactor.runUntilCurrent()
        assert called == []
        machine.pass_by(0.2)
        reactor.runUntilCurrent()
        assert called == ["before", "behind"]

    def test_what_waits_already_is_put_off_by_the_new_clock(self, machine, reactor) -> None:
        called = []
        call = reactor.callLater(10, called.append, "late")
        go_on_steadily(reactor)
        machine.set_by(-3600)
        call.reset(20)
        machine.pass_by(19)
        reactor.runUntilCurrent()
        assert called == []
        machine.pass_by(2)
        reactor.runUntilCurrent()
        assert called == ["late"]

    def test_it_goes_on_from_the_time_that_it_was(self, machine, reactor) -> None:
        before = reactor.seconds()
        go_on_steadily(reactor)
        machine.set_by(3600)
        machine.pass_by(5)
        assert reactor.seconds() == pytest.approx(before + 5)

    def test_the_sleep_of_the_machine_counts(self, machine, reactor) -> None:
        before = reactor.seconds()
        go_on_steadily(reactor)
        machine.sleep(40)
        assert reactor.seconds() == pytest.approx(before + 40)

    def test_a_second_client_changes_nothing(self, machine, reactor) -> None:
        go_on_steadily(reactor)
        steady = reactor.seconds
        go_on_steadily(reactor)
        assert reactor.seconds is steady

    def test_the_clock_that_a_server_has_chosen_is_left_alone(self, machine, reactor) -> None:
        use_monotonic_time(reactor)
        go_on_steadily(reactor)
        assert reactor.seconds is time.monotonic
