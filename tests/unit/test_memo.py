"""Functions that remember their answers ask once for the same arguments, within their room."""

import pytest

from rocketmq_tw.memo import remembered, remembered_in_dict


def _counting(calls):
    def joined(first, second):
        calls.append((first, second))
        return f"{first}-{second}"

    return joined


@pytest.mark.parametrize("decorate", [remembered(3), lambda it: remembered_in_dict(it, 3)])
def test_same_arguments_are_asked_for_once(decorate):
    calls: list[tuple[str, int]] = []
    joined = decorate(_counting(calls))
    assert [joined("a", 1), joined("b", 1), joined("a", 1)] == ["a-1", "b-1", "a-1"]
    assert calls == [("a", 1), ("b", 1)]


@pytest.mark.parametrize("decorate", [remembered(3), lambda it: remembered_in_dict(it, 3)])
def test_no_more_is_kept_than_asked_for(decorate):
    calls: list[int] = []

    def plus_one(number):
        calls.append(number)
        return number + 1

    known = decorate(plus_one)
    assert [known(n) for n in range(10)] == list(range(1, 11))
    assert known(0) == 1
    assert calls == [*range(10), 0]


@pytest.mark.parametrize("decorate", [remembered(3), lambda it: remembered_in_dict(it, 3)])
def test_what_raised_is_tried_again(decorate):
    outcomes = [ValueError("not yet"), None]

    def tried(argument):
        outcome = outcomes.pop(0)
        if outcome is not None:
            raise outcome
        return argument

    known = decorate(tried)
    with pytest.raises(ValueError, match="not yet"):
        known(7)
    assert known(7) == 7
    assert known(7) == 7


def test_none_is_an_answer_too():
    calls = []
    known = remembered_in_dict(lambda argument: calls.append(argument), 3)
    assert known("x") is None
    assert known("x") is None
    assert calls == ["x"]
