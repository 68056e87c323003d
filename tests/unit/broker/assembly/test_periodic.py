from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from rocketmq_tw.broker.assembly.periodic import PeriodicTasks


def test_a_task_is_called_at_its_interval() -> None:
    clock, calls = Clock(), []
    tasks = PeriodicTasks(clock)
    tasks.add("a", 2, lambda: calls.append("a"))
    tasks.add("b", 3, lambda: calls.append("b"))
    tasks.start()
    clock.pump([1] * 6)
    assert sorted(calls) == ["a", "a", "a", "b", "b"]
    tasks.stop()
    clock.pump([1] * 6)
    assert len(calls) == 5


def test_a_failing_task_is_called_again() -> None:
    clock, calls = Clock(), []

    def fail() -> None:
        calls.append(1)
        raise OSError("disk full")

    tasks = PeriodicTasks(clock)
    tasks.add("a", 1, fail)
    tasks.start()
    clock.pump([1] * 3)
    assert len(calls) == 3


def test_stopping_waits_for_what_runs() -> None:
    clock = Clock()
    running: Deferred[None] = Deferred()
    tasks = PeriodicTasks(clock)
    tasks.add("a", 1, lambda: running)
    tasks.start()
    clock.advance(1)
    stopped: list[None] = []
    tasks.stop().addCallback(stopped.append)
    assert not stopped
    running.callback(None)
    assert stopped == [None]
