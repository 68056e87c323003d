"""Waiting with a limit, over a clock that only the pauses move."""

from rocketmq_tw.spark.waiting import Backoff, Overdue


def test_pauses_grow_up_to_the_limit_and_start_anew() -> None:
    now, pauses = [0.0], []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        now[0] += seconds

    backoff = Backoff(5.0, lambda: now[0], sleep)
    while backoff.pause():
        pass
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6]
    backoff.worked()
    assert backoff.pause()
    assert pauses[-1] == 0.1


def test_late_only_after_the_limit_and_never_after_an_answer() -> None:
    now = [0.0]
    overdue = Overdue(10.0, lambda: now[0])
    assert not overdue.is_late("a")
    now[0] = 10.5
    assert overdue.is_late("a")
    assert not overdue.is_late("b")
    overdue.answered("a")
    assert not overdue.is_late("a")
