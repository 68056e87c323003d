"""`PeriodicCall`: intervals, failures, Deferreds, the end."""

from __future__ import annotations

import pytest
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock
from twisted.logger import formatEvent, globalLogPublisher

from rocketmq_tw.runtime.periodic import PeriodicCall


@pytest.fixture
def logged():
    events = []
    globalLogPublisher.addObserver(events.append)
    yield events
    globalLogPublisher.removeObserver(events.append)


def test_it_is_called_after_each_interval_until_it_is_stopped() -> None:
    clock, calls = Clock(), []
    periodic = PeriodicCall(clock, "work", 2.0, lambda: calls.append(clock.seconds()))
    periodic.start()
    clock.pump([1.0] * 5)
    assert calls == [2.0, 4.0]
    assert periodic.is_running
    assert periodic.stop().called
    clock.pump([1.0] * 5)
    assert calls == [2.0, 4.0]
    assert not clock.getDelayedCalls()


def test_the_interval_is_asked_anew_for_each_call() -> None:
    clock, calls, seconds = Clock(), [], [1.0]
    periodic = PeriodicCall(
        clock, "work", lambda: seconds[0], lambda: calls.append(clock.seconds())
    )
    periodic.start()
    clock.advance(1)
    seconds[0] = 3.0
    clock.advance(1)
    clock.pump([1.0] * 4)
    # Intervals count from the start.
    assert calls == [1.0, 2.0, 3.0, 6.0]


@pytest.mark.parametrize("raised", [False, True])
def test_what_fails_is_logged_with_its_name_as_it_begins_and_is_over(logged, raised: bool) -> None:
    clock, calls = Clock(), []

    def work() -> Deferred[None] | None:
        calls.append(1)
        if len(calls) in (3, 5):
            return succeed(None) if raised else None
        if raised:
            raise OSError(28, "the disk is full", "/store")
        return fail(OSError(28, "the disk is full", "/store"))

    periodic = PeriodicCall(clock, "the sweep", 1.0, work)
    periodic.start()
    clock.pump([1.0] * 5)
    assert len(calls) == 5
    begin = "the sweep failed: [Errno 28] the disk is full: '/store'"
    assert [formatEvent(event) for event in logged] == [
        begin,
        "it works again; failed 2 times in a row: the sweep failed",
        begin,
        "it works again; failed 1 times in a row: the sweep failed",
    ]


def test_it_is_not_called_again_before_its_deferred_fired_and_stop_waits_for_it() -> None:
    clock, under_way = Clock(), []

    def work() -> Deferred[None]:
        under_way.append(Deferred())
        return under_way[-1]

    periodic = PeriodicCall(clock, "work", 1.0, work)
    periodic.start(now=True)
    clock.pump([1.0] * 3)
    assert len(under_way) == 1
    stopped = periodic.stop()
    assert not stopped.called
    under_way[0].callback(None)
    assert stopped.called


def test_what_may_hang_is_not_waited_for() -> None:
    clock = Clock()
    periodic = PeriodicCall(clock, "work", 1.0, Deferred, may_hang=True)
    periodic.start(now=True)
    assert periodic.stop().called


def test_it_can_be_started_again() -> None:
    clock, calls = Clock(), []
    periodic = PeriodicCall(clock, "work", 1.0, lambda: calls.append(1))
    for _ in range(2):
        periodic.start()
        periodic.start()
        clock.advance(1)
        periodic.stop()
    assert len(calls) == 2


def test_it_may_be_started_again_while_its_call_is_under_way() -> None:
    clock, under_way = Clock(), []

    def work() -> Deferred[None]:
        under_way.append(Deferred())
        return under_way[-1]

    periodic = PeriodicCall(clock, "work", 1.0, work)
    periodic.start(now=True)
    stopped = periodic.stop()
    periodic.start()
    clock.pump([1.0] * 2)
    assert len(under_way) == 1 and not stopped.called
    under_way[0].callback(None)
    assert stopped.called
    clock.advance(1)
    assert len(under_way) == 2
    under_way[1].callback(None)
    clock.advance(1)
    assert len(under_way) == 3
    again = periodic.stop()
    under_way[2].callback(None)
    assert again.called
    clock.pump([1.0] * 3)
    assert len(under_way) == 3 and not clock.getDelayedCalls()
