"""Pauses that grow."""

from __future__ import annotations

from rocketmq_tw.runtime.retries import GrowingPause


def test_a_pause_doubles_up_to_the_longest_and_begins_anew() -> None:
    pause = GrowingPause(0.2, 1.0)
    assert [pause.failed() for _ in range(5)] == [0.2, 0.4, 0.8, 1.0, 1.0]
    assert (pause.failures, pause.next) == (5, 1.0)
    pause.worked()
    assert (pause.failures, pause.next, pause.failed()) == (0, 0.2, 0.2)


def test_no_number_of_failures_is_too_many() -> None:
    pause = GrowingPause(1, 30_000)
    assert [pause.failed() for _ in range(2000)][-1] == 30_000


def test_the_longest_pause_may_change() -> None:
    pause = GrowingPause(1.0, 60.0)
    for _ in range(10):
        pause.failed()
    pause.longest = 5.0
    assert pause.failed() == 5.0
