"""Lines of the log that would come again and again."""

from __future__ import annotations

from rocketmq_tw.runtime.log_throttle import LogThrottle, LogThrottleByKey


def test_the_same_line_comes_again_after_its_pause() -> None:
    said = LogThrottle[str](30.0)
    due = [now for now in range(100) if said.is_due("it waits", now)]
    assert due == [0, 30, 60, 90]


def test_another_line_comes_at_once() -> None:
    said = LogThrottle[str](30.0)
    assert [said.is_due(what, 1.0) for what in "aabba"] == [True, False, True, False, True]
    assert said.last == "a"


def test_without_a_pause_only_another_line_is_said() -> None:
    said = LogThrottle[str]()
    assert [said.is_due(what) for what in "aab"] == [True, False, True]
    said.forget()
    assert said.last is None
    assert said.is_due("b")


def test_the_first_line_is_due_whatever_it_is() -> None:
    assert LogThrottle[None](60.0).is_due(None, 0.0)


def test_each_key_has_a_pause_of_its_own() -> None:
    said = LogThrottleByKey[str](60.0, most=10)
    assert said.is_due("a", 0.0)
    assert said.is_due("b", 30.0)
    assert not said.is_due("a", 59.9)
    assert said.is_due("a", 60.0)
    assert not said.is_due("b", 60.0)


def test_so_many_keys_are_told_of_and_no_further_ones() -> None:
    said = LogThrottleByKey[int](60.0, most=2)
    assert [said.is_due(key, float(key)) for key in range(4)] == [True, True, False, False]
    assert said.is_due(3, 60.0), "the first one is forgotten"
    assert not said.is_due(0, 60.0)
