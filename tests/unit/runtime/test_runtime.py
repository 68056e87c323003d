"""Alarms, deadlines, slices, listeners, waiters, shared results, fairness, scopes and turns."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from functools import partial
from time import process_time
from typing import Any
from unittest.mock import Mock
from weakref import ref

import pytest
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.python.threadpool import ThreadPool

from rocketmq_tw.runtime.alarm import Alarm
from rocketmq_tw.runtime.deadlines import Deadlines
from rocketmq_tw.runtime.fairness import (
    Coalesced,
    FairQueue,
    FairSerialQueue,
    FewAtOnce,
    Serial,
    SerialQueue,
    SerialRoundRobin,
    SomeAtOnce,
)
from rocketmq_tw.runtime.listeners import Listeners
from rocketmq_tw.runtime.scope import Scope
from rocketmq_tw.runtime.shared_results import JoinedResults, SharedResults
from rocketmq_tw.runtime.slices import Slices, all_steps
from rocketmq_tw.runtime.threads import in_pool
from rocketmq_tw.runtime.turns import IReactorTurns, known_turns, turns_of
from rocketmq_tw.runtime.waiters import Waiters
from tests.support.interpreter import free_as_cpython_has


def steps(count: int, done: list[int]) -> Iterator[None]:
    for number in range(count):
        done.append(number)
        yield


def failing() -> Iterator[None]:
    yield
    yield
    raise ValueError("broken")


# Alarm


def test_an_alarm_rings_once_and_can_be_set_again() -> None:
    clock, rung = Clock(), []
    alarm = Alarm(clock, lambda: rung.append(clock.seconds()))
    alarm.set(1)
    assert alarm.is_set
    clock.advance(1)
    assert not alarm.is_set
    alarm.set(1)
    clock.advance(1)
    assert rung == [1, 2]


def test_setting_an_alarm_anew_takes_the_place_of_what_was_set() -> None:
    clock, rung = Clock(), []
    alarm = Alarm(clock, lambda: rung.append(clock.seconds()))
    alarm.set(1)
    alarm.set(3)
    alarm.set_if_unset(1)
    assert alarm.due == 3
    clock.pump([1] * 4)
    assert rung == [3]


def test_an_alarm_may_be_drawn_nearer_but_not_put_off() -> None:
    clock, rung = Clock(), []
    alarm = Alarm(clock, lambda: rung.append(clock.seconds()))
    alarm.set_no_later(3)
    alarm.set_no_later(2)
    alarm.set_no_later(5)
    clock.pump([1] * 6)
    assert rung == [2]


def test_a_cancelled_alarm_does_not_ring() -> None:
    clock, rung = Clock(), []
    alarm = Alarm(clock, lambda: rung.append(1))
    alarm.set(1)
    alarm.cancel()
    alarm.cancel()
    clock.advance(2)
    assert not rung and not alarm.is_set


def test_an_alarm_with_a_longest_wait_rings_after_that_at_the_latest() -> None:
    clock, rung = Clock(), []
    alarm = Alarm(clock, lambda: rung.append(clock.seconds()), longest=10)
    alarm.set(25)
    clock.advance(10)
    alarm.set_no_later(100)
    clock.advance(10)
    # A time that is past.
    alarm.set(-5)
    clock.advance(0)
    assert rung == [10, 20, 20]


# Deadlines


def test_what_waits_too_long_expires_in_its_time() -> None:
    clock, expired = Clock(), []
    waiting = Deadlines[str, int](clock, 5, lambda key, _: expired.append((key, clock.seconds())))
    for key in ("a", "b", "c"):
        waiting.add(key, 1)
        clock.advance(1)
    assert waiting.take("b") == 1
    assert waiting.take("b") is None
    clock.pump([1] * 5)
    assert expired == [("a", 5), ("c", 7)]
    assert not waiting and not clock.getDelayedCalls()


def test_what_is_added_again_waits_anew_behind_all_others() -> None:
    clock, expired = Clock(), []
    waiting = Deadlines[str, int](clock, 5, lambda key, value: expired.append((key, value)))
    waiting.add("a", 1)
    waiting.add("b", 2)
    clock.advance(1)
    waiting.add("a", 3)
    assert waiting.first() == ("b", 2)
    clock.pump([1] * 5)
    assert expired == [("b", 2), ("a", 3)]


def test_all_that_wait_are_taken_at_once() -> None:
    clock, expired = Clock(), []
    waiting = Deadlines[str, int](clock, 5, lambda key, _: expired.append(key))
    waiting.add("a", 1)
    waiting.add("b", 2)
    assert waiting.take_all() == [("a", 1), ("b", 2)]
    assert waiting.first() is None and not clock.getDelayedCalls()
    waiting.add("c", 3)
    clock.advance(5)
    assert expired == ["c"]


# Slices


@pytest.mark.parametrize("count", [0, 1, 500])
def test_steps_are_made_to_their_end(count: int) -> None:
    clock, done = Clock(), []
    over = Slices(clock)(steps(count, done))
    while not over.called:
        clock.advance(0)
    assert done == list(range(count))


def test_work_without_a_pause_is_done_at_once() -> None:
    done: list[int] = []

    def single() -> Iterator[None]:
        done.append(0)
        yield from ()

    assert Slices(Clock())(single()).called and done == [0]
    assert all_steps(steps(3, done)).called and done == [0, 0, 1, 2]


def test_what_steps_raise_fails_the_deferred() -> None:
    clock = Clock()
    over = Slices(clock)(failing())
    failures: list[Failure] = []
    over.addErrback(failures.append)
    clock.pump([0] * 3)
    assert failures[0].check(ValueError)
    all_steps(failing()).addErrback(failures.append)
    assert failures[1].check(ValueError)


def test_what_steps_had_made_goes_with_their_failure() -> None:
    clock = Clock()

    class Body(list[int]):
        """A list that can be watched."""

    def fill(body: Body) -> Iterator[None]:
        yield from steps(3, body)
        raise ValueError("broken")

    body = Body()
    watched = ref(body)
    gc.collect()
    gc.disable()
    try:
        over = Slices(clock)(fill(body))
        del body
        clock.pump([0] * 3)
        failures: list[Failure] = []
        over.addErrback(failures.append)
        assert failures[0].check(ValueError) and "in fill" in failures[0].getTraceback()
        del over
        failures.clear()
        free_as_cpython_has()
        assert watched() is None
    finally:
        gc.enable()


def test_what_a_thread_had_made_goes_with_its_failure() -> None:
    body = {1, 2}
    watched = ref(body)
    failures: list[Failure] = []
    reactor = Mock()
    pool = reactor.getThreadPool.return_value = ThreadPool(1, 1)

    def encode(body: set[int]) -> bytes:
        raise ValueError("broken")

    gc.collect()
    gc.disable()
    try:
        pool.start()
        in_pool(reactor)(partial(encode, body)).addErrback(failures.append)
        del body
        # It waits for the thread.
        pool.stop()
        ((fire, *arguments), _) = reactor.callFromThread.call_args
        reactor.reset_mock()
        fire(*arguments)
        del fire, arguments
        assert failures[0].check(ValueError) and "in encode" in failures[0].getTraceback()
        failures.clear()
        free_as_cpython_has()
        assert watched() is None
    finally:
        gc.enable()


# Listeners


def test_listeners_are_told_in_their_order_whatever_one_raises() -> None:
    told: list[str] = []
    listeners = Listeners[str]("something came")
    assert not listeners
    listeners.add(lambda what: told.append(f"first {what}"))
    listeners.add(lambda what: 1 / 0)
    remove = listeners.add(lambda what: told.append(f"third {what}"))
    listeners.tell("x")
    assert told == ["first x", "third x"]
    remove()
    remove()
    listeners.tell("y")
    assert told == ["first x", "third x", "first y"]


def test_listeners_that_are_cleared_are_told_of_nothing_more() -> None:
    listeners = Listeners[str]("something came")
    told: list[str] = []
    remove = listeners.add(told.append)
    assert len(listeners) == 1
    listeners.clear()
    listeners.tell("a")
    remove()
    assert told == [] and not listeners


def test_very_many_listeners_come_and_go_at_the_cost_of_each() -> None:
    listeners, began = Listeners[str]("something came"), process_time()
    removes = [listeners.add(lambda what: None) for _ in range(50_000)]
    listeners.tell("a")
    for remove in removes:
        remove()
    assert not listeners
    # Some ms; a tuple of all for each would take ten seconds and more.
    assert process_time() - began < 3


def test_one_callable_may_listen_twice_and_be_removed_once() -> None:
    told: list[int] = []
    listeners = Listeners[int]("something came")
    remove = listeners.add(told.append)
    listeners.add(told.append)
    listeners.tell(1)
    remove()
    listeners.tell(2)
    assert told == [1, 1, 2]


def test_who_is_removed_meanwhile_is_still_told_of_this_event() -> None:
    told: list[int] = []
    listeners = Listeners[int]("something came")
    listeners.add(lambda number: remove())
    remove = listeners.add(told.append)
    listeners.tell(1)
    listeners.tell(2)
    assert told == [1]


# Waiters


def test_all_waiters_fire_and_the_next_wait_for_the_next_result() -> None:
    waiters, got = Waiters[int](), []
    waiters.wait().addCallback(got.append)
    waiters.wait().addCallback(lambda _: waiters.wait().addCallback(got.append))
    assert len(waiters) == 2
    waiters.fire(1)
    assert got == [1] and len(waiters) == 1
    waiters.fire(2)
    assert got == [1, 2]


def test_a_failure_fails_all_that_wait() -> None:
    waiters, failures = Waiters[int](), []
    waiters.wait().addErrback(failures.append)
    waiters.fire(Failure(ValueError("none")))
    assert failures[0].check(ValueError)


def test_a_cancelled_waiter_waits_no_more() -> None:
    waiters, got = Waiters[int](), []
    cancelled = waiters.wait()
    cancelled.addErrback(lambda _: None)
    waiters.wait().addCallback(got.append)
    cancelled.cancel()
    assert len(waiters) == 1
    waiters.fire(3)
    assert got == [3]


def test_one_that_is_cancelled_while_others_fire_is_passed_over() -> None:
    waiters, got = Waiters[int](), []
    first, second = waiters.wait(), waiters.wait()
    first.addCallback(lambda _: second.cancel())
    second.addErrback(lambda _: got.append("cancelled"))
    waiters.fire(1)
    assert got == ["cancelled"]


# SharedResults


def test_a_result_is_shared_by_those_who_ask_before_it_is_begun() -> None:
    clock, made, got = Clock(), [], []
    shared = SharedResults(Slices(clock))

    def make() -> Deferred[int]:
        made.append(Deferred())
        return made[-1]

    shared.get("a", make).addCallback(got.append)
    shared.get("b", make).addCallback(got.append)
    shared.get("b", make).addCallback(got.append)
    shared.get("a", make).addCallback(got.append)
    assert len(made) == 1
    for number, _ in enumerate(range(3)):
        made[number].callback(number)
        clock.advance(0)
    # Who asked for "a" while it was being made got the next one.
    assert got == [0, 1, 1, 2] and len(made) == 3


def test_a_failure_is_shared_and_the_next_result_is_made_all_the_same() -> None:
    clock, failures = Clock(), []
    shared = SharedResults(Slices(clock))
    first: Deferred[int] = Deferred()
    shared.get("a", lambda: first).addErrback(failures.append)
    shared.get("b", lambda: 1 / 0).addErrback(failures.append)  # type: ignore[arg-type, return-value]
    first.errback(ValueError("none"))
    clock.advance(0)
    assert {failure.type for failure in failures} == {ValueError, ZeroDivisionError}


# JoinedResults


class Making:
    """What is made by hand."""

    def __init__(self) -> None:
        self.begun: list[Deferred[int]] = []
        self.results = JoinedResults[str, int]()
        self.got: list[Any] = []

    def ask(self, key: str = "a") -> Deferred[Any]:
        return self.results.get(key, self._make).addBoth(self.got.append)

    def _make(self) -> Deferred[int]:
        self.begun.append(Deferred())
        return self.begun[-1]


def test_those_who_ask_meanwhile_join_the_result_that_is_being_made() -> None:
    making = Making()
    making.ask()
    making.ask()
    making.ask("b")
    assert len(making.begun) == len(making.results) == 2
    making.begun[0].callback(1)
    assert making.got == [1, 1]
    assert "a" not in making.results and "b" in making.results


def test_who_asks_once_a_result_is_made_has_another_one_made() -> None:
    making = Making()
    first = making.results.get("a", making._make)
    first.addCallback(lambda _: making.ask())
    making.begun[0].callback(1)
    assert len(making.begun) == 2
    making.begun[1].callback(2)
    assert making.got == [2]


@pytest.mark.parametrize("at_once", [False, True])
def test_all_that_joined_hear_of_a_failure(at_once: bool) -> None:
    making = Making()
    if at_once:
        making.results.get("a", lambda: 1 / 0).addBoth(making.got.append)  # type: ignore[arg-type, return-value]
    else:
        making.ask()
        making.ask()
        making.begun[0].errback(ZeroDivisionError())
    assert {failure.type for failure in making.got} == {ZeroDivisionError}
    assert len(making.got) == 2 - at_once and not making.results


def test_a_result_is_made_to_its_end_though_nobody_waits_any_more() -> None:
    making = Making()
    making.ask().cancel()
    assert making.results.waiting("a") == 0 and "a" in making.results
    making.ask()
    assert making.results.waiting("a") == len(making.begun) == 1
    making.begun[0].callback(3)
    assert making.got[1:] == [3] and making.results.waiting("a") == 0


# Coalesced, FairQueue and SerialQueue


def test_requests_share_the_next_call_once_one_is_under_way() -> None:
    calls: list[Deferred[None]] = []

    def work() -> Deferred[None]:
        calls.append(Deferred())
        return calls[-1]

    coalesced = Coalesced(work)
    for _ in range(3):
        coalesced.request()
    assert len(calls) == 1
    calls[0].callback(None)
    assert len(calls) == 2, "the two requests that came meanwhile"
    calls[1].callback(None)
    coalesced.request()
    assert len(calls) == 3


def test_sources_take_turns_and_a_turn_has_its_share() -> None:
    clock, done = Clock(), []
    left = [0]
    queue = FairQueue[str](
        clock,
        may_go_on=lambda: left[0] > 0,
        begin_turn=lambda: (left.__setitem__(0, 2), done.append("turn")),  # type: ignore[arg-type, return-value]
    )

    def piece(name: str):
        def work() -> None:
            left[0] -= 1
            done.append(name)

        return work

    for name in ("a1", "a2", "a3"):
        queue.add("a", piece(name))
    queue.add("b", piece("b1"))
    assert queue and not done
    clock.advance(0)
    assert done == ["turn", "a1", "b1", "turn", "a2", "a3"]
    assert not queue and not clock.getDelayedCalls()


def test_a_turn_does_one_piece_though_it_has_no_room_and_goes_on_after_a_failure() -> None:
    clock, done = Clock(), []
    queue = FairQueue[str](clock, lambda: False, lambda: done.append("turn"))
    queue.add("a", lambda: 1 / 0)  # type: ignore[arg-type, return-value]
    queue.add("a", lambda: done.append("a2"))
    clock.advance(0)
    assert done == ["turn", "turn", "a2"]


def test_sources_of_long_work_take_turns() -> None:
    turns, begun, ended = SerialRoundRobin[str](), list[str](), list[object]()
    under_way: list[Deferred[str]] = []

    def work(name: str) -> Deferred[str]:
        begun.append(name)
        under_way.append(Deferred())
        return under_way[-1]

    for source, name in [("a", "a1"), ("a", "a2"), ("a", "a3"), ("b", "b1"), ("c", "c1")]:
        turns.run(source, partial(work, name)).addBoth(ended.append)
    order = ["a1", "a2", "b1", "c1", "a3"]
    for number, name in enumerate(order, 1):
        assert begun == order[:number]
        under_way[-1].callback(name)
    assert ended == order


def test_work_that_fails_in_its_turn_holds_nobody_up() -> None:
    turns, ended = SerialRoundRobin[str](), list[object]()
    for number in range(2000):
        turns.run("a", lambda: 1 // 0).addErrback(lambda failure: failure.type).addCallback(
            ended.append
        )
        turns.run("b", lambda number=number: number).addCallback(ended.append)  # type: ignore[misc]
    assert ended == [each for number in range(2000) for each in (ZeroDivisionError, number)]


def test_work_that_is_given_up_takes_no_turn() -> None:
    queue, begun = FairSerialQueue[str, str](), list[str]()
    first: Deferred[None] = Deferred()
    under_way = queue.run("thing", "a", lambda: first)
    waiting = [
        queue.run("thing", source, lambda source=source: begun.append(source))  # type: ignore[misc]
        for source in ("a", "b", "c", "b")
    ]
    others = queue.run("other", "a", lambda: "at once")
    assert others.result == "at once"
    for each in (waiting[0], waiting[1], under_way):
        each.addErrback(lambda failure: failure.trap(CancelledError))
        each.cancel()
    assert begun == ["b", "c"] and not queue._busy


def test_work_of_one_source_is_serial_and_of_two_is_not() -> None:
    queue, begun = SerialQueue[str](), []
    first: Deferred[None] = Deferred()
    queue.run("a", lambda: first)
    queue.run("a", lambda: begun.append("a2"))
    queue.run("b", lambda: begun.append("b1"))
    assert begun == ["b1"] and queue.is_busy("a") and not queue.is_busy("b")
    first.callback(None)
    assert begun == ["b1", "a2"] and not queue.is_busy("a")


@pytest.mark.parametrize("ends", ["returns", "raises"])
def test_very_many_that_wait_and_end_at_once_are_all_done(ends: str) -> None:
    """Each called by the end of the one before it, a hundred used up the stack."""
    serial, done, failures = Serial(), [], []
    first: Deferred[None] = Deferred()
    serial.run(lambda: first)

    def work(number: int) -> None:
        done.append(number)
        if ends == "raises":
            raise ValueError(number)

    for number in range(3000):
        serial.run(work, number).addErrback(failures.append)
    assert not done and serial.is_busy
    first.callback(None)
    assert done == list(range(3000)) and not serial.is_busy
    assert len(failures) == (3000 if ends == "raises" else 0)
    assert serial.run(lambda: "later").result == "later"


def test_work_that_waits_can_be_cancelled_and_so_can_work_under_way() -> None:
    serial, ended = Serial(), []
    first: Deferred[None] = Deferred(lambda _: ended.append("cancelled"))
    under_way = serial.run(lambda: first)
    waits = serial.run(lambda: ended.append("waited"))
    last = serial.run(lambda: ended.append("last"))
    waits.addErrback(lambda failure: ended.append(failure.type))
    under_way.addErrback(lambda failure: ended.append(failure.type))
    waits.cancel()
    assert ended == [CancelledError] and not last.called
    under_way.cancel()
    assert ended == [CancelledError, "cancelled", CancelledError, "last"] and last.called


def test_some_at_once_are_under_way_and_the_others_follow_in_their_order() -> None:
    some, begun = SomeAtOnce(2), []
    held = [Deferred[None]() for _ in range(4)]
    ended = [some.run(lambda n=n: begun.append(n) or held[n]) for n in range(4)]
    assert begun == [0, 1] and some.is_busy
    ended[2].addErrback(lambda failure: failure.trap(CancelledError) and None)
    ended[2].cancel()
    held[1].callback(None)
    assert begun == [0, 1, 3] and ended[1].called and not ended[0].called
    held[0].callback(None)
    held[3].callback(None)
    assert not some.is_busy


def test_a_clock_lets_others_in_while_very_many_end_at_once() -> None:
    clock = Clock()
    some, begun, first = SomeAtOnce(1, clock), [], Deferred[None]()
    some.run(lambda: first)

    def work(number: int) -> None:
        begun.append(number)
        clock.rightNow += 0.003

    for number in range(1000):
        some.run(work, number)
    clock.callLater(0, begun.append, "another")
    first.callback(None)
    assert begun == [0, 1, 2, 3, 4]
    some.run(begun.append, "last")
    assert len(begun) == 5, "it is not done in front of others"
    clock.advance(0)
    assert begun == [0, 1, 2, 3, 4, "another", *range(5, 1000), "last"] and not some.is_busy


def test_a_source_is_busy_no_more_when_all_of_it_is_done() -> None:
    queue, first = SerialQueue[str](), Deferred[None]()
    queue.run("a", lambda: first)
    for _ in range(300):
        queue.run("a", lambda: None)
    first.callback(None)
    assert not queue.is_busy("a")


# Scope


def test_a_scope_ends_what_belongs_to_it_last_first() -> None:
    scope, ended = Scope(), []
    scope.on_end(lambda: ended.append(1))
    scope.on_end(lambda: 1 / 0)
    forget = scope.on_end(lambda: ended.append(2))
    scope.on_end(lambda: ended.append(3))
    forget()
    scope.end()
    scope.end()
    assert ended == [3, 1] and scope.is_over
    scope.on_end(lambda: ended.append(4))
    assert ended == [3, 1, 4]


def test_calls_timers_and_steps_do_nothing_once_the_scope_is_over() -> None:
    clock, scope, done = Clock(), Scope(), []
    guarded = scope.while_it_lasts(done.append)
    guarded("call")
    scope.later(clock, 1, lambda: done.append("timer"))
    scope.later(clock, 2, lambda: done.append("late timer"))
    walk = scope.steps(steps(10, done))
    next(walk)
    clock.advance(1)
    scope.end()
    guarded("late call")
    assert list(walk) == []
    clock.advance(1)
    scope.later(clock, 1, lambda: done.append("timer of nobody"))
    clock.advance(1)
    assert done == ["call", 0, "timer"]
    assert not clock.getDelayedCalls()


# Turns


def test_any_clock_has_turns() -> None:
    clock, done = Clock(), []
    turns = turns_of(clock)
    assert IReactorTurns.providedBy(turns)
    assert known_turns(clock) is None and known_turns(turns) is turns_of(turns) is turns
    turns.at_turn_end(lambda: done.append("end"))
    assert not done
    clock.advance(0)
    assert done == ["end"] and turns.waited() == 0
    turns.serve_late(2.5, lambda: done.append(turns.waited()))
    assert done == ["end", 2.5] and turns.waited() == 0


def test_a_few_things_are_worked_on_at_once() -> None:
    few, begun = FewAtOnce[str](2), []

    def work(name: str) -> Deferred[None]:
        begun.append((name, Deferred[None]()))
        return begun[-1][1]

    for name in ("a", "b", "c", "d", "c"):
        few.add(name, partial(work, name))
    assert ([name for name, _ in begun], len(few)) == (["a", "b"], 2)
    begun[1][1].callback(None)
    begun[0][1].errback(ValueError("logged"))
    assert [name for name, _ in begun] == ["a", "b", "c", "d"]
    few.add("e", partial(work, "e"))
    few.clear()
    begun[2][1].callback(None)
    assert len(begun) == 4


def test_a_source_with_much_work_leaves_others_their_turn() -> None:
    few, begun = FewAtOnce[str](1), []

    def work(name: str) -> Deferred[None]:
        begun.append((name, Deferred[None]()))
        return begun[-1][1]

    for number in range(100):
        few.add(f"a{number}", partial(work, f"a{number}"), "a")
    few.add("b0", partial(work, "b0"), "b")
    few.add("c0", partial(work, "c0"), "c")
    few.add("b1", partial(work, "b1"), "b")
    assert len(few) == 102
    for _, done in begun:
        done.callback(None)
        if len(begun) == 7:
            break
    assert [name for name, _ in begun] == ["a0", "a1", "b0", "c0", "a2", "b1", "a3"]


def test_work_that_ends_at_once_uses_no_stack() -> None:
    few, first, done = FewAtOnce[int](1), Deferred[None](), []
    assert not few.is_busy
    few.add(-1, lambda: first)
    for number in range(5000):
        few.add(number, partial(done.append, number))
    few.add(0, partial(done.append, "the newer work"))
    assert few.is_busy
    first.callback(None)
    assert done == ["the newer work", *range(1, 5000)]
    assert not few.is_busy
